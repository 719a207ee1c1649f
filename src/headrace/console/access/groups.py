"""Questions about groups: the list a page at a time, one group, and putting it elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.client.admin.groups import (
    GroupDescription,
    Groups,
    GroupSummary,
    Move,
    Place,
    no_such_group,
)
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.console.access.group_lag import Looked, look_at

ON_ONE_PAGE = 25

BEGINNING, END, OFFSET, TIME, SHIFT = "beginning", "end", "offset", "time", "shift"


@dataclass(slots=True)
class GroupList:
    groups: list[GroupSummary] = field(default_factory=list)
    looked: Looked = field(default_factory=Looked)  # at those that are shown
    matching: int = 0
    there: int = 0
    states: list[str] = field(default_factory=list)
    missing: str = ""  # whose groups are not listed


def list_groups(connection: ClientSettings, contains: str, state: str, page: int) -> GroupList:
    groups = Groups(connection)
    everyone, failure = groups.of_those_who_answer()
    matching = [
        each
        for each in everyone
        if contains.lower() in each.group.lower() and state in ("", each.state)
    ]
    shown = matching[page * ON_ONE_PAGE : (page + 1) * ON_ONE_PAGE]
    looked = look_at(connection, groups, shown, memberships=[each.group for each in shown])
    states = sorted({each.state for each in everyone})
    missing = "" if failure is None else f"Groups of a broker are missing: {failure}"
    return GroupList(shown, looked, len(matching), len(everyone), states, missing)


def one_group(connection: ClientSettings, name: str) -> GroupDescription:
    return Groups(connection).describe([name])[0]


@dataclass(slots=True)
class Reset:
    """Where a group shall go: in all topics that it has committed in, or in one."""

    group: str
    way: str  # BEGINNING and its like
    number: int = 0  # an offset, a moment in ms, or records to go on
    topic: str | None = None


def plan_reset(connection: ClientSettings, reset: Reset) -> list[Move]:
    """The plan; nothing is changed."""
    groups = Groups(connection)
    groups.require_inactive(reset.group)
    return groups.plan(reset.group, _targets(groups, reset))


def perform_reset(connection: ClientSettings, reset: Reset) -> list[Move]:
    groups = Groups(connection)
    moves = groups.plan(reset.group, _targets(groups, reset))
    groups.move(reset.group, moves)
    return moves


def _targets(groups: Groups, reset: Reset) -> dict[Place, int]:
    places = _places(groups, reset)
    if reset.way == BEGINNING:
        return groups.beginnings(places)
    if reset.way == END:
        return groups.ends(places)
    if reset.way == OFFSET:
        return dict.fromkeys(places, reset.number)
    if reset.way == TIME:
        return groups.at_time(places, reset.number)
    committed = groups.committed(reset.group)
    for topic, partition in places:
        if (topic, partition) not in committed:
            raise ClientError(f"Group {reset.group} has committed nothing in {topic}-{partition}.")
    return {place: committed[place] + reset.number for place in places}


def _places(groups: Groups, reset: Reset) -> list[Place]:
    if reset.topic is not None:
        return groups.partitions_of(reset.topic)
    found = sorted(groups.committed(reset.group))
    if not found and not groups.is_there(reset.group):
        raise no_such_group(reset.group)
    if not found:
        raise ClientError(f"Group {reset.group} has committed nothing: choose a topic.")
    return found


def delete_group(connection: ClientSettings, name: str) -> None:
    Groups(connection).delete(name)
