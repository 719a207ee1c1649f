"""`python -m benchmarks.grown_search [--times 1 2 4]`: small requests, and a state that grows.

A node runs in a process of its own (`turn_watch.py`). Its state is prepared (`grown_state.py`) in
the sizes that are asked for; then each case is asked once, each with a large answer by 20
connections at once, and some are left unread. A line is the longest turn of the loop in
milliseconds of processor time, which a busy machine does not change, and how long a bystander
waited, which it does. A turn above the rule is marked; a turn that grows with the state is too.
"""

from __future__ import annotations

import argparse
import functools
import re
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from . import grown_state, wire
from .brokers import Target
from .grown_state import PREPARATIONS, Case, Size, asked_at_once
from .loop_stalls import (
    AFTERWARDS_S,
    AT_ONCE,
    GOAL_MS,
    TRANSACTIONS,
    WITH_ACLS,
    Bystander,
    wait_for_coordinator,
)
from .results import HEADRACE
from .turn_watch import PREFIX, Turns

UNREAD = (1, 5, 20)
GROWS_BY = 1.5  # a turn that is so much longer with twice the state is not bounded
NOISE_MS = 10.0
UNREAD_FOR_S = 1.0
TIMED_OUT_WITHIN_S = 120.0


class Search:
    """One node with one size of state."""

    def __init__(self, port: int, turns: Turns, size: Size) -> None:
        self.port = port
        self.turns = turns
        self.size = size
        self.connection = wire.connect(port)
        self.connection.settimeout(600)
        self.bystander = Bystander(port)
        self.found: dict[str, tuple[float, float]] = {}  # longest turn, longest wait

    def ask(self, messages: ModuleType, version: int, request: Any) -> Any:
        return wire.ask(self.connection, messages, version, request)

    def measure(self, title: str, do: Callable[[], object]) -> None:
        self.turns.take()
        self.bystander.longest_ms()
        do()
        time.sleep(AFTERWARDS_S)
        self.found[title] = (self.turns.take()[0], self.bystander.longest_ms())

    def run(self) -> None:
        wait_for_coordinator(self.connection)
        wait_for_coordinator(self.connection, TRANSACTIONS)
        for _, title, prepare in PREPARATIONS:
            self.measure(title, functools.partial(prepare, self.ask, self.size))
        for case in grown_state.cases(self.ask, self.size):
            self.measure(case.title, functools.partial(asked_at_once, self.port, case, 1))
            if case.large_answer:
                title = f"{AT_ONCE} connections: {case.title}"
                self.measure(title, functools.partial(asked_at_once, self.port, case, AT_ONCE))
            if case.key == "all offsets":
                for count in UNREAD:
                    title = f"{count} leave it unread, another one asks: {case.title}"
                    self.measure(title, functools.partial(unread, self.port, case, count))
            if case.key == "end":
                self.measure("transactions time out together", self.time_out)

    def time_out(self) -> None:
        names = grown_state.open_transactions_that_time_out(self.ask, self.size)
        deadline = time.monotonic() + TIMED_OUT_WITHIN_S
        while grown_state.states_of(self.ask, names) != {"CompleteAbort"}:
            assert time.monotonic() < deadline, grown_state.states_of(self.ask, names)
            time.sleep(0.2)

    def end(self) -> None:
        self.bystander.end()
        self.connection.close()


def unread(port: int, case: Case, count: int) -> None:
    frame = case.frame()
    lazy: list[socket.socket] = []
    for _ in range(count):
        lazy.append(wire.connect(port))
        lazy[-1].sendall(frame)
    time.sleep(UNREAD_FOR_S)
    asked_at_once(port, case, 1)
    for connection in lazy:
        connection.close()


def search(folder: Path, times: int) -> dict[str, tuple[float, float]]:
    turns = Turns(folder / "turns")
    target = Target(HEADRACE, folder, prefix=(*PREFIX, str(folder / "turns")))
    target.settings |= WITH_ACLS
    with target.start() as broker:
        one = Search(broker.port, turns, Size().grown(times))
        try:
            one.run()
        finally:
            one.end()
        return one.found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grown_search")
    parser.add_argument("--times", nargs="+", type=int, default=[1, 2], help="sizes of the state")
    parser.add_argument("--folder", type=Path, help="where the data folder is made and removed")
    given = parser.parse_args()
    console = Console(width=130)
    console.print("longest turn in ms of processor time (bystander's longest wait, ms)")
    before: dict[str, float] = {}
    for times in given.times:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            found = search(Path(folder), times)
        console.print(f"state x {times}")
        now: dict[str, float] = {}
        # Titles say how much there is; without their numbers they are the same in each size.
        for title, (turn_ms, wait_ms) in found.items():
            key = re.sub(r"[\d,]+", "", title) if "leave" not in title else title.split(":")[0]
            grows = key in before and turn_ms > GROWS_BY * before[key] + NOISE_MS
            marks = [" ABOVE THE RULE"] * (turn_ms > GOAL_MS) + [" GROWS"] * grows
            line = f"{title:75} {turn_ms:7.0f} ({wait_ms:.0f}){''.join(marks)}"
            console.print(line, highlight=False)
            now[key] = turn_ms
        before = now


if __name__ == "__main__":
    main()
