"""What can go wrong with records that were promised, each by its name.

The checker knows what writers were told and what a reader saw, nothing of brokers or clients:

lost          acknowledged and not aborted, or part of a committed transaction, and not seen
duplicate     seen twice, written once
reordered     seen in another order within a partition than its writer wrote, or offsets go back
misplaced     seen in another partition or at another offset than was told
aborted read  seen in read_committed, though its transaction was aborted
torn          of a transaction's records some were seen in read_committed and others not
unknown       seen, though nobody wrote it

What was not acknowledged, or whose transaction's end nobody was told, may be seen or not; a
transaction then still as a whole. A record is known by its key and value, so each must be written
with a value of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

MOST_SHOWN = 5

Isolation = Literal["read_committed", "read_uncommitted"]
Identity = tuple[str | None, str]


@dataclass(slots=True, frozen=True)
class Written:
    """One record as its writer knows it; records of a writer are given in the order of writing."""

    partition: int
    value: str
    key: str | None = None
    offset: int | None = None  # what the broker told
    writer: str = ""
    transaction: str | None = None
    acknowledged: bool = True

    @property
    def identity(self) -> Identity:
        return self.key, self.value


@dataclass(slots=True, frozen=True)
class Seen:
    """One record as a reader got it."""

    partition: int
    value: str
    key: str | None = None
    offset: int | None = None
    transaction: str | None = None  # the writer's own name for it
    of: int = 1  # how many records that transaction has

    @property
    def identity(self) -> Identity:
        return self.key, self.value


@dataclass(slots=True, frozen=True)
class Anomaly:
    kind: str
    partition: int | None
    what: str

    def __str__(self) -> str:
        where = "" if self.partition is None else f" in partition {self.partition}"
        return f"{self.kind}{where}: {self.what}"


def find(
    written: Iterable[Written],
    seen: Iterable[Seen],
    *,
    aborted: Iterable[str] = (),
    committed: Iterable[str] = (),
    isolation: Isolation = "read_committed",
) -> list[Anomaly]:
    """`aborted` and `committed`: names of the transactions whose writers were told so."""
    written, seen = list(written), list(seen)
    told_committed, told_aborted = set(committed), set(aborted)
    known = {record.identity: record for record in written}
    assert len(known) == len(written), "the writers used one value twice"
    found = _lost(written, seen, told_committed)
    found += _duplicates(seen)
    found += _unknown_or_misplaced(known, seen)
    found += _reordered(written, seen) + _offsets_going_back(seen)
    named = {record.transaction for record in written}
    there = {record.transaction for record in seen}
    found += [Anomaly("lost", None, name) for name in sorted(told_committed - named - there)]
    if isolation == "read_committed":
        found += _in_transactions(seen, told_aborted)
    return found


def _lost(written: list[Written], seen: list[Seen], committed: set[str]) -> list[Anomaly]:
    there = {record.identity for record in seen}
    return [
        Anomaly("lost", record.partition, record.value)
        for record in written
        if record.identity not in there
        and (record.transaction in committed if record.transaction else record.acknowledged)
    ]


def _duplicates(seen: list[Seen]) -> list[Anomaly]:
    places: dict[Identity, list[Seen]] = defaultdict(list)
    for record in seen:
        places[record.identity].append(record)
    return [
        Anomaly("duplicate", some[0].partition, f"{some[0].value}, {len(some)} times{_at(some)}")
        for some in places.values()
        if len(some) > 1
    ]


def _at(records: list[Seen]) -> str:
    offsets = [str(record.offset) for record in records if record.offset is not None]
    return f" (offsets {', '.join(offsets)})" if offsets else ""


def _unknown_or_misplaced(known: dict[Identity, Written], seen: list[Seen]) -> list[Anomaly]:
    found: dict[Seen, Anomaly] = {}
    for record in seen:
        one = known.get(record.identity)
        if one is None:
            found[record] = Anomaly("unknown", record.partition, record.value)
        elif one.partition != record.partition:
            what = f"{record.value} was written to partition {one.partition}"
            found[record] = Anomaly("misplaced", record.partition, what)
        elif one.offset is not None and record.offset not in (None, one.offset):
            what = f"{record.value} at offset {record.offset}, told was {one.offset}"
            found[record] = Anomaly("misplaced", record.partition, what)
    return list(found.values())


def _reordered(written: list[Written], seen: list[Seen]) -> list[Anomaly]:
    """Each writer's records by themselves: nobody promises an order between writers."""
    place = {record.identity: number for number, record in enumerate(written)}
    last: dict[tuple[int, str], Identity] = {}
    found = []
    met: set[Identity] = set()
    for record in seen:
        number = place.get(record.identity)
        if number is None or record.identity in met:  # a duplicate is one anomaly, not two
            continue
        met.add(record.identity)
        if written[number].partition != record.partition:  # misplaced, and told so
            continue
        line = (record.partition, written[number].writer)
        before = last.get(line)
        if before is not None and place[before] > number:
            what = f"{before[1]} before {record.value}"
            found.append(Anomaly("reordered", record.partition, what))
        last[line] = record.identity
    return found


def _offsets_going_back(seen: list[Seen]) -> list[Anomaly]:
    last: dict[int, int] = {}
    found = []
    for record in seen:
        if record.offset is None:
            continue
        before = last.get(record.partition, -1)
        if record.offset <= before:
            what = f"offset {record.offset} after offset {before}"
            found.append(Anomaly("reordered", record.partition, what))
        last[record.partition] = record.offset
    return found


def _in_transactions(seen: list[Seen], aborted: set[str]) -> list[Anomaly]:
    parts: dict[str, set[Identity]] = defaultdict(set)
    sizes: dict[str, int] = {}
    for record in seen:
        if record.transaction is not None:
            parts[record.transaction].add(record.identity)
            sizes[record.transaction] = record.of
    found = [Anomaly("aborted read", None, name) for name in parts if name in aborted]
    return found + [
        Anomaly("torn", None, f"{len(some)} of {sizes[name]} records of {name}")
        for name, some in parts.items()
        if len(some) < sizes[name]
    ]


def told(anomalies: Sequence[Anomaly]) -> str:
    """The first of each kind, for the person who looks."""
    by_kind: dict[str, list[Anomaly]] = defaultdict(list)
    for anomaly in anomalies:
        by_kind[anomaly.kind].append(anomaly)
    lines = []
    for kind, some in by_kind.items():
        lines.append(f"{len(some)} {kind}:")
        lines += [f"  {anomaly}" for anomaly in some[:MOST_SHOWN]]
    return "\n".join(lines)
