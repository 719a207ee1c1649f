"""How long does one client's large request keep another one waiting?

A bystander asks for ApiVersions again and again on a connection of its own, 1 ms after each answer.
Meanwhile another client sends the largest requests of each API (`large_requests.py`), one by one. A
row is the bystander's longest wait from the first byte of that request to half a second after the
last byte of its answer, when its files may still be made or removed. "Nobody else asks" is what the
machine itself takes, so no row can be below it. Garbage collection of both is included.

Then come small requests on a large state (`grown_state.py`), on a fresh broker: alone, and those
with a large answer by 20 connections at once. `grown_search.py` measures the same in processor time
and lets the state grow.
"""

from __future__ import annotations

import functools
import socket
import threading
import time

from headrace.wire.protocol.messages import find_coordinator

from . import grown_state, wire
from .benchmark import Benchmark, Run
from .brokers import API_VERSIONS_V0, Target, fresh_target
from .large_requests import (
    GROUP,
    LARGE_LABEL,
    Counts,
    LargeRequest,
    all_titles,
    large_requests,
)
from .results import Better, Goal, Row, Samples

FULL = Counts()
QUICK = Counts(wide=600, more=600, many=300, auto=300)
FULL_STATE = grown_state.Size()
SMALL_STATE = grown_state.Size(50, 50, 3, 5, 20, 50, 50, 100)
AT_ONCE = 20
GROUPS, TRANSACTIONS = 0, 1  # kinds of coordinators
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
AFTERWARDS_S = 0.5
BETWEEN_S = 0.001
COORDINATOR_WITHIN_S = 30.0
GOAL_MS, GOAL_OF_LARGE_MS = 50.0, 250.0


class Bystander:
    """Its longest wait since it was asked last."""

    def __init__(self, port: int) -> None:
        self._connection = wire.connect(port)
        self._longest_s = 0.0
        self._asked_at: float | None = None
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def longest_ms(self) -> float:
        asked_at = self._asked_at
        waits_s = 0.0 if asked_at is None else time.perf_counter() - asked_at
        longest_s, self._longest_s = max(self._longest_s, waits_s), 0.0
        return 1e3 * longest_s

    def end(self) -> None:
        self._ends = True
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._ends:
            self._asked_at = begin = time.perf_counter()
            self._connection.sendall(API_VERSIONS_V0)
            wire.receive_frame(self._connection)
            self._asked_at = None
            self._longest_s = max(self._longest_s, time.perf_counter() - begin)
            time.sleep(BETWEEN_S)


def counts_of(run: Run) -> Counts:
    return QUICK if run.quick else FULL


def measure(run: Run) -> Samples:
    waits: Samples = {}
    with run.target.start() as broker, wire.connect(broker.port) as connection:
        connection.settimeout(600)
        wait_for_coordinator(connection)
        bystander = Bystander(broker.port)
        time.sleep(2.0)
        bystander.longest_ms()
        time.sleep(2.0)
        waits["nobody"] = [bystander.longest_ms()]
        for request in large_requests(counts_of(run), small_only=run.quick):
            waits[request.key] = [longest_wait(connection, bystander, request, run)]
        bystander.end()
    with fresh_target(run.target.name, run.target.folder.parent, run.target.cores) as target:
        waits |= waits_on_grown_state(target, SMALL_STATE if run.quick else FULL_STATE)
    return {row.key: waits.get(row.key, []) for row in ROWS}


def waits_on_grown_state(target: Target, size: grown_state.Size) -> Samples:
    """By key; what 20 connections ask at once has a key of its own."""
    target.settings |= WITH_ACLS
    waits: Samples = {}
    with target.start() as broker, wire.connect(broker.port) as connection:
        connection.settimeout(600)
        for kind in (GROUPS, TRANSACTIONS):
            wait_for_coordinator(connection, kind)
        ask = functools.partial(wire.ask, connection)
        for _, _, prepare in grown_state.PREPARATIONS:
            prepare(ask, size)
        bystander = Bystander(broker.port)
        for case in grown_state.cases(ask, size):
            for count in (1, AT_ONCE) if case.large_answer else (1,):
                bystander.longest_ms()
                grown_state.asked_at_once(broker.port, case, count)
                time.sleep(AFTERWARDS_S)
                waits[key_of(case, count)] = [bystander.longest_ms()]
        bystander.end()
    return waits


def key_of(case: grown_state.Case, count: int) -> str:
    return f"grown {case.key} {count}"


def wait_for_coordinator(connection: socket.socket, key_type: int = GROUPS) -> None:
    """Its topic is made by the first who asks."""
    request = find_coordinator.FindCoordinatorRequest("", key_type, [GROUP])
    deadline = time.monotonic() + COORDINATOR_WITHIN_S
    while wire.ask(connection, find_coordinator, 4, request).coordinators[0].error_code:
        assert time.monotonic() < deadline, "no coordinator"
        time.sleep(0.1)


def longest_wait(
    connection: socket.socket, bystander: Bystander, request: LargeRequest, run: Run
) -> float:
    frame = request.frame()
    bystander.longest_ms()
    begin = time.perf_counter()
    connection.sendall(frame)
    answer = wire.receive_frame(connection)
    took = time.perf_counter() - begin
    time.sleep(AFTERWARDS_S)
    run.details.append(
        f"{request.title}, {run.target.name}: {len(frame):,} bytes asked, {len(answer):,} answered "
        f"in {took:.2f} s"
    )
    return bystander.longest_ms()


def rows() -> tuple[Row, ...]:
    found = [Row("nobody", "nobody else asks", "ms")]
    for key, title in all_titles(FULL):
        at_most = GOAL_OF_LARGE_MS if key.endswith(LARGE_LABEL) else GOAL_MS
        found.append(Row(key, title, "ms", Goal(Better.LESS, absolute=at_most)))
    small = Goal(Better.LESS, absolute=GOAL_MS)
    for case in (*grown_state.reading(FULL_STATE), *grown_state.changing(FULL_STATE, (0, 0))):
        found.append(Row(key_of(case, 1), case.title, "ms", small))
        if case.large_answer:
            title = f"{AT_ONCE} connections ask at once: {case.title}"
            found.append(Row(key_of(case, AT_ONCE), title, "ms", small))
    return tuple(found)


ROWS = rows()
BENCHMARK = Benchmark("Longest wait of a bystander", ROWS, measure, rounds=1)
