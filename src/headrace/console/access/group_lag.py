"""How far groups are behind, of a bounded number of them: each costs a few requests."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.groups import GroupDescription, Groups, GroupSummary

# A page must not ask a cluster with 10,000 groups 40,000 questions.
MOST_GROUPS = 50
LONGEST_S = 0.6


@dataclass(slots=True)
class Looked:
    """Descriptions of those that were asked about in time."""

    groups: list[GroupDescription] = field(default_factory=list)
    asked: int = 0
    there: int = 0

    @property
    def not_asked(self) -> int:
        return self.there - self.asked


def described(
    groups: Groups, names: Iterable[str], *, most: int = MOST_GROUPS, longest_s: float = LONGEST_S
) -> Looked:
    names = list(names)
    looked = Looked(there=len(names))
    deadline = time.monotonic() + longest_s
    for name in names[:most]:
        if looked.asked and time.monotonic() > deadline:
            break
        looked.asked += 1
        try:
            looked.groups += groups.describe([name])
        except ClientError:  # it has gone since, or may not be described
            continue
    return looked


def groups_of_topic(connection: Connection, topic: str) -> Looked:
    """Groups that have committed in a topic, or read it now."""
    groups = Groups(connection)
    looked = described(groups, [each.group for each in _likeliest_first(groups.all())])
    looked.groups = [
        group for group in looked.groups if any(one.topic == topic for one in group.progress)
    ]
    return looked


def lagging_groups(connection: Connection) -> tuple[list[GroupSummary], Looked]:
    """All groups, and those of them that were looked at, the furthest behind first."""
    groups = Groups(connection)
    everyone = groups.all()
    looked = described(groups, [each.group for each in _likeliest_first(everyone)])
    looked.groups.sort(key=lambda group: (-group.lag, group.group))
    return everyone, looked


def _likeliest_first(groups: list[GroupSummary]) -> list[GroupSummary]:
    """Groups with members matter more than those that were left behind."""
    return sorted(groups, key=lambda each: (each.state == "Empty", each.group))
