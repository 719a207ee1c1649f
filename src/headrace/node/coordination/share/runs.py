"""Runs of offsets with one delivery state: a window of a log, in order, without holes.

A share partition keeps its window as runs, not as records: a batch of 500 records that one member
holds is one run. `split` makes a boundary, `merge` removes boundaries between equal runs. Knows no
rules: `share_partition.py` decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter


class DeliveryState(IntEnum):
    """The numbers are those of the records and requests of Kafka 4.3; ARCHIVING is that of
    KIP-1191, which 4.3 does not have."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3  # given up; its dead letter is not stored yet
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        # Looked up in a tuple it makes an acknowledgement half as fast.
        return self >= 2 and self != 3


NO_MEMBER = ""
NEVER_MS = 1 << 62


@dataclass(slots=True)
class DeliveryRun:
    first: int
    last: int  # inclusive
    state: DeliveryState = DeliveryState.AVAILABLE
    deliveries: int = 0  # how often its records were acquired
    member: str = NO_MEMBER  # holds the acquisition lock
    lock_until_ms: int = NEVER_MS
    # The state that it gets from a write which is under way; None: no write is under way.
    becomes: DeliveryState | None = None
    waits_until_ms: int = 0  # not acquired before; 0: it does not wait

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def can_be_acquired(self) -> bool:
        return (
            self.state is DeliveryState.AVAILABLE
            and self.becomes is None
            and not self.waits_until_ms
        )

    def is_held_by(self, member: str) -> bool:
        return (
            self.state is DeliveryState.ACQUIRED and self.becomes is None and self.member == member
        )

    def goes_on_with(self, other: DeliveryRun) -> bool:
        """Returns whether `other`, which follows, could be a part of this run."""
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.member == other.member
            and self.lock_until_ms == other.lock_until_ms
            and self.becomes is other.becomes
            and self.waits_until_ms == other.waits_until_ms
        )


_first_of = attrgetter("first")


@dataclass(slots=True)
class DeliveryWindow:
    """The runs from `start` to `end` (exclusive). Invariant: each run begins where the one before
    ends, the first at `start`, and the last ends before `end`."""

    start: int
    end: int = field(init=False)
    runs: list[DeliveryRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.end = self.start

    def append(self, run: DeliveryRun) -> None:
        assert run.first == self.end and run.last >= run.first, "the window has no holes"
        self.runs.append(run)
        self.end = run.last + 1

    def between(self, first: int, last: int) -> Iterator[DeliveryRun]:
        """Yields the runs that hold these offsets, cut to them; skips offsets outside the
        window."""
        first, last = max(first, self.start), min(last, self.end - 1)
        if first > last:
            return
        at = self._split(first)
        self._split(last + 1)
        while at < len(self.runs) and self.runs[at].first <= last:
            yield self.runs[at]
            at += 1

    def whole_between(self, first: int, last: int) -> Iterator[DeliveryRun]:
        """Yields the runs that hold one of these offsets, uncut; changes nothing."""
        at = max(bisect_right(self.runs, first, key=_first_of) - 1, 0)
        for run in self.runs[at:]:
            if run.first > last:
                return
            if run.last >= first:
                yield run

    def split(self, offset: int) -> None:
        """Make a boundary before this offset."""
        if self.start < offset < self.end:
            self._split(offset)

    def _split(self, offset: int) -> int:
        """Returns the index of the run that begins at `offset`, after a split if necessary."""
        if offset >= self.end:
            return len(self.runs)
        at = bisect_right(self.runs, offset, key=_first_of) - 1
        run = self.runs[at]
        if run.first == offset:
            return at
        rest = DeliveryRun(
            offset,
            run.last,
            run.state,
            run.deliveries,
            run.member,
            run.lock_until_ms,
            run.becomes,
            run.waits_until_ms,
        )
        run.last = offset - 1
        self.runs.insert(at + 1, rest)
        return at + 1

    def merge(self) -> None:
        merged: list[DeliveryRun] = []
        for run in self.runs:
            if merged and merged[-1].goes_on_with(run):
                merged[-1].last = run.last
            else:
                merged.append(run)
        self.runs = merged

    def drop_before(self, offset: int) -> None:
        """Remove everything before `offset`; beyond the end the window is empty and begins
        there."""
        self.split(offset)
        self.runs = [run for run in self.runs if run.first >= offset]
        self.start = max(self.start, offset)
        self.end = max(self.end, self.start)
