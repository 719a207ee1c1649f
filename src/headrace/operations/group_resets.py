"""Moving a group to other offsets: the plan, which changes nothing, and its execution.

A group with active members is refused, because they would continue at their own positions. The
cluster keeps each new offset within the partition's log (`Move.wanted` is the requested one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.client.admin.groups import Groups, Move, Place, no_such_group
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError


class Way(StrEnum):
    """How the new offset of each partition is found; `Reset.number` is given for the last three."""

    BEGINNING = "beginning"
    END = "end"
    CURRENT = "current"  # the committed offset, or the end if there is none
    OFFSETS = "offsets"  # those of `Reset.offsets`
    OFFSET = "offset"
    TIME = "time"  # the first record of that time in ms or later
    SHIFT = "shift"  # this many records after the committed offset


@dataclass(slots=True)
class Reset:
    """A group, the new offsets, and the partitions; without topics all that it has committed in."""

    group: str
    way: Way
    number: int = 0
    topics: Sequence[tuple[str, Sequence[int]]] = ()  # no partitions: all of the topic
    offsets: Mapping[Place, int] = field(default_factory=dict)


@dataclass(slots=True)
class ResetPlan:
    moves: list[Move]
    is_new: bool  # the group does not exist yet: executing the plan creates it


class NothingCommitted(ClientError):
    """Without topics a reset is about committed offsets, and this group has none."""


def plan_reset(connection: ClientSettings, reset: Reset) -> ResetPlan:
    groups = Groups(connection)
    moves = _moves(groups, reset)
    return ResetPlan(moves, not groups.is_there(reset.group))


def perform_reset(connection: ClientSettings, reset: Reset) -> list[Move]:
    groups = Groups(connection)
    moves = _moves(groups, reset)
    groups.move(reset.group, moves)
    return moves


def _moves(groups: Groups, reset: Reset) -> list[Move]:
    groups.require_inactive(reset.group)
    if reset.way is Way.OFFSETS:
        return groups.plan(reset.group, reset.offsets)
    return groups.plan(reset.group, _targets(groups, reset, _places(groups, reset)))


def _places(groups: Groups, reset: Reset) -> list[Place]:
    if not reset.topics:
        found = sorted(groups.committed(reset.group))
        if not found and not groups.is_there(reset.group):
            raise no_such_group(reset.group)
        if not found:
            raise NothingCommitted(f"Group {reset.group} has committed nothing.")
        return found
    return groups.places_in(reset.topics)


def _targets(groups: Groups, reset: Reset, places: list[Place]) -> Mapping[Place, int]:
    match reset.way:
        case Way.BEGINNING:
            return groups.beginnings(places)
        case Way.END:
            return groups.ends(places)
        case Way.TIME:
            return groups.at_time(places, reset.number)
        case Way.OFFSET:
            return dict.fromkeys(places, reset.number)
    known = groups.committed(reset.group)
    committed = {place: known[place] for place in places if place in known}
    if reset.way is Way.CURRENT:
        return groups.ends(places) | committed
    for topic, partition in places:
        if (topic, partition) not in committed:
            raise ClientError(f"Group {reset.group} has committed nothing in {topic}-{partition}.")
    return {place: offset + reset.number for place, offset in committed.items()}
