"""A message as a program: to read it again, or to send the same. Pure.

Names and bytes are written as Python literals: nothing that a message holds can become code.
"""

from __future__ import annotations

from headrace.client.records import Record
from headrace.foreign_text import escaped

LONGEST = 4_000  # of a value in the sample


def python_to_read(bootstrap: str, record: Record) -> str:
    record_id = f"{record.topic!r}, {record.partition}, {record.offset}"
    return "\n".join(
        [
            "from confluent_kafka import Consumer, TopicPartition",
            "",
            f"consumer = Consumer({{'bootstrap.servers': {bootstrap!r}, 'group.id': 'a-look'}})",
            f"consumer.assign([TopicPartition({record_id})])",
            "message = consumer.poll(10)",
            "print(message.key(), message.value(), message.headers())",
            "consumer.close()",
        ]
    )


def python_to_send(bootstrap: str, record: Record) -> str:
    value = record.value
    cut = value is not None and len(value) > LONGEST
    lines = [
        "from confluent_kafka import Producer",
        "",
        f"producer = Producer({{'bootstrap.servers': {bootstrap!r}}})",
        "producer.produce(",
        f"    {record.topic!r},",
        f"    key={record.key!r},",
        f"    value={'...' if cut else repr(value)},{'  # too long to show' if cut else ''}",
        f"    headers={list(record.headers)!r},",
        ")",
        "producer.flush()",
    ]
    return "\n".join(escaped(line) for line in lines)
