"""Makes free memory real before a load is measured that fills the page cache.

A virtual machine often gets its memory page by page, at the first touch, and gives free pages back
to its host after a while. The kernel's time for that is charged to whoever touches: on one such
machine 3 to 4.5 processor seconds per GB, where a page that was in use just before costs 0.6. A
broker takes a page of the page cache for every 4 KiB it is sent, so this alone was more than all
its own work. Pages that were just given back are the first to be handed out again.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

CHUNK = 256 << 20
LEFT_TO_OTHERS = 1 << 30


def free_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemFree:"))


def touch_memory(most_bytes: float) -> None:
    """Touch so much memory, or less when the machine has less free, and give it back."""
    page = os.sysconf("SC_PAGE_SIZE")
    marks = b"\1" * (CHUNK // page)
    held: list[mmap.mmap] = []
    while len(held) * CHUNK < most_bytes and free_bytes() > LEFT_TO_OTHERS + CHUNK:
        held.append(mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        held[-1][::page] = marks
    for memory in held:
        memory.close()
