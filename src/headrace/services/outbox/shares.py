"""Which relay takes which shard: an even share for each, moved one by one and never torn away.

A shard belongs to the relay that has its lease, until the lease ends by the database's clock.
Leases keep relays from working on the same shard; Kafka ensures that nothing is sent twice, because
a new owner's producer fences the old one's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Lease:
    shard: int
    owner: str | None
    until_ms: int  # by the database's clock


def quota(relays: Collection[str], me: str, shards: int) -> int:
    """How many shards are mine: those that do not divide evenly go to the first names."""
    names = sorted({*relays, me})
    share, rest = divmod(shards, len(names))
    return share + (1 if names.index(me) < rest else 0)


def to_take(
    leases: Sequence[Lease], relays: Collection[str], me: str, running: Collection[int], now_ms: int
) -> list[int]:
    """Shards to ask for: as many as are missing of my quota. `running` are those I work on.

    A lease of mine without work is free for me: its thread gave up, or did not end in time.
    """
    free = [
        lease.shard
        for lease in leases
        if lease.shard not in running and (lease.owner in (None, me) or lease.until_ms <= now_ms)
    ]
    return free[: max(0, quota(relays, me, len(leases)) - len(running))]


def to_give(shards: int, relays: Collection[str], me: str, running: Collection[int]) -> list[int]:
    """Shards beyond my quota: others wait for them."""
    return sorted(running)[quota(relays, me, shards) :]


class Silence:
    """Which relays have written nothing new for too long, by the clock of the relay that watches.

    Every second, a living relay writes until when it is there. If the database's clock was set
    back, a dead relay seems to be there for hours.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._heard: dict[str, tuple[int, float]] = {}  # what, and since when

    def of(self, said: Mapping[str, int], now_s: float) -> list[str]:
        before = self._heard
        self._heard = {
            name: before[name] if name in before and before[name][0] == word else (word, now_s)
            for name, word in said.items()
        }
        return [n for n, (_, since_s) in self._heard.items() if now_s - since_s > self._longest_s]
