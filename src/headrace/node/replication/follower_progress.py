"""A leader's knowledge of one follower, all of it from the follower's own fetches.

A fetch for an offset confirms that the follower has everything before it. A follower is caught up
while it has the leader's end, or had at one of its fetches the end that the leader had at the fetch
before, not longer ago than `replica.lag.time.max.ms`: so a follower that is always a few records
behind a busy leader counts as caught up, and one that makes no progress does not.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = -1
LONG_AGO_MS = -(1 << 62)


@dataclass(slots=True)
class FollowerProgress:
    end_offset: int = UNKNOWN  # it has everything before; UNKNOWN until it fetches from this leader
    start_offset: int = UNKNOWN
    broker_epoch: int | None = None  # of its last fetch; None until there is one
    fetched_at_ms: int = LONG_AGO_MS
    leader_end_offset: int = UNKNOWN  # of the leader, when the follower fetched last
    caught_up_at_ms: int = LONG_AGO_MS  # the last moment at which it had all; drives the ISR

    def fetched(
        self,
        offset: int,
        *,
        start_offset: int,
        broker_epoch: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        # The read for this fetch has refused an offset behind the end.
        assert offset <= leader_end_offset, "a follower has no more than its leader"
        # The second case keeps a busy partition in sync: the follower had everything that existed
        # at its previous fetch, so it was caught up then, although new records have been appended
        # since.
        if offset >= leader_end_offset:
            self.caught_up_at_ms = max(self.caught_up_at_ms, now_ms)
        elif offset >= self.leader_end_offset:
            self.caught_up_at_ms = max(self.caught_up_at_ms, self.fetched_at_ms)
        self.end_offset = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self.fetched_at_ms = now_ms
        self.leader_end_offset = max(leader_end_offset, self.leader_end_offset)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        if self.end_offset == leader_end_offset:
            return True
        return now_ms - self.caught_up_at_ms <= lag_max_ms

    def begin_epoch(self, leader_end_offset: int, now_ms: int, *, in_sync: bool) -> None:
        """The same leader begins a new epoch. A follower in the ISR gets time to fetch; one outside
        the ISR must not hold back the high watermark."""
        self.leader_end_offset = leader_end_offset
        self.fetched_at_ms = now_ms if in_sync else LONG_AGO_MS
        self.caught_up_at_ms = now_ms if in_sync else LONG_AGO_MS


def at_the_beginning(now_ms: int, *, in_sync: bool) -> FollowerProgress:
    """Returns the progress of a follower that has not fetched from this leader yet."""
    return FollowerProgress(caught_up_at_ms=now_ms if in_sync else LONG_AGO_MS)
