"""A group's backlog for people: how far, why, what helps, and the dry runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.console.access.backlog import AbortPlan, BacklogLook, GoingBack
from headrace.console.access.parked import ReturnPlan
from headrace.console.views.backlog_commands import BacklogCommands, going_back_command
from headrace.console.views.commands import Commands
from headrace.console.views.words import counted
from headrace.services.backlog.expiry import ExpiryPlan
from headrace.services.backlog.lag import GroupLag
from headrace.services.backlog.parking import ParkPlan
from headrace.services.backlog.widening import WidenPlan
from headrace.services.replay.group_moves import GroupPlan, UndoPlan
from headrace.services.replay.selection import Selection
from headrace.wire.contract import durations

MOST_ROWS = 50
NO_DESTINATION = (
    "This console was started without a place to park: `headrace console --park-to FOLDER` or "
    "`--park-to sqlite:////folder/parked.db` gives it one. The command line parks without it."
)


@dataclass(slots=True)
class Row:
    cells: list[object]


@dataclass(slots=True)
class Form:
    """The form that starts a plan in the console."""

    action: str
    button: str
    asks_reason: bool = False


@dataclass(slots=True)
class PlanTable:
    """A dry run: what would happen, as a table, with the command line that does it."""

    columns: list[str]
    rows: list[Row]
    notes: list[str]
    command: str
    left_out: int = 0
    form: Form | None = None  # None: it cannot be done here, or not now


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def caught_up(lag: GroupLag) -> str:
    if lag.lag == 0:
        return "unknown" if lag.unknown else "now"
    needed = lag.caught_up_in_s
    return "never, at these rates" if needed is None else f"in about {duration(needed)}"


def topics_of(look: BacklogLook) -> list[str]:
    return sorted({one.topic for one in look.lag.partitions})


def widening_table(plan: WidenPlan, times: int, commands: BacklogCommands) -> PlanTable:
    notes = [
        f"Up to {counted(plan.lag, 'record')} go through {plan.wide_topic} with "
        f"{plan.wide_partitions:,} partitions instead of {plan.partitions:,}. It runs until the "
        "group is handed back."
    ]
    if plan.entry is not None:
        notes.append(f"It began already: {plan.entry.copied:,} records are forwarded.")
    if plan.is_lost:
        notes.append(f"{plan.wide_topic} was deleted: only an abort is left.")
    if plan.retries:
        notes.append(
            f"{counted(plan.retries, 'record')} that failed before wait for another try: they come "
            "after the widening, behind later records of their keys."
        )
    notes += _left_alone(plan.topic, plan.group, plan.left_alone)
    table = _spans_table(plan.spans, notes, commands.widen(plan.topic, plan.group, times))
    if not plan.is_lost:
        table.form = Form("/groups/widen", "Widen" if plan.entry is None else "Go on")
    return table


def abort_table(found: AbortPlan, commands: BacklogCommands) -> PlanTable:
    plan, targets = found.plan, found.targets
    assert plan.entry is not None, "one that began"
    notes = [
        f"The group goes back to {plan.topic}, to the first record of each partition that was not "
        f"handled, and {plan.wide_topic} is deleted. Nothing is lost; records behind it that were "
        "handled come again, under the same message id."
    ]
    if targets is None:
        notes.append("Where exactly is known when it is done: too many records would be read now.")
    if found.members:
        notes.append("The group has members now: stop them first.")
    rows = [
        Row([p, found.committed.get(p), at, "–" if targets is None else targets.get(p)])
        for p, at in sorted(plan.entry.next.items())
    ]
    return PlanTable(
        ["Partition", "Before the widening", "Forwarded up to", "Goes on at"],
        rows[:MOST_ROWS],
        notes,
        commands.abort(plan.topic, plan.group),
        max(0, len(rows) - MOST_ROWS),
        None if found.members else Form("/groups/widen/abort", "Abort the widening"),
    )


def parking_table(
    plan: ParkPlan, destination: str, why_not: str, commands: BacklogCommands
) -> PlanTable:
    """The table of a parking. `destination` is the place, without a password; with "" there is
    none, and `why_not` has the reason."""
    where = f"into {destination}" if destination else "into a folder or a database"
    most = counted(plan.most, "record")
    notes = [f"Up to {most} are copied {where}, and the group continues after them."]
    if plan.members:
        notes.append("The group reads now: its members must stop for a moment at the end.")
    if not destination:
        notes.append(why_not)
    notes += _left_alone(plan.topic, plan.group, plan.left_alone)
    table = _spans_table(plan.spans, notes, commands.park(plan.topic, plan.group, destination))
    if destination and plan.most:
        table.form = Form("/groups/park", "Park", asks_reason=True)
    return table


def return_table(
    plan: ReturnPlan, wanted: Selection, rate: int, destination: str, commands: BacklogCommands
) -> PlanTable:
    which = "" if wanted.takes_whole_spans else ", those of them that the conditions mean"
    notes = [
        f"{counted(plan.waiting, 'record')} wait in {destination}{which}. They go to group "
        f"{plan.group} alone, {rate:,} per second, each once."
    ]
    if plan.given_up:
        notes.append(
            f"{counted(plan.given_up, 'parking')} there ended before the group was moved, or was "
            "undone: the group reads those records in the topic."
        )
    rows = [
        Row([each.partition, each.first, each.last, each.rows, each.waiting]) for each in plan.spans
    ]
    return PlanTable(
        ["Partition", "First", "Last", "Parked", "Not yet brought back"],
        rows[:MOST_ROWS],
        notes,
        commands.bring_back(plan.topic, plan.group, wanted, rate, destination),
        max(0, len(rows) - MOST_ROWS),
        Form("/groups/bring-back", "Bring back") if plan.waiting else None,
    )


def expiry_table(plan: ExpiryPlan, commands: BacklogCommands) -> PlanTable:
    park, older_than = plan.park, durations.write(plan.older_than_ms)
    notes = [
        f"At most {counted(park.most, 'record')} older than {older_than} become dead letters of "
        f"{park.group}, and the group continues after them."
    ]
    notes += _left_alone(park.topic, park.group, park.left_alone)
    table = _spans_table(park.spans, notes, commands.expire(park.topic, park.group, older_than))
    if park.most:
        table.form = Form("/groups/expire", "Let them go")
    return table


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
        form=None
        if plan.is_active or not plan.moves
        else Form("/groups/replay", "Do it", asks_reason=True),
    )


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
        form=Form("/groups/replay/undo", "Do it") if plan.moves else None,
    )
