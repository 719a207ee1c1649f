"""Clients of others write and read while all three nodes are restarted, one after the other.

No error may reach the application, and everything that was acknowledged is read. Records may be
read twice where a group's member has to join again. `TARGET=apache` runs the same on Apache Kafka.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.interop.brokers import TARGET
from tests.interop.java_session import session_classes
from tests.interop.tools import built_go_program, installed_node_program, java_command, tool
from tests.soak.three_nodes import ThreeNodes, wait_until

PARTITIONS = 6
ENOUGH = 200  # records that each client writes between two restarts, at least
END_WITHIN_S = 400.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    with ThreeNodes(TARGET, tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Librdkafka(threading.Thread):
    """The same as the programs do, in this process."""

    def __init__(self, bootstrap: str, topic: str, stop: Path, protocol: str) -> None:
        super().__init__(daemon=True)
        self.topic, self.stop = topic, stop
        self.where = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.protocol = protocol
        self.acknowledged: set[bytes] = set()
        self.read: set[bytes] = set()
        self.twice = 0
        self.errors: list[str] = []

    def run(self) -> None:
        producer = Producer(self.where | {"enable.idempotence": True})
        group = {"group.id": f"rolling-{self.protocol}", "group.protocol": self.protocol}
        reading = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer(self.where | group | reading)
        consumer.subscribe([self.topic])
        number = 0
        while not self.errors:
            if not self.stop.exists():
                for _ in range(10):
                    value = str(number).encode()
                    producer.produce(self.topic, value, value, on_delivery=self._delivered)
                    number += 1
            elif len(self.acknowledged) == number and self.acknowledged <= self.read:
                break
            producer.poll(0)
            self._take(consumer)
        consumer.close()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.add(message.value())
        else:
            self.errors.append(str(error))

    def _take(self, consumer: Consumer) -> None:
        try:
            records = consumer.consume(500, 0.05)
            for record in records:
                if record.error() is not None:
                    self.errors.append(str(record.error()))
                    continue
                self.twice += record.value() in self.read
                self.read.add(record.value())
            if records:
                consumer.commit(asynchronous=False)
        except KafkaException as failure:
            # A group that is joined again has no offset to commit for what it has lost.
            if failure.args[0].name() not in ("_NO_OFFSET", "REBALANCE_IN_PROGRESS"):
                self.errors.append(str(failure))


def end_offset(cluster: ThreeNodes, topic: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "looks", "log_level": 0}
    )
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in range(PARTITIONS)
        )
    except KafkaException:
        return -1
    finally:
        consumer.close()


def restart_all(cluster: ThreeNodes, topics: list[str]) -> None:
    """Each node is stopped and started; between two, every client has written."""
    for member in cluster.members:
        before = {topic: end_offset(cluster, topic) for topic in topics}
        wait_until(
            lambda before=before: all(  # type: ignore[misc]
                end_offset(cluster, topic) >= count + ENOUGH for topic, count in before.items()
            ),
            "a client has stopped writing",
            more=lambda before=before: str(  # type: ignore[misc]
                {topic: (count, end_offset(cluster, topic)) for topic, count in before.items()}
            ),
        )
        member.stop()
        member.start()
        cluster.wait_in_sync()


def test_no_error_reaches_an_application_while_all_nodes_are_restarted(
    cluster: ThreeNodes, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    topics = ["java-classic", "java-consumer", "go", "node", "rd-classic", "rd-consumer"]
    for made in cluster.admin.create_topics([NewTopic(t, PARTITIONS, 3) for t in topics]).values():
        made.result(60)
    cluster.wait_in_sync()

    def job(topic: str, **more: str) -> dict[str, str]:
        return {"bootstrap": cluster.bootstrap, "topic": topic, "stop": str(stop)} | more

    java = java_command("Rolling", extra=str(session_classes()))
    node = [tool("node"), str(installed_node_program() / "client.js")]
    commands: list[tuple[list[str], dict[str, str]]] = [
        (java, job("java-classic", protocol="classic")),
        (java, job("java-consumer", protocol="consumer")),
        ([str(built_go_program())], job("go", verb="roll")),
        (node, job("node", verb="roll")),
    ]
    threads = [
        Librdkafka(cluster.bootstrap, f"rd-{protocol}", stop, protocol)
        for protocol in ("classic", "consumer")
    ]
    programs = [started(command, asked) for command, asked in commands]
    try:
        for thread in threads:
            thread.start()
        restart_all(cluster, topics)
        stop.touch()
        answers = {
            asked["topic"]: told(program)
            for program, (_, asked) in zip(programs, commands, strict=True)
        }
    finally:
        stop.touch()
        for program in programs:
            program.kill()
            program.wait()
    for thread in threads:
        thread.join(END_WITHIN_S)
        assert thread.errors == [] and not thread.is_alive(), (thread.topic, thread.errors)
        answers[thread.topic] = {
            "acknowledged": len(thread.acknowledged),
            "read": len(thread.read),
            "twice": thread.twice,
        }
    for topic, answer in answers.items():
        assert answer["acknowledged"] >= 3 * ENOUGH, (topic, answer)
        assert answer["read"] >= answer["acknowledged"], (topic, answer)
        if topic != "node":  # whose producer is not idempotent
            assert end_offset(cluster, topic) == answer["read"], f"{topic} has a record twice"


def started(command: list[str], asked: dict[str, str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    program = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert program.stdin is not None
    program.stdin.write(json.dumps(asked))
    program.stdin.close()
    program.stdin = None
    return program


def told(program: subprocess.Popen[str]) -> dict[str, int]:
    said, errors = program.communicate(timeout=END_WITHIN_S)
    assert program.returncode == 0, errors[-4000:]
    answer: dict[str, int] = json.loads(said)
    return answer
