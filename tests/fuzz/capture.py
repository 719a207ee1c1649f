"""Records what real clients send, as seeds: `python -m tests.fuzz.capture`.

Runs a broker in this process and notes the first frames of every API and version that librdkafka
and, with `--java`, Apache Kafka's tools send it. Needs Java and the jars for that.
"""

from __future__ import annotations

import argparse
import base64
import subprocess
import sys
from collections import Counter
from unittest import mock

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.node.serving.dispatch import Dispatch
from headrace.node.serving.session import Session
from headrace.testing import Broker
from tests.fuzz.seeds import CAPTURES

PER_VERSION = 2
LARGEST = 3_000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--java", action="store_true", help="Apache Kafka's tools too")
    java = arguments.parse_args().java
    seen: Counter[tuple[int, int]] = Counter()
    lines: list[str] = []
    answer = Dispatch._answer

    def noting(self: Dispatch, session: Session, frame: memoryview) -> None:
        key = int.from_bytes(frame[0:2], "big"), int.from_bytes(frame[2:4], "big")
        if seen[key] < PER_VERSION and len(frame) <= LARGEST:
            seen[key] += 1
            lines.append(f"{key[0]} {key[1]} {base64.b64encode(frame).decode()}")
        answer(self, session, frame)

    with mock.patch.object(Dispatch, "_answer", noting), Broker() as broker:
        librdkafka(broker.bootstrap)
        if java:
            apache_tools(broker.bootstrap)
    lines.sort(key=lambda line: tuple(map(int, line.split()[:2])))
    CAPTURES.write_text("# API, version, the frame that a client sent\n" + "\n".join(lines) + "\n")
    sys.stderr.write(f"{len(lines)} frames of {len(seen)} APIs and versions\n")


def librdkafka(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("fuzz", 2, 1), NewTopic("other", 2, 1)]).values():
        made.result()
    send(bootstrap)
    for protocol in ("classic", "consumer"):
        receive(bootstrap, protocol)
    resource = ConfigResource(ResourceType.TOPIC, "fuzz")
    for asked in (
        admin.describe_configs([resource]),
        admin.create_partitions([NewPartitions("other", 3)]),
        admin.list_offsets({TopicPartition("fuzz", 0): OffsetSpec.latest()}),
        admin.delete_records([TopicPartition("fuzz", 0, 1)]),
        admin.describe_consumer_groups(["fuzz-classic", "fuzz-consumer"]),
        admin.delete_consumer_groups(["fuzz-classic"]),
    ):
        for found in asked.values():
            found.exception()
    admin.list_consumer_groups().result()
    admin.describe_cluster().result()
    for gone in admin.delete_topics(["other"]).values():
        gone.result()


def send(bootstrap: str) -> None:
    for more in (
        {"acks": "1"},
        {"enable.idempotence": True},
        {"transactional.id": "fuzz"},
        {"compression.type": "lz4"},
        {"compression.type": "zstd"},
        {"compression.type": "gzip"},
        {"compression.type": "snappy"},
    ):
        producer = Producer({"bootstrap.servers": bootstrap, **more})
        transactional = "transactional.id" in more
        if transactional:
            producer.init_transactions(10)
            producer.begin_transaction()
        for number in range(3):
            producer.produce("fuzz", f"value {number}", f"key {number}", headers={"h": "v"})
        producer.flush(10)
        if transactional:
            producer.commit_transaction(10)


def receive(bootstrap: str, protocol: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"fuzz-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["fuzz"])
    consumer.consume(10, 10)
    consumer.commit(asynchronous=False)
    consumer.close()


def apache_tools(bootstrap: str) -> None:
    from tests.interop.tools import java_command

    where = ("--bootstrap-server", bootstrap)
    topic = ("--topic", "fuzz")
    configs = ("kafka.admin.ConfigCommand", *where, "--entity-type")
    for tool, words in (
        ("org.apache.kafka.tools.TopicCommand", (*where, "--describe")),
        ("org.apache.kafka.tools.ConsoleProducer", (*where, *topic)),
        (
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            (*where, *topic, "--from-beginning", "--max-messages", "3", "--group", "java"),
        ),
        (configs[0], (*configs[1:], "topics", "--entity-name", "fuzz", "--describe")),
        (configs[0], (*configs[1:], "users", "--describe")),
        ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", (*where, "--list")),
        ("org.apache.kafka.tools.TransactionsCommand", (*where, "list")),
        ("org.apache.kafka.tools.LogDirsCommand", (*where, "--describe")),
        ("org.apache.kafka.tools.MetadataQuorumCommand", (*where, "describe", "--status")),
        ("org.apache.kafka.tools.FeatureCommand", (*where, "describe")),
    ):
        subprocess.run(
            java_command(tool, *words), input="a\nb\n", text=True, timeout=120, check=False
        )


if __name__ == "__main__":
    main()
