"""A group's backlog for people: how far, why, what helps, and the command lines. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.console.access.backlog import BacklogLook, GoingBack
from headrace.console.views.commands import Commands
from headrace.services.backlog.lag import GroupLag
from headrace.services.backlog.parking import ParkPlan
from headrace.services.backlog.widening import WidenPlan
from headrace.services.replay.group_moves import GroupPlan, UndoPlan

MOST_ROWS = 50


@dataclass(slots=True)
class Row:
    cells: list[object]


@dataclass(slots=True)
class PlanTable:
    """A dry run: what would happen, as a table, with the command line that does it."""

    columns: list[str]
    rows: list[Row]
    notes: list[str]
    command: str
    left_out: int = 0
    form: dict[str, str] = field(default_factory=dict)  # of a plan that the console executes


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def caught_up(lag: GroupLag) -> str:
    if lag.lag == 0:
        return "now"
    needed = lag.caught_up_in_s
    return "never, at these rates" if needed is None else f"in about {duration(needed)}"


def topics_of(look: BacklogLook) -> list[str]:
    return sorted({one.topic for one in look.lag.partitions})


def widening_table(plan: WidenPlan, times: int, commands: Commands) -> PlanTable:
    words = ["backlog", "widen", plan.topic, "--group", plan.group, "--times", str(times)]
    notes = [
        f"Up to {plan.lag:,} records go through {plan.wide_topic} with {plan.wide_partitions:,} "
        f"partitions instead of {plan.partitions:,}. It runs until the group is handed back."
    ]
    if plan.entry is not None:
        notes.append(f"It began already: {plan.entry.copied:,} records are forwarded.")
    notes += _left_alone(plan.topic, plan.group, plan.left_alone)
    return _spans_table(plan.spans, notes, commands.headrace(*words, "--execute"))


def parking_table(plan: ParkPlan, commands: Commands) -> PlanTable:
    words = ["backlog", "park", plan.topic, "--group", plan.group, "--to", "parked"]
    notes = [
        f"Up to {plan.most:,} records are copied into the folder parked (or a database: "
        "--to postgresql://...), and the group goes on behind them."
    ]
    if plan.members:
        notes.append("The group reads now: its members must stop for a moment at the end.")
    notes += _left_alone(plan.topic, plan.group, plan.left_alone)
    return _spans_table(plan.spans, notes, commands.headrace(*words, "--execute"))


def _left_alone(topic: str, group: str, partitions: list[int]) -> list[str]:
    return [f"{topic}-{p} is left alone: {group} has committed nothing there." for p in partitions]


def _spans_table(spans: dict[int, tuple[int, int]], notes: list[str], command: str) -> PlanTable:
    rows = [Row([p, first, end, end - first]) for p, (first, end) in sorted(spans.items())]
    return PlanTable(
        ["Partition", "From", "To", "Offsets"],
        rows[:MOST_ROWS],
        notes,
        command,
        max(0, len(rows) - MOST_ROWS),
    )


def going_back_table(plan: GroupPlan, asked: GoingBack, commands: Commands) -> PlanTable:
    rows = [
        Row([each.partition, each.current, each.target, each.again, each.why_not or None])
        for each in plan.partitions
    ]
    notes = [f"At most {plan.again:,} records are read again. An app with once= skips them."]
    if plan.is_active:
        notes.append("The group has members now: stop them first.")
    return PlanTable(
        ["Partition", "Now", "New", "Again", "Stays because"],
        rows[:MOST_ROWS],
        notes,
        going_back_command(asked, commands),
        max(0, len(rows) - MOST_ROWS),
        form={} if plan.is_active or not plan.moves else {"action": "/groups/replay"},
    )


def going_back_command(asked: GoingBack, commands: Commands) -> str:
    words = ["replay", "group", asked.group, "--topic", asked.topic]
    if asked.since_ms is not None:
        words += ["--since", str(asked.since_ms)]
    if asked.from_offset is not None:
        words += ["--from-offset", str(asked.from_offset)]
    return commands.headrace(*words, "--execute")


def undo_table(plan: UndoPlan, commands: Commands) -> PlanTable:
    rows = [
        Row([each.topic, each.partition, each.current, each.target, each.why_not or None])
        for each in plan.partitions
    ]
    entry = plan.entry
    return PlanTable(
        ["Topic", "Partition", "Now", "New", "Stays because"],
        rows[:MOST_ROWS],
        [f"{entry.action} by {entry.by}. {entry.reason}".rstrip()],
        commands.headrace("replay", "undo", entry.group, "--execute"),
        max(0, len(rows) - MOST_ROWS),
        form={"action": "/groups/replay/undo"} if plan.moves else {},
    )
