"""Member ids that were given out and not used yet: a bounded number is kept.

A new member of the classic protocol first gets its id and joins with it then, milliseconds later. A
client that asks for ids and never comes back (with invented group names, for example) would leave a
group for each, until its session ends: up to half an hour. So the oldest ids are dropped early when
there are many, or few with long names; a member that comes late with one gets UNKNOWN_MEMBER_ID
and, as any client does then, asks for another.
"""

from __future__ import annotations

from headrace.node.coordination.deadlines import Deadlines

# Ids in one shard. About 1 KB each if each has a group of its own: 50 MB in all 50 shards; and as
# much again for names, which clients may make 32 KB long.
MOST_PROMISED = 1_000
MOST_BYTES = 1 << 20

Key = tuple[str, str, str]  # of the deadline: its kind, the group, the member


class PromisedIds:
    __slots__ = ("_deadlines", "_promised", "_bytes")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._promised: dict[Key, int] = {}  # the length of their names; in order
        self._bytes = 0

    def add(self, key: Key, until_ms: int, now_ms: int) -> None:
        """Keep the id until then, or until there are too many."""
        self._deadlines.set(key, until_ms)
        self._promised[key] = size = sum(map(len, key))
        self._bytes += size
        while len(self._promised) > MOST_PROMISED or (
            self._bytes > MOST_BYTES and len(self._promised) > 1
        ):
            oldest = next(iter(self._promised))
            self.used(oldest)
            self._deadlines.set(oldest, now_ms)

    def used(self, key: Key) -> None:
        """The id is used: its deadline is that of a member from now on."""
        self._bytes -= self._promised.pop(key, 0)

    def given_back(self, key: Key) -> None:
        """The id will not be used."""
        self.used(key)
        self._deadlines.drop(key)
