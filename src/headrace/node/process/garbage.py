"""Keeps garbage collection out of the way of requests.

Python traverses all long-lived objects when they have grown by a quarter, also while requests wait:
100 to 430 ms on a node with 14,000 partitions. So after many partitions were added, the node
excludes all objects from later collections (`gc.freeze`) in the next quiet moment, which takes
milliseconds. After many were deleted, it includes them again and runs one full collection, so that
the deleted ones are found.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

# Generations, measured while 5,000 partitions are created, whose objects all stay: a look at the
# first two has at most 25,000 objects and holds the loop for about 12 ms (139 ms with the
# thresholds 50,000 and 4); the third, of everything, comes after 60 million.
THRESHOLDS = (5_000, 4, 2_500)
YOUNG = 1  # the first two generations
LOOK_EVERY_MS = 1_000
QUIET_MS = 50
MANY_PARTITIONS = 1_000  # about 10 ms of a full collection


def freeze() -> None:
    gc.collect(YOUNG)
    gc.freeze()


def collect_and_freeze() -> None:
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class QuietCollection:
    def __init__(
        self,
        partitions: Callable[[], int],
        freeze: Callable[[], None] = freeze,
        collect: Callable[[], None] = collect_and_freeze,
    ) -> None:
        self._partitions = partitions
        self._freeze = freeze
        self._collect = collect
        self._known = partitions()  # how many partitions there were at the last look or freeze

    def look(self, idle_ms: int) -> None:
        """Freeze or collect if many partitions were added or deleted, and no request came for
        `idle_ms`."""
        more = self._partitions() - self._known
        if idle_ms < QUIET_MS or abs(more) < MANY_PARTITIONS:
            return
        self._known += more
        if more > 0:
            self._freeze()
        else:
            self._collect()
