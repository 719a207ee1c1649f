"""Parked records: a backlog in a database or a folder until there is time for it.

A parking is one run: the stretches of a topic that it took for a group. It counts from the moment
when the group was moved behind them, and no longer counts if that move is undone: only then a
parked record is one that the group has not read. A parking that was killed before it moved the
group has left records that are never brought back. Records stay until an operator removes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.client.errors import ClientError
from headrace.client.records import Record

Spans = dict[int, tuple[int, int]]  # first and end offset by partition
RecordId = tuple[int, int]  # partition and offset


class StoreFailed(ClientError):
    """The database or the file system refused, in its own words."""


@dataclass(slots=True)
class ParkedSpan:
    """The parked range of one partition, both ends included."""

    partition: int
    first: int
    last: int
    rows: int
    waiting: int  # not brought back yet


@dataclass(slots=True)
class ParkingRun:
    name: str
    spans: Spans
    moved: bool  # the group has committed behind them
    at_ms: int


@dataclass(slots=True)
class Owner:
    """The owner of the records: one group, and one topic, whose id distinguishes it from a later
    topic of the same name."""

    group: str
    topic: str
    topic_id: str


class ParkedStore(Protocol):
    """The interface of a place that keeps parked records, for one group and one topic."""

    def prepare(self) -> None:
        """Creates what is needed to write."""

    def begin(self, run: ParkingRun) -> None: ...

    def put(self, records: Sequence[Record]) -> None:
        """Writes all or none. A record that is there already is kept once, and waits again."""

    def finish(self, run: ParkingRun) -> None:
        """All is written for good. `run` has the stretches that count, which may be shorter."""

    def note_moved(self, name: str, *, moved: bool) -> None: ...

    def runs(self) -> list[ParkingRun]: ...

    def spans(self, of_run: str | None = None) -> list[ParkedSpan]:
        """Returns the spans of the runs that count, or of one of these runs."""

    def waiting(self, starts: dict[int, int]) -> Iterator[Record]:
        """Records of runs that count and were not brought back, from these offsets on; those of a
        partition in the order of their offsets."""

    def mark_brought_back(self, record_ids: Sequence[RecordId]) -> None: ...

    def is_prepared(self) -> bool:
        """Returns whether anything was ever parked there; creates nothing."""

    def close(self) -> None:
        """Closes what is open; an unfinished parking does not count."""


@dataclass(slots=True)
class Stretches:
    """Offsets of each partition as stretches that do not touch. Pure."""

    by_partition: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, spans: Sequence[Spans]) -> Stretches:
        found = cls()
        for span in spans:
            for partition, (first, end) in span.items():
                found.add(partition, first, end)
        return found

    def add(self, partition: int, first: int, end: int) -> None:
        if first >= end:
            return
        kept = []
        for other_first, other_end in self.by_partition.get(partition, []):
            if other_end < first or other_first > end:
                kept.append((other_first, other_end))
            else:
                first, end = min(first, other_first), max(end, other_end)
        self.by_partition[partition] = sorted([*kept, (first, end)])

    def holds(self, partition: int, offset: int) -> bool:
        return any(first <= offset < end for first, end in self.by_partition.get(partition, ()))
