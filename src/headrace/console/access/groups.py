"""Questions about groups: the list a page at a time, and one group."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.client.admin.groups import GroupDescription, Groups, GroupSummary
from headrace.client.connection import ClientSettings
from headrace.operations.group_lags import Looked, look_at

ON_ONE_PAGE = 25


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


def delete_group(connection: ClientSettings, name: str) -> None:
    Groups(connection).delete(name)
