"""Questions about a group's backlog, and having it read again.

What takes long or needs consumers to be started and stopped (widening, parking) is planned here and
done on the command line; going back and its undo are one step each and are done here.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.app.names import retry_topic, wide_topic
from headrace.client.connection import Connection
from headrace.services.backlog.diagnosis import Finding
from headrace.services.backlog.lag import GroupLag
from headrace.services.backlog.parking import Parking, ParkPlan
from headrace.services.backlog.watching import Watching
from headrace.services.backlog.widening import Widening, WidenPlan
from headrace.services.replay.group_moves import (
    GroupMoves,
    GroupPlan,
    UndoPlan,
    targets_from,
)
from headrace.services.replay.journal import CopyEntry, GroupEntry, read_journal

# A page must not be waited for longer; `headrace backlog status` watches for 3 s.
WATCHED_S = 1.0
MOST_SHOWN = 20


@dataclass(slots=True)
class BacklogLook:
    lag: GroupLag
    findings: list[Finding]
    copies: list[CopyEntry]  # that began for this group, the newest first
    moves: list[GroupEntry]


@dataclass(slots=True)
class GoingBack:
    """What a group shall read again: by a moment or by an offset."""

    group: str
    topic: str
    since_ms: int | None
    from_offset: int | None


def look_at_backlog(connection: Connection, group: str) -> BacklogLook:
    [(lag, findings)] = Watching(connection).status([group], WATCHED_S)
    journal = read_journal(connection)
    topics = {one.topic for one in lag.partitions}
    targets = {name(topic, group) for topic in topics for name in (wide_topic, retry_topic)}
    copies = [entry for entry in journal.copies.values() if entry.to_topic in targets]
    moves = [entry for entry in journal.moves if entry.group == group]
    return BacklogLook(lag, findings, copies[: -MOST_SHOWN - 1 : -1], moves[: -MOST_SHOWN - 1 : -1])


def plan_widening(connection: Connection, group: str, topic: str, times: int) -> WidenPlan:
    return Widening(connection).plan(topic, group, times)


def plan_parking(connection: Connection, group: str, topic: str) -> ParkPlan:
    return Parking(connection).plan(topic, group)


def plan_going_back(connection: Connection, asked: GoingBack) -> GroupPlan:
    targets = targets_from(
        connection,
        [(asked.topic, [])],
        since_ms=asked.since_ms,
        from_offset=asked.from_offset,
    )
    return GroupMoves(connection).plan(asked.group, targets)


def perform_going_back(connection: Connection, asked: GoingBack, by: str, reason: str) -> GroupPlan:
    plan = plan_going_back(connection, asked)
    GroupMoves(connection).execute(plan, by=by, reason=reason)
    return plan


def plan_undo(connection: Connection, group: str) -> UndoPlan:
    return GroupMoves(connection).undo_plan(group)


def perform_undo(connection: Connection, group: str, by: str) -> UndoPlan:
    moves = GroupMoves(connection)
    plan = moves.undo_plan(group)
    moves.undo(plan, by=by)
    return plan
