"""Counts what a program has handled, and tells time, processor and memory at the end."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


class Tally:
    def __init__(self, count: int) -> None:
        self.count = count
        self.seen = 0
        self.quarter = count // 4
        self.quarter_mb = 0.0
        self.began = 0.0
        self.began_cpu = 0.0

    def one(self) -> bool:
        """True for the last record. Time runs from the first one."""
        if not self.seen:
            self.began, self.began_cpu = time.perf_counter(), time.process_time()
        self.seen += 1
        if self.seen == self.quarter:
            self.quarter_mb = resident_mb()
        return self.seen == self.count

    def report(self) -> None:
        report = {
            "seconds": time.perf_counter() - self.began,
            "cpu_s": time.process_time() - self.began_cpu,
            "quarter_mb": self.quarter_mb,
            "end_mb": resident_mb(),
        }
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()


def naps(longest_ms: float) -> random.Random:
    """Lengths of work: `uniform(0, longest)` from one seed."""
    return random.Random(7)
