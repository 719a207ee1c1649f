"""How far groups are behind, for a bounded number of groups, in few requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.client.admin.group_lags import GroupLag, GroupLags
from headrace.client.admin.groups import Groups, GroupSummary, Member
from headrace.client.connection import ClientSettings

# One answer about this many groups has about a megabyte; a page does not wait for more.
MOST_GROUPS = 2_000
# If the last sample shows the groups with the most lag, it is enough to ask for these again.
MOST_SAMPLED_GROUPS = 500
# Members are asked for group by group.
MOST_MEMBERSHIPS = 50


@dataclass(slots=True)
class LookedAt:
    """The state of one group; `lag` is None where it is unknown."""

    group: str
    state: str
    lag: GroupLag | None
    members: list[Member] | None = None


@dataclass(slots=True)
class Looked:
    groups: list[LookedAt] = field(default_factory=list)
    not_asked: int = 0
    missing: str = ""  # the broker's failure, if its groups are missing


def look_at(
    connection: ClientSettings,
    groups: Groups,
    chosen: list[GroupSummary],
    *,
    most: int = MOST_GROUPS,
    memberships: Iterable[str] = (),
    topic: str | None = None,
) -> Looked:
    """Members are asked for the groups in `memberships` only; with a `topic` only its lag
    counts."""
    asked = chosen[:most]
    with GroupLags(connection) as lags:
        found = lags.of((each.group for each in asked), topic=topic)
    members = groups.members_of(memberships)
    return Looked(
        [
            LookedAt(each.group, each.state, found.get(each.group), members.get(each.group))
            for each in asked
        ],
        len(chosen) - len(asked),
    )


def groups_of_topic(
    connection: ClientSettings, topic: str, sampled: Mapping[str, GroupLag] | None = None
) -> Looked:
    """Groups that have committed in a topic, or read it now. Groups of the last sample are asked
    first; the cluster decides which of them this user may see."""
    groups = Groups(connection)
    there = {name for name, lag in (sampled or {}).items() if topic in lag.topics}
    everyone = _likeliest_first(groups.of_those_who_answer()[0])
    everyone.sort(key=lambda each: (each.group not in there, each.group in (sampled or ())))
    most = max(MOST_SAMPLED_GROUPS, len(there)) if sampled else MOST_GROUPS
    active = [each.group for each in everyone if each.state != "Empty"][:MOST_MEMBERSHIPS]
    looked = look_at(
        connection, groups, everyone, most=min(most, MOST_GROUPS), memberships=active, topic=topic
    )
    looked.groups = [
        each
        for each in looked.groups
        if (each.lag is not None and topic in each.lag.topics)
        or any(place[0] == topic for one in each.members or () for place in one.assigned)
    ]
    return looked


def lagging_groups(
    connection: ClientSettings, sampled: Mapping[str, GroupLag] | None = None
) -> tuple[list[GroupSummary], Looked]:
    """All groups, and the lags of some of them, the largest first."""
    groups = Groups(connection)
    everyone, failure = groups.of_those_who_answer()
    chosen, most = _likeliest_first(everyone), MOST_GROUPS
    if sampled:
        chosen.sort(key=lambda each: _was_behind(sampled, each.group), reverse=True)
        most = MOST_SAMPLED_GROUPS
    looked = look_at(connection, groups, chosen, most=most)
    looked.groups.sort(key=lambda each: (-(each.lag.lag if each.lag else 0), each.group))
    looked.missing = "" if failure is None else f"Groups of a broker are missing: {failure}"
    return everyone, looked


def _was_behind(sampled: Mapping[str, GroupLag], group: str) -> float:
    """The lag in the last sample; a group without a sample comes first, its lag may be any."""
    seen = sampled.get(group)
    return float("inf") if seen is None else seen.lag


def _likeliest_first(groups: list[GroupSummary]) -> list[GroupSummary]:
    """Groups with members come first; those without matter less."""
    return sorted(groups, key=lambda each: (each.state == "Empty", each.group))
