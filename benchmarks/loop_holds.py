"""`python -m benchmarks.loop_holds`: how long one turn holds Headrace's loop, in processor time.

The same requests as in `loop_stalls.py`, on a whole node in this process, without sockets: for each
the longest turn, what of it was garbage collection, and all turns together. Processor time does not
depend on what else the machine does, so this can be read on a busy one. Work of the other thread is
left out. `--quick`: fewer partitions, no requests of 4 MiB.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.node.process.garbage import THRESHOLDS, QuietCollection
from headrace.node.process.loop import SLICE_NS
from tests.unit.node.broker.groups.group_rig import GroupRig

from .large_requests import GROUP, Counts, LargeRequest, large_requests
from .loop_stalls import FULL, QUICK

clock = time.process_time


@dataclass(slots=True)
class Hold:
    longest_s: float = 0.0
    of_it_collection_s: float = 0.0
    all_s: float = 0.0


class Collections:
    """Seconds spent in garbage collection so far."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = clock()
        else:
            self.spent_s += clock() - self._began


def measure(rig: Any, request: LargeRequest, collections: Collections) -> Hold:
    hold = Hold()
    node, session = rig.node, rig.connect()

    def timed(do: Callable[..., Any], *arguments: Any) -> None:
        begin, collected = clock(), collections.spent_s
        do(*arguments)
        spent = clock() - begin
        hold.all_s += spent
        if spent > hold.longest_s:
            hold.longest_s = spent
            hold.of_it_collection_s = collections.spent_s - collected

    def turn() -> None:
        end = clock() + SLICE_NS / 1e9
        node.work(lambda: clock() >= end)
        node.purgatory.try_woken()
        node.end_turn()

    frame = bytearray(request.frame())
    timed(node.dispatch.feed, session, memoryview(frame), len(frame))
    while not session.outbox:
        timed(turn)
        if rig.background:
            work, done = rig.background.popleft()
            work()
            timed(done, None)
    session.outbox.clear()
    rig.until_idle()
    return hold


def main() -> None:
    counts: Counts = QUICK if "--quick" in sys.argv else FULL
    with tempfile.TemporaryDirectory() as folder:
        rig = GroupRig(Path(folder) / "data", open_files=5_000)
        rig.find(GROUP)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        collections = Collections()
        quiet = QuietCollection(lambda: rig.node.broker.partitions.count)
        console = Console(width=100)
        console.print(f"{'milliseconds of processor time':50} longest turn  of it gc      all")
        for request in large_requests(counts, small_only="--quick" in sys.argv):
            hold = measure(rig, request, collections)
            console.print(
                f"{request.title:50} {1e3 * hold.longest_s:12.0f} "
                f"{1e3 * hold.of_it_collection_s:9.0f} {1e3 * hold.all_s:8.0f}",
                highlight=False,
            )
            quiet.look(idle_ms=1_000)


if __name__ == "__main__":
    main()
