"""Checks the offset index and the time index of a segment against the batches they point to.

Batches come in the order of the file, entries in the order of the index; both ascend, so one pass
over each is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

from headrace.node.storage.segments import offset_index, time_index
from headrace.node.storage.segments.batch_scan import DamagedRange
from headrace.operations.files.damage.finding import Finding, Kind, Remedy
from headrace.wire.protocol.record_batch import BatchHeader

Entry = tuple[int, int]
# Whether an entry is right about a batch; None: it is about a later one.
Judge = Callable[[Entry, int, BatchHeader], bool | None]

ADVICE = "a lookup notices a wrong position; `repair` rebuilds it"


def judge_offset(entry: Entry, base: int, batch: BatchHeader) -> bool | None:
    """An entry holds the last offset of a batch, and the position of that batch."""
    relative, position = entry
    if position >= batch.position + batch.size:
        return None
    return position == batch.position and base + relative == batch.last_offset


def judge_time(entry: Entry, base: int, batch: BatchHeader) -> bool | None:
    """An entry holds the largest timestamp so far, and an offset of the batch that has it."""
    timestamp, relative = entry
    if base + relative > batch.last_offset:
        return None
    return base + relative >= batch.base_offset and timestamp == batch.max_timestamp


class IndexCheck:
    """The check of one index, batch by batch of its segment."""

    __slots__ = ("path", "_base", "_judge", "_entries", "_next", "_wrong", "_first_wrong")

    def __init__(self, path: Path, base: int, entry: Struct, judge: Judge) -> None:
        self.path = path
        self._base = base
        self._judge = judge
        self._entries = list(_entries(path.read_bytes(), entry)) if path.exists() else []
        self._next = 0
        self._wrong = 0
        self._first_wrong = ""

    def meet(self, batch: BatchHeader) -> None:
        while self._next < len(self._entries):
            verdict = self._judge(self._entries[self._next], self._base, batch)
            if verdict is None and not self._leaps():
                return
            if not verdict:
                self._blame()
            self._next += 1

    def _leaps(self) -> bool:
        """Whether an entry after the next one points before it: then one entry is wrong, not
        many."""
        one, *more = self._entries[self._next : self._next + 2]
        return any(other[0] < one[0] or other[1] < one[1] for other in more)

    def pass_over(self, damage: DamagedRange) -> None:
        """Skip entries about a batch that cannot be read: they cannot be judged."""
        until = damage.next_offset
        while self._next < len(self._entries):
            _, second = self._entries[self._next]
            if self._judge is judge_offset and second >= damage.position + damage.size:
                return
            if self._judge is judge_time and until is not None and self._base + second >= until:
                return
            self._next += 1

    def findings(self) -> Iterator[Finding]:
        """The findings, at the end of the file."""
        while self._next < len(self._entries):
            self._blame()
            self._next += 1
        if self._wrong:
            count = f"{self._wrong} of {len(self._entries)} entries are wrong"
            what = f"{count}, the first is {self._first_wrong}"
            yield Finding(Kind.DAMAGED, self.path, what, remedies=(Remedy.REBUILD,), advice=ADVICE)

    def _blame(self) -> None:
        self._wrong += 1
        first, second = self._entries[self._next]
        self._first_wrong = self._first_wrong or f"number {self._next} ({first}, {second})"


def index_checks(log: Path, base: int) -> list[IndexCheck]:
    return [
        IndexCheck(log.with_suffix(".index"), base, offset_index.ENTRY, judge_offset),
        IndexCheck(log.with_suffix(".timeindex"), base, time_index.ENTRY, judge_time),
    ]


def _entries(data: bytes, entry: Struct) -> Iterator[Entry]:
    """The entries; an index in use is longer than its entries, the rest is zeros."""
    whole = len(data) - len(data) % entry.size
    for number, (first, second) in enumerate(entry.iter_unpack(data[:whole])):
        if number and first == 0 and second == 0:
            return
        if (first, second) != (0, 0):
            yield first, second
