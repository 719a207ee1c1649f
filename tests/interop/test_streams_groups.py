"""Streams groups (KIP-1071): a real application of two instances, one of which is killed; Apache's
own tool, the group's settings, and the group's end."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.interop.brokers import Node, make_node
from tests.interop.ecosystem import (
    EcosystemSession,
    ecosystem_classes,
    ecosystem_jars,
    running,
)
from tests.interop.test_ecosystem_streams import LINES, put_lines, words
from tests.interop.tools import java_command
from tests.interop.topics import create_topic

TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PATIENCE_S = 150.0
QUICK = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def java() -> Iterator[EcosystemSession]:
    with EcosystemSession() as session:
        yield session


def instance(node: Node, source: str, sink: str, app: str, state: Path) -> list[str]:
    arguments = [node.bootstrap, source, sink, app, "exactly_once_v2", str(state), "0", "-"]
    extra = f"{ecosystem_classes()}:{ecosystem_jars()}/*"
    return java_command("WordCountInstance", *arguments, "streams", heap="256m", extra=extra)


class Counts:
    """What the application has written and committed: each word with its counts, in order."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.seen: dict[str, list[int]] = {}

    def until(self, lines: list[str]) -> None:
        wanted = {word: list(range(1, n + 1)) for word, n in words(lines).items()}
        deadline = time.monotonic() + PATIENCE_S
        while self.seen != wanted and time.monotonic() < deadline:
            record = self.consumer.poll(0.2)
            if record is not None and record.error() is None:
                key, value = record.key(), record.value()
                assert isinstance(key, bytes) and isinstance(value, bytes)
                counts = self.seen.setdefault(key.decode(), [])
                counts.append(int.from_bytes(value, "big"))
        assert self.seen == wanted


def members(java: EcosystemSession, node: Node, app: str) -> list[str]:
    """The lines of Apache's tool about the members of the group, without the title."""
    where = ("--bootstrap-server", node.bootstrap, "--describe", "--group", app)
    printed = java.run(TOOL, *where, "--members")
    return [line for line in printed.splitlines() if line.startswith(app)]


def until_processes(java: EcosystemSession, node: Node, app: str, count: int) -> None:
    """Each of so many processes has an active task."""
    deadline = time.monotonic() + PATIENCE_S
    found: Counter[str] = Counter()
    while time.monotonic() < deadline:
        rows = [line.split() for line in members(java, node, app)]
        found = Counter(row[2] for row in rows if "ACTIVE:" in row)
        if len(found) == count:
            return
        time.sleep(0.5)
    raise AssertionError(f"{count} processes with tasks, not {found}")


def test_an_instance_is_added_and_another_is_killed(
    target: str, java: EcosystemSession, tmp_path: Path
) -> None:
    with make_node(target, tmp_path / "node", QUICK) as node, ExitStack() as stack:
        source = create_topic(node.bootstrap, "lines", partitions=2)
        sink = create_topic(node.bootstrap, "counts")
        settings = {"bootstrap.servers": node.bootstrap, "group.id": "eyes"}
        reader = Consumer({**settings, "isolation.level": "read_committed"})
        stack.callback(reader.close)
        reader.assign([TopicPartition(sink, 0, 0)])
        counts = Counts(reader)

        first = stack.enter_context(
            running(instance(node, source, sink, "app", tmp_path / "one"), tmp_path / "one.log")
        )
        put_lines(node, source, LINES[:20])
        counts.until(LINES[:20])
        stack.enter_context(
            running(instance(node, source, sink, "app", tmp_path / "two"), tmp_path / "two.log")
        )
        until_processes(java, node, "app", 2)
        put_lines(node, source, LINES[20:40])
        counts.until(LINES[:40])
        first.send_signal(signal.SIGKILL)
        put_lines(node, source, LINES[40:])
        counts.until(LINES)
        until_processes(java, node, "app", 1)
        check_apaches_tool(java, node)


def check_apaches_tool(java: EcosystemSession, node: Node) -> None:
    where = ("--bootstrap-server", node.bootstrap)
    assert "app" in java.run(TOOL, *where, "--list").split()
    assert "Stable" in java.run(TOOL, *where, "--describe", "--group", "app", "--state")
    offsets = java.run(TOOL, *where, "--describe", "--group", "app")
    assert "app-counts-repartition" in offsets and "lines" in offsets
    who = ("--entity-type", "groups", "--entity-name", "app")
    wish = "streams.num.standby.replicas=1"
    java.run(CONFIGS, *where, *who, "--alter", "--add-config", wish)
    assert wish in java.run(CONFIGS, *where, *who, "--describe")
