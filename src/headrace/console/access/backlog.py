"""Questions about a group's backlog, dry runs of what helps, going back and its undo.

Long work is planned here and done by a job (`jobs/backlog.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from headrace.app.names import retry_topic, wide_topic
from headrace.client.admin.groups import Groups
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.services.backlog.diagnosis import Finding
from headrace.services.backlog.expiry import Expiry, ExpiryPlan
from headrace.services.backlog.group_watch import Watching
from headrace.services.backlog.lag import GroupLag
from headrace.services.backlog.parking import Parking, ParkPlan
from headrace.services.backlog.widening import Widening, WidenPlan, WidenStatus
from headrace.services.replay.group_moves import (
    GroupMoves,
    GroupPlan,
    UndoPlan,
    targets_from,
)
from headrace.services.replay.journal import UNDER_WAY, CopyEntry, GroupEntry, read_journal
from headrace.services.replay.widenings import begun

# A page must not be waited for longer; `headrace backlog status` watches for 3 s.
WATCHED_S = 1.0
MOST_SHOWN = 20
# Records that are read to say where an abort would put the group.
MOST_READ_FOR_ABORT = 20_000
# `times` of a plan for one that began: its wide topic has its partitions.
ANY = 2


@dataclass(slots=True)
class BacklogLook:
    lag: GroupLag
    findings: list[Finding]
    copies: list[CopyEntry]  # that began for this group, the newest first
    moves: list[GroupEntry]
    widenings: list[Begun]  # that have not ended, wherever they began
    returns: list[CopyEntry]  # that bring records back and have not ended
    parked: set[str]  # topics of which the journal knows a parking


@dataclass(slots=True)
class Begun:
    """A widening that has not ended."""

    entry: CopyEntry
    plan: WidenPlan | None = None
    status: WidenStatus | None = None  # None: it can only be aborted
    problem: str = ""  # why nothing more is known about it

    @property
    def times(self) -> int | None:
        """The number of partitions of the wide topic, as a multiple of the topic's."""
        return None if self.plan is None else self.plan.wide_partitions // self.plan.partitions


@dataclass(slots=True)
class AbortPlan:
    plan: WidenPlan
    committed: dict[int, int]  # of the group in the source, from before the widening
    targets: dict[int, int] | None  # None: too many records to read them for a page
    members: int


@dataclass(slots=True)
class GoingBack:
    """The range that a group shall read again: from a time or from an offset."""

    group: str
    topic: str
    since_ms: int | None
    from_offset: int | None


def look_at_backlog(connection: ClientSettings, group: str) -> BacklogLook:
    [(lag, findings)] = Watching(connection).status([group], WATCHED_S)
    journal = read_journal(connection)
    topics = {one.topic for one in lag.partitions}
    targets = {name(topic, group) for topic in topics for name in (wide_topic, retry_topic)}
    copies = [entry for entry in journal.copies.values() if entry.to_topic in targets]
    moves = [entry for entry in journal.moves if entry.group == group]
    returns = [
        each for each in copies if each.name.startswith("bring-back/") and each.state == UNDER_WAY
    ]
    return BacklogLook(
        lag,
        findings,
        copies[: -MOST_SHOWN - 1 : -1],
        moves[: -MOST_SHOWN - 1 : -1],
        # Topics that this user may not see are left out of the group's topics here.
        look_at_widenings(connection, group, topics),
        returns,
        {topic for each in moves if each.parking for topic, _, _ in each.given} & topics,
    )


def look_at_widenings(connection: ClientSettings, group: str, topics: set[str]) -> list[Begun]:
    """The entries of these topics that have not ended."""
    found = begun(read_journal(connection), group)
    return [_look_at(connection, each, group) for each in found if each.topic in topics]


def _look_at(connection: ClientSettings, entry: CopyEntry, group: str) -> Begun:
    try:
        widening = Widening(connection)
        plan = widening.plan(entry.topic, group, ANY)
        return Begun(entry, plan, widening.look(plan))
    except ClientError as failure:
        return Begun(entry, problem=str(failure))


def topics_of_group(connection: ClientSettings, group: str) -> set[str]:
    """Returns the topics in which the group has committed and which this user may see; refuses a
    user who may not see the group."""
    [described] = Groups(connection).describe([group])
    return {one.topic for one in described.progress}


def plan_widening(connection: ClientSettings, group: str, topic: str, times: int) -> WidenPlan:
    return Widening(connection).plan(topic, group, times)


def plan_abort(connection: ClientSettings, group: str, topic: str) -> AbortPlan:
    widening = Widening(connection)
    plan = widening.plan(topic, group, ANY)
    if plan.entry is None:
        raise ClientError(f"No backlog of {topic} is being widened for {group}.")
    status = widening.look(plan)
    few = status is None or status.in_wide <= MOST_READ_FOR_ABORT
    [described] = Groups(connection).describe([group])
    committed = {
        one.partition: one.committed
        for one in described.progress
        if one.topic == topic and one.committed is not None
    }
    targets = widening.way_back(plan) if few else None
    return AbortPlan(plan, committed, targets, len(described.members))


def plan_expiry(
    connection: ClientSettings, group: str, topic: str, older_than_ms: int
) -> ExpiryPlan:
    now_ms = time.time_ns() // 1_000_000
    return Expiry(connection).plan(topic, group, older_than_ms=older_than_ms, now_ms=now_ms)


def plan_parking(connection: ClientSettings, group: str, topic: str) -> ParkPlan:
    return Parking(connection).plan(topic, group)


def plan_going_back(connection: ClientSettings, asked: GoingBack) -> GroupPlan:
    targets = targets_from(
        connection,
        [(asked.topic, [])],
        since_ms=asked.since_ms,
        from_offset=asked.from_offset,
    )
    return GroupMoves(connection).plan(asked.group, targets)


def perform_going_back(
    connection: ClientSettings, asked: GoingBack, by: str, reason: str
) -> GroupPlan:
    plan = plan_going_back(connection, asked)
    GroupMoves(connection).execute(plan, by=by, reason=reason)
    return plan


def plan_undo(connection: ClientSettings, group: str) -> UndoPlan:
    return GroupMoves(connection).undo_plan(group)


def perform_undo(connection: ClientSettings, group: str, by: str) -> UndoPlan:
    moves = GroupMoves(connection)
    plan = moves.undo_plan(group)
    moves.undo(plan, by=by)
    return plan
