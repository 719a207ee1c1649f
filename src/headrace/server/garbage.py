"""Runs full garbage collections while no request waits.

Python traverses all long-lived objects when they have grown by a quarter, also while requests wait:
100 to 140 ms on a node with 14,000 partitions. So after the number of partitions has changed by
many, the node looks at all of them in the next quiet moment and takes them out of later looks
(`gc.freeze`). Frozen objects are put back before, so that deleted partitions are found.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

# Generations: a look at the second holds the loop for about 25 ms, as it has at most 200,000
# objects; the third, of everything, comes after 50 million.
THRESHOLDS = (50_000, 4, 250)
LOOK_EVERY_MS = 1_000
QUIET_MS = 50
MANY_PARTITIONS = 1_000  # about 10 ms of a full collection


def collect_and_freeze() -> None:
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class QuietCollection:
    def __init__(
        self, partitions: Callable[[], int], collect: Callable[[], None] = collect_and_freeze
    ) -> None:
        self._partitions = partitions
        self._collect = collect
        self._collected_at = partitions()  # how many partitions there were

    def look(self, idle_ms: int) -> None:
        """Nobody has asked for anything for so long."""
        partitions = self._partitions()
        if idle_ms >= QUIET_MS and abs(partitions - self._collected_at) >= MANY_PARTITIONS:
            self._collected_at = partitions
            self._collect()
