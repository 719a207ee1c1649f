"""`python -m benchmarks.turn_watch FILE headrace start ...`: a node whose turns are measured.

FILE holds two numbers that another process reads and sets back while the node runs: the longest
turn of the loop since then, in seconds of the loop's own processor time, and how long all turns
took. Processor time does not depend on what else the machine does. Garbage collection on the loop's
thread is included, work of other threads is not.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

from headrace.node.process.loop import Loop

NUMBERS = struct.Struct("dd")
PREFIX = (sys.executable, "-m", "benchmarks.turn_watch")


class Turns:
    """The numbers of a node, as the process that started it sees them."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(NUMBERS.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), NUMBERS.size)

    def take(self) -> tuple[float, float]:
        """Milliseconds: the longest turn since the last call, and all of them."""
        longest_s, all_s = NUMBERS.unpack_from(self._shared)
        NUMBERS.pack_into(self._shared, 0, 0.0, 0.0)
        return 1e3 * longest_s, 1e3 * all_s


def watch(path: Path) -> None:
    """Measure all turns of this process from now on."""
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), NUMBERS.size)
    turn, clock = Loop.turn, time.thread_time

    def measured(self: Loop, wait_ms: int) -> None:
        begin = clock()
        turn(self, wait_ms)
        spent = clock() - begin
        longest_s, all_s = NUMBERS.unpack_from(shared)
        NUMBERS.pack_into(shared, 0, max(longest_s, spent), all_s + spent)

    Loop.turn = measured  # type: ignore[method-assign]


def main() -> None:
    watch(Path(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
