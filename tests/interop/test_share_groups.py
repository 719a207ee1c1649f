"""Share groups with Java's share consumer: accepted, released, rejected, renewed, killed."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.interop.brokers import TARGET, Node, make_node
from tests.interop.java_session import JavaSession
from tests.interop.tools import java_command
from tests.interop.topics import create_topic

CONSUMER = "org.apache.kafka.tools.VerifiableShareConsumer"
# A member that is killed is missed sooner.
SETTINGS = {
    "group.share.session.timeout.ms": "3000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
}
RECORDS = 2_000
PARTITIONS = 3


def from_the_beginning(node: Node, group: str) -> None:
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def fill(node: Node, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 2})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_each_kind_of_acknowledgement(broker: Node, java: JavaSession) -> None:
    topic = create_topic(broker.bootstrap, "shared", partitions=PARTITIONS)
    from_the_beginning(broker, "shares")
    fill(broker, topic, 100)
    printed = java.run("Shares", broker.bootstrap, topic, "shares", "100")
    said = Counter(tuple(line.split()) for line in printed.splitlines() if line[0].isupper())
    numbers = range(100)
    expected = {("RELEASE", str(n), "1"): 1 for n in numbers if n % 10 == 3}
    expected |= {("ACCEPT", str(n), "2"): 1 for n in numbers if n % 10 == 3}
    expected |= {("REJECT", str(n), "1"): 1 for n in numbers if n % 10 == 5}
    expected |= {("RENEW", str(n), "1"): 1 for n in numbers if n % 10 == 7}
    expected |= {("ACCEPT", str(n), "1"): 1 for n in numbers if n % 10 not in (3, 5)}
    assert said == expected


class Consumer:
    """Kafka's verifiable share consumer in a JVM of its own; its events with their times."""

    def __init__(self, node: Node, topic: str, group: str) -> None:
        arguments = ["--bootstrap-server", node.bootstrap, "--topic", topic, "--group-id", group]
        self.process = subprocess.Popen(
            java_command(CONSUMER, *arguments, "--acknowledgement-mode", "sync", heap="128m"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{") and line.endswith("}\n"):
                self.events.append(json.loads(line))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def places(self, name: str) -> Iterator[tuple[tuple[int, int], int]]:
        """Partition and offset, and when it was printed, of each record in events of this name."""
        for event in list(self.events):
            if event["name"] == name and not event.get("error"):
                for part in event["partitions"]:
                    for offset in part["offsets"]:
                        yield (part["partition"], offset), event["timestamp"]


def accepted(consumers: list[Consumer]) -> Counter[tuple[int, int]]:
    return Counter(place for each in consumers for place, _ in each.places("offsets_acknowledged"))


def wait_for(consumers: list[Consumer], count: int, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while len(accepted(consumers)) < count:
        assert time.monotonic() < deadline, f"{len(accepted(consumers))} of {count} are accepted"
        time.sleep(0.05)


@pytest.mark.skipif(TARGET == "apache", reason="it takes Apache Kafka 30 s to give locks back")
def test_a_killed_consumer_and_a_killed_broker(tmp_path: Path) -> None:
    """What was accepted is not delivered again, and everything else is."""
    with make_node(TARGET, tmp_path, SETTINGS) as node:
        topic = create_topic(node.bootstrap, "shared", partitions=PARTITIONS)
        from_the_beginning(node, "shares")
        fill(node, topic, RECORDS)
        consumers = [Consumer(node, topic, "shares") for _ in range(2)]
        try:
            wait_for(consumers, RECORDS // 2, 40)
            consumers[0].kill()
            node.kill()
            node.start()
            fill(node, topic, RECORDS)
            wait_for(consumers, 2 * RECORDS, 40)
        finally:
            for each in consumers:
                each.kill()
        found = accepted(consumers)
        assert len(found) == 2 * RECORDS
        answered = {
            place: at_ms
            for each in consumers
            for place, at_ms in each.places("offsets_acknowledged")
        }
        again = [
            place
            for each in consumers
            for place, at_ms in each.places("records_consumed")
            if at_ms > answered[place]
        ]
        assert not again, "delivered after the acknowledgement was answered"
