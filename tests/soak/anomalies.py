"""What can go wrong with records that were promised, each by its name.

The checker knows what was acknowledged and what a reader saw, nothing of brokers or clients:

lost          acknowledged, or part of a committed transaction, and not seen
duplicate     seen twice, written once
reordered     seen in another order within a partition than written
aborted read  seen, though its transaction was aborted
torn          of a transaction's records some were seen and others not
unknown       seen, though nobody wrote it
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_SHOWN = 5


@dataclass(slots=True, frozen=True)
class Seen:
    """One record as a reader got it."""

    partition: int
    value: str
    transaction: str | None = None  # the writer's own name for it
    of: int = 1  # how many records that transaction has


@dataclass(slots=True, frozen=True)
class Anomaly:
    kind: str
    partition: int | None
    what: str

    def __str__(self) -> str:
        where = "" if self.partition is None else f" in partition {self.partition}"
        return f"{self.kind}{where}: {self.what}"


def find(
    written: dict[int, Sequence[str]],
    seen: Iterable[Seen],
    *,
    aborted: Iterable[str] = (),
    committed: Iterable[str] = (),
) -> list[Anomaly]:
    """`written`: values by partition in the order in which they must be seen, each once."""
    seen = list(seen)
    by_partition: dict[int, list[str]] = defaultdict(list)
    for record in seen:
        by_partition[record.partition].append(record.value)
    found: list[Anomaly] = []
    for partition in sorted({*written, *by_partition}):
        found += _in_partition(partition, written.get(partition, ()), by_partition[partition])
    return found + _in_transactions(seen, set(aborted), set(committed))


def _in_partition(partition: int, written: Sequence[str], seen: list[str]) -> list[Anomaly]:
    counts = Counter(seen)
    expected = set(written)
    found = [Anomaly("lost", partition, value) for value in written if value not in counts]
    found += [
        Anomaly("duplicate", partition, f"{value}, {times} times")
        for value, times in counts.items()
        if times > 1
    ]
    found += [Anomaly("unknown", partition, value) for value in counts if value not in expected]
    place = {value: number for number, value in enumerate(written)}
    first_seen = [value for value in dict.fromkeys(seen) if value in place]
    found += [
        Anomaly("reordered", partition, f"{after} before {before}")
        for after, before in zip(first_seen, first_seen[1:], strict=False)
        if place[after] > place[before]
    ]
    return found


def _in_transactions(seen: list[Seen], aborted: set[str], committed: set[str]) -> list[Anomaly]:
    parts: Counter[str] = Counter()
    sizes: dict[str, int] = {}
    for record in seen:
        if record.transaction is not None:
            parts[record.transaction] += 1
            sizes[record.transaction] = record.of
    found = [Anomaly("aborted read", None, name) for name in parts if name in aborted]
    found += [
        Anomaly("torn", None, f"{count} of {sizes[name]} records of {name}")
        for name, count in parts.items()
        if count < sizes[name]
    ]
    return found + [Anomaly("lost", None, name) for name in sorted(committed - parts.keys())]


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
