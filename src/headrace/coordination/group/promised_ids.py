"""Member ids that were given out and not used yet: only so many are kept.

A new member of the classic protocol is told its id first and joins with it then, milliseconds
later. Whoever asks for ids and never comes back (a client that makes up group names, say) would
leave a group behind for each, until its session is over: up to half an hour. So the oldest ids are
forgotten early when there are many; who comes late with one gets UNKNOWN_MEMBER_ID and, as any
client does then, asks for another.
"""

from __future__ import annotations

from typing import Any

from headrace.coordination.deadlines import Deadlines

# Of one shard. About 1 KB each where each is of a group of its own: 50 MB in all 50 shards.
MOST_PROMISED = 1_000


class PromisedIds:
    __slots__ = ("_deadlines", "_promised")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._promised: dict[Any, bool] = {}  # keys of their deadlines; in order

    def add(self, key: Any, until_ms: int, now_ms: int) -> None:
        """It is kept until then, or until there are too many."""
        self._deadlines.set(key, until_ms)
        self._promised[key] = True
        if len(self._promised) > MOST_PROMISED:
            oldest = next(iter(self._promised))
            del self._promised[oldest]
            self._deadlines.set(oldest, now_ms)

    def used(self, key: Any) -> None:
        """Its session is a member's from now on, or over."""
        self._promised.pop(key, None)
