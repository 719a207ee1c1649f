"""Records of the topic `headrace.delay.far`: pending messages that the intake need not keep.

The key is the record's place in the intake, the value is its own value, so that people can
read it. Its own key and what it asked for are headers, in the form the intake would take: `read`
goes through the same instructions. A null value would be a tombstone, so it is empty and marked.
The intake's topic id is part of it: a topic that is created again begins with the same offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.services.delay.timeline.rows import Row, row_of
from headrace.services.delay.timeline.transaction_plan import FarRecord
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_instructions import RecordFields, Schedule, read_instruction
from headrace.wire.contract.own_records import moment_ms

Headers = Sequence[tuple[str, bytes | None]]

_OWN = frozenset({names.FAR_KEY, names.FAR_APPENDED_AT, names.FAR_NULL, names.FAR_TOPIC_ID})
# Kafka's own limit for offsets.
_LAST_OFFSET = 2**63 - 1


def key_of(topic: str, partition: int, offset: int) -> bytes:
    return f"{topic}/{partition}/{offset}".encode()


def record_id_of(key: bytes) -> tuple[str, int, int]:
    """Topic, partition, offset. Raises ValueError for a key that is not ours."""
    topic, partition, offset = key.decode().split("/")
    place = topic, int(partition), int(offset)
    if key_of(*place) != key or not 0 <= place[2] <= _LAST_OFFSET:
        raise ValueError(f"{key[:100]!r} is not a position in an intake")
    return place


def tombstone(topic: str, partition: int, offset: int) -> FarRecord:
    return FarRecord(key_of(topic, partition, offset), None, [])


def write(topic: str, partition: int, row: Row, topic_id: str = "") -> FarRecord:
    due_ms, offset, (key, value, kept_headers, target, appended_ms, id_, cron) = row
    headers = list(kept_headers or ())
    headers.append((names.FAR_APPENDED_AT, b"%d" % appended_ms))
    if topic_id:
        headers.append((names.FAR_TOPIC_ID, topic_id.encode()))
    if key is not None:
        headers.append((names.FAR_KEY, key))
    if value is None:
        headers.append((names.FAR_NULL, b"1"))
    if target is not None:
        headers.append((names.PARTITION, b"%d" % target))
    if id_ is not None:
        headers.append((names.ID, id_.encode()))
    if cron is None:
        headers.append((names.DELIVER_AT, b"%d" % due_ms))
    else:
        expression, zone, until_ms, count, _ = cron
        headers += [(names.CRON, expression.encode()), (names.CRON_ZONE, zone.encode())]
        if until_ms is not None:
            headers.append((names.CRON_UNTIL, b"%d" % until_ms))
        if count is not None:
            headers.append((names.CRON_COUNT, b"%d" % count))
    return FarRecord(key_of(topic, partition, offset), value if value is not None else b"", headers)


def is_of_another_topic(headers: Headers, topic_id: str) -> bool:
    """Whether it waited in a topic of the same name that was deleted since."""
    return any(name == names.FAR_TOPIC_ID and said != topic_id.encode() for name, said in headers)


def read(key: bytes, value: bytes, headers: Headers) -> Row:
    """Raises ValueError for a record that `write` has not written."""
    own = {name: content for name, content in headers if name in _OWN}
    rest = [header for header in headers if header[0] not in _OWN]
    try:
        appended_ms = moment_ms(int(own.get(names.FAR_APPENDED_AT) or b""))
    except ValueError as fault:
        raise ValueError(f"the far record {key!r} does not say when it was taken") from fault
    record: RecordFields = (
        record_id_of(key)[2],
        appended_ms,
        own.get(names.FAR_KEY),
        None if names.FAR_NULL in own else value,
        rest,
    )
    instruction = read_instruction(record)
    if not isinstance(instruction, Schedule):
        raise ValueError(f"the far record {key!r} holds no schedule: {instruction}")
    return row_of(record, instruction)
