"""What does a group cost that has no members and only keeps its place?

5,000 groups commit one offset each over one connection and then rest. Memory is VmRSS of the whole
broker with them, and its growth over a broker that already keeps a hundred. A JVM's heap grows and
shrinks in its own steps, so its growth varies from run to run, may be negative, and has no goal.
Every group's offset is read back.
"""

from __future__ import annotations

import socket
import time

from . import coordinators, wire
from .benchmark import Benchmark, Run
from .results import Better, Goal, Row, Samples

TOPIC = "places"
SETTLE_S = 2.0
PIPELINED = 50
READ_AT_ONCE = 500


def measure(run: Run) -> Samples:
    count = run.count(5_000, 500)
    with run.target.start() as broker, wire.connect(broker.port) as connection:
        wire.create_topics_with(connection, [TOPIC], partitions=1)
        settle(connection)
        before = broker.memory().resident_mb
        begin = time.perf_counter()
        commit_all(connection, count)
        took = time.perf_counter() - begin
        time.sleep(SETTLE_S)
        after = broker.memory().resident_mb
        check(connection, count)
    return {
        "memory": [after],
        "growth": [(after - before) * 1e6 / count / 1024],
        "first commit": [1e6 * took / count],
    }


def settle(connection: socket.socket) -> None:
    """A hundred groups, so that every partition of the offsets topic is in use."""
    groups = [f"early-{number}" for number in range(100)]
    coordinators.find(connection, groups, coordinators.GROUP)
    for group in groups:
        coordinators.commit_when_ready(connection, group, TOPIC, 0, 1)
    time.sleep(SETTLE_S)


def name(number: int) -> str:
    return f"group-{number:06}"


def commit_all(connection: socket.socket, count: int) -> None:
    for first in range(0, count, PIPELINED):
        numbers = range(first, min(first + PIPELINED, count))
        frames = [coordinators.commit_frame(name(each), TOPIC, 0, each) for each in numbers]
        connection.sendall(b"".join(frames))
        for _ in numbers:
            coordinators.check_committed(wire.receive_frame(connection))


def check(connection: socket.socket, count: int) -> None:
    for first in range(0, count, READ_AT_ONCE):
        numbers = list(range(first, min(first + READ_AT_ONCE, count)))
        groups = [name(number) for number in numbers]
        held = coordinators.committed_offsets(connection, groups, TOPIC, 0)
        if held != numbers:
            raise AssertionError(f"groups {first} ff. hold other offsets than they committed")


BENCHMARK = Benchmark(
    "Idle groups",
    (
        Row("memory", "memory with 5,000 idle groups", "MB", Goal(Better.LESS, ratio=1.0)),
        Row("growth", "memory per idle group", "KiB"),
        Row("first commit", "first commit of a group", "us"),
    ),
    measure,
    rounds=2,
)
