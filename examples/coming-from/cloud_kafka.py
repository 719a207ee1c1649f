"""Coming from CKafka or Alibaba Cloud's Kafka: what their consoles offer, as commands and calls on
any Kafka cluster. A program of theirs is a Kafka program: its address is all that changes.

Run it on any Kafka cluster. It makes its own topics.
"""

# ruff: noqa: T201
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import confluent_kafka

from headrace import Admin

TOPIC = "from-the-cloud"
HEADRACE = str(Path(sys.executable).with_name("headrace"))


def headrace(*words: str) -> None:
    print("$ headrace", *words, flush=True)
    subprocess.run([HEADRACE, *words], check=True)


def use_a_plain_client(bootstrap: str) -> None:
    """Not one of ours: the client that the cloud's own examples use."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(TOPIC, f"event {number}", key=f"k{number % 4}")
    producer.flush()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "cloud-readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    read = 0
    while read < 12:
        message = consumer.poll(30)
        read += message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    admin = Admin()
    admin.topics.create(TOPIC, partitions=2)
    admin.topics.create("from-the-cloud-copy", partitions=2)
    use_a_plain_client(os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092"))
    headrace("consume", TOPIC, "--count", "1")  # message query, by offset or --from a time
    headrace("backlog", "status", "cloud-readers", "--watch-for", "100ms")  # accumulation
    headrace("groups", "reset", "cloud-readers", "--topic", TOPIC, "--to-beginning", "--execute")
    headrace("replay", "group", "cloud-readers", "--topic", TOPIC, "--since", "1h")  # dry run
    headrace("backlog", "add-partitions", TOPIC, "--to", "4")  # which keys would move
    # Migration between instances, each record once, stopped and started at will.
    headrace("replay", "copy", TOPIC, "--to", "from-the-cloud-copy", "--execute")
    print("copied:", sum(Admin().topics.written(["from-the-cloud-copy"]).values()) >= 20)
