"""The cluster at a glance. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.client.admin.cluster import ClusterDescription
from headrace.console.access.overview import OverviewFacts, TopicCounts
from headrace.console.history.lag_store import FINE, Throughput
from headrace.console.views import words
from headrace.console.views.chart import Chart, line_chart
from headrace.console.views.groups import state_in_words

MOST_LAGGING = 6
MOST_DEAD = 6


@dataclass(slots=True)
class LagRow:
    group: str
    state: str
    lag: int


@dataclass(slots=True)
class DueRow:
    topic: str
    id: str | None
    due_ms: int
    left: str


@dataclass(slots=True)
class ThroughputCharts:
    """Messages per second over the last hour; None where nothing was sampled yet."""

    written: Chart | None
    read: Chart | None


def throughput_charts(samples: Sequence[Throughput], now_s: int) -> ThroughputCharts:
    def chart(points: list[tuple[int, int]]) -> Chart | None:
        from_s = now_s - FINE.kept_s
        seen = [(max(at_s, from_s), value) for at_s, value in points]
        return line_chart(seen, from_s=from_s, to_s=now_s, slot_s=FINE.slot_s)

    return ThroughputCharts(
        chart([(each.at_s, round(each.written_per_s)) for each in samples]),
        chart([(each.at_s, round(each.read_per_s)) for each in samples]),
    )


@dataclass(slots=True)
class OverviewPage:
    cluster: ClusterDescription | None
    topics: TopicCounts | None
    groups: int | None
    lagging: list[LagRow] = field(default_factory=list)
    groups_behind: int = 0  # among the groups that were asked; `lagging` has the first of them
    letters: int = 0
    groups_not_asked: int = 0
    dead: list[tuple[str, int]] = field(default_factory=list)
    takes_delayed: bool = False
    waiting: int = 0
    due_next_minute: int = 0
    due: list[DueRow] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether the cluster has no topics yet."""
        return self.topics is not None and self.topics.topics == 0

    @property
    def health(self) -> str:
        """Returns one line about the cluster's health; empty if the cluster could not be asked."""
        if self.cluster is None or self.topics is None:
            return ""
        counted = words.count
        return (
            f"{counted(len(self.cluster.brokers), 'broker')} up, "
            f"{counted(self.topics.under_replicated, 'under-replicated partition')}, "
            f"{counted(self.topics.without_leader, 'partition')} without a leader, "
            f"{counted(self.groups_behind, 'group')} behind, {counted(self.letters, 'dead letter')}"
        )

    @property
    def is_healthy(self) -> bool:
        """Returns whether all is well. Missing replicas always need action; lag and dead letters
        only sometimes."""
        found = self.topics
        return found is not None and not found.under_replicated and not found.without_leader


def overview_page(facts: OverviewFacts) -> OverviewPage:
    groups = facts.groups.answer
    page = OverviewPage(
        facts.cluster.answer, facts.topics.answer, None if groups is None else len(groups[0])
    )
    parts = (facts.cluster, facts.topics, facts.groups, facts.delayed)
    page.missing = list(dict.fromkeys(each.missing for each in parts if each.missing))
    if groups is not None:
        _, looked = groups
        page.groups_not_asked = looked.not_asked
        page.missing += [looked.missing] if looked.missing else []
        behind = [
            LagRow(group.group, state_in_words(group.state), group.lag.lag)
            for group in looked.groups
            if group.lag is not None and group.lag.lag > 0
        ]
        page.groups_behind, page.lagging = len(behind), behind[:MOST_LAGGING]
    if page.topics is not None:
        most = sorted(page.topics.dead.items(), key=lambda each: (-each[1], each[0]))
        page.dead = [each for each in most if each[1]][:MOST_DEAD]
        page.letters = sum(page.topics.dead.values())
    pending = facts.delayed.answer
    page.takes_delayed = pending is not None or bool(facts.delayed.missing)
    if pending is not None:
        page.waiting, page.due_next_minute = pending.waiting, pending.due_next_minute
        page.due = [_due(row, pending.now_ms) for row in pending.soonest]
    return page


def _due(row: dict[str, object], now_ms: int) -> DueRow:
    due_ms, id = int(str(row["due_ms"])), row["id"]
    return DueRow(
        str(row["topic"]), None if id is None else str(id), due_ms, time_left(due_ms, now_ms)
    )


def time_left(due_ms: int, now_ms: int) -> str:
    left_ms = due_ms - now_ms
    return f"{words.lasting(-left_ms)} late" if left_ms < 0 else f"in {words.lasting(left_ms)}"
