"""200 members of the newer protocol on 200 sockets, from one process with our own codecs.

They come, go, crash and miss answers; after every answer it is checked that nobody has what another
has. Also a test of the test: `TARGET=apache` asks the same of Apache Kafka.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from headrace.wire.protocol.messages import find_coordinator
from headrace.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.conformance.wire import Connection
from tests.interop.brokers import make_node
from tests.interop.topics import create_topic
from tests.unit.node.broker.groups.group_crowd import Crowd
from tests.unit.node.broker.groups.group_readers import Reader

MEMBERS = 200
PARTITIONS = 120
SESSION_MS = 10_000
SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}


class Wire:
    """What a member asks through: a connection of its own."""

    def __init__(self, port: int) -> None:
        self.connection = Connection(port)

    def ask(self, messages: Any, request: Any) -> Any:
        return self.connection.ask(messages, messages.VERSIONS[-1], request)


class CrowdOnSockets(Crowd):
    def crash(self, count: int = 1) -> None:
        super().crash(count)
        for reader, _ in self.crashed:
            reader.rig.connection.close()


def now_ms() -> int:
    return int(time.monotonic() * 1000)


def test_no_partition_has_two_owners_while_200_members_come_go_and_crash(
    target: str, tmp_path: Path
) -> None:
    with make_node(target, tmp_path, SETTINGS) as node:
        topic = create_topic(node.bootstrap, "crowded", partitions=PARTITIONS)
        wait_for_coordinator(node.port, "crowd", topic)
        crowd = CrowdOnSockets(
            lambda name: Reader(Wire(node.port), "crowd", name, topic), now_ms, SESSION_MS, seed=848
        )
        while len(crowd.alive) < MEMBERS:
            crowd.join(4)
            crowd.round(0.05)
            keep_alive(crowd)
        for _ in range(8):
            crowd.leave(4)
            crowd.crash(4)
            crowd.join(6)
            crowd.round(0.5)
            keep_alive(crowd)
        assert crowd.crashed, "some are still thought to be alive"
        crowd.lost = 0.0
        deadline = time.monotonic() + 400
        while crowd.crashed or crowd.owned() < PARTITIONS:
            assert time.monotonic() < deadline, f"{crowd.owned()} of {PARTITIONS} are read"
            crowd.round()
        crowd.comes_to_rest(PARTITIONS)
        for reader in crowd.alive:
            reader.rig.connection.close()


def keep_alive(crowd: Crowd) -> None:
    """Those that were not heard for long speak; a slow machine must not end their sessions."""
    for reader in crowd.alive:
        if now_ms() - crowd.heard[reader] > SESSION_MS // 3:
            crowd.beat(reader)


def wait_for_coordinator(port: int, group: str, topic: str) -> None:
    """Until a member may join; Apache's coordinator takes its time to load, and to learn topics."""
    wire = Wire(port)
    request = FindCoordinatorRequest(group, 0, [group])
    deadline = time.monotonic() + 400
    while True:
        wire.ask(find_coordinator, request)
        probe = Reader(wire, group, "probe", topic)
        if not probe.beat().error_code and probe.owned:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    probe.leave()
    wire.connection.close()
