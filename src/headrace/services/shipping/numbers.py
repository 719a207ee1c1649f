"""Two readings of a machine become the numbers of a moment. Pure.

Most counters of a kernel only grow; people want them by the second. A counter that became smaller
was restarted, and gives no number for that step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.wire.contract.metrics import series


@dataclass(slots=True)
class Reading:
    """The numbers of one moment. `counters` grow, `gauges` do not; names are those of series.
    `busy` and `total` are seconds of all processors; `processes` are seconds of each one, by name
    and number; `unread` says which parts of the machine could not be read, and why."""

    at_s: float
    gauges: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    total_s: float = 0.0
    processes: dict[tuple[str, int], float] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def numbers(before: Reading, now: Reading) -> dict[str, float]:
    """Returns the numbers of `now`; rates are over the time since `before`."""
    found = dict(now.gauges)
    seconds = now.at_s - before.at_s
    if seconds > 0:
        found.update(_rates(before, now, seconds))
        found.update(_of_processes(before, now, seconds))
    total_s = now.total_s - before.total_s
    if total_s > 0:
        for name, spent in now.busy.items():
            share = (spent - before.busy.get(name, 0.0)) / total_s
            found[name] = round(100 * min(1.0, max(0.0, share)), 2)
    return found


def _rates(before: Reading, now: Reading, seconds: float) -> Iterator[tuple[str, float]]:
    for name, value in now.counters.items():
        grown = value - before.counters.get(name, value)
        if name in before.counters and grown >= 0:
            yield name, round(grown / seconds, 3)


def _of_processes(before: Reading, now: Reading, seconds: float) -> Iterator[tuple[str, float]]:
    spent: dict[str, float] = {}
    for (name, number), processor_s in now.processes.items():
        earlier_s = before.processes.get((name, number), processor_s)
        spent[name] = spent.get(name, 0.0) + max(0.0, processor_s - earlier_s)
    for name, processor_s in spent.items():
        label = series("process_cpu_percent", {"process": name})
        yield label, round(100 * processor_s / seconds, 2)
