"""Groups: the rows of the list, and one with its members and lag. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.admin.groups import GroupDescription, Move
from headrace.console.access.groups import GroupList
from headrace.console.views.words import moment
from headrace.operations.group_resets import Reset, Way
from headrace.operations.groups import known_lag
from headrace.operations.partition_runs import run_in_digits, runs_of

# Kafka's states, explained for newcomers.
STATES = {
    "Stable": "active",
    "Empty": "no active members",
    "PreparingRebalance": "rebalancing",
    "CompletingRebalance": "rebalancing",
    "Assigning": "rebalancing",
    "Reconciling": "rebalancing",
    "Dead": "deleted",
}


def state_in_words(state: str) -> str:
    return STATES.get(state, state)


@dataclass(slots=True)
class GroupRow:
    group: str
    state: str
    words: str
    type: str
    members: int | None  # None: not asked, or not allowed
    topics: list[str]
    lag: int | None
    is_more: bool = False  # the lag is unknown in some partitions, and this is that of the others


def group_rows(found: GroupList) -> list[GroupRow]:
    known = {each.group: each for each in found.looked.groups}
    rows = []
    for summary in found.groups:
        one = known.get(summary.group)
        lag = None if one is None else one.lag
        members = None if one is None else one.members
        rows.append(
            GroupRow(
                summary.group,
                summary.state,
                state_in_words(summary.state),
                summary.type,
                None if members is None else len(members),
                [] if lag is None else sorted(lag.topics),
                lag.lag if lag is not None and lag.topics else None,
                lag is not None and not lag.is_known,
            )
        )
    return rows


@dataclass(slots=True)
class ProgressRow:
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    share: float  # of the largest lag, for a bar
    client: str


@dataclass(slots=True)
class MemberRow:
    id: str
    instance: str | None
    client: str
    host: str
    assigned: str


@dataclass(slots=True)
class GroupPage:
    name: str
    state: str
    words: str
    type: str
    assignor: str
    coordinator: int | None
    lag: int | None
    progress: list[ProgressRow]
    members: list[MemberRow]
    topics: list[str]
    can_change: bool  # only a group without members can
    progress_left: int = 0  # partitions that are not among `progress`
    unknown: int = 0  # partitions whose lag is unknown


MOST_PROGRESS = 500  # partitions on a page: of more, those that are furthest behind


def group_page(group: GroupDescription) -> GroupPage:
    shown = group.progress
    if len(shown) > MOST_PROGRESS:
        behind = sorted(shown, key=lambda one: -(one.lag or 0))[:MOST_PROGRESS]
        shown = sorted(behind, key=lambda one: (one.topic, one.partition))
    largest = max((one.lag or 0 for one in group.progress), default=0)
    clients = {member.id: member.client_id for member in group.members}
    return GroupPage(
        group.group,
        group.state,
        state_in_words(group.state),
        group.type,
        group.protocol,
        group.coordinator,
        known_lag(group).lag,
        [
            ProgressRow(
                one.topic,
                one.partition,
                one.committed,
                one.end_offset,
                one.lag,
                (one.lag or 0) / largest if largest else 0.0,
                clients.get(one.member or "", ""),
            )
            for one in shown
        ],
        [
            MemberRow(each.id, each.instance_id, each.client_id, each.host, spans(each.assigned))
            for each in group.members
        ],
        sorted({one.topic for one in group.progress}),
        not group.members,
        len(group.progress) - len(shown),
        len(group.unknown),
    )


def spans(places: list[tuple[str, int]]) -> str:
    """`bills 0; orders 0-3, 7`."""
    return "; ".join(
        f"{topic} " + ", ".join(map(run_in_digits, runs)) for topic, runs in runs_of(places).items()
    )


# ---- a reset


@dataclass(slots=True)
class MoveRow:
    topic: str
    partition: int
    current: int | None
    target: int
    change: int | None
    at_the_edge: bool  # the offset that was wanted is not there


def move_rows(moves: list[Move]) -> list[MoveRow]:
    return [
        MoveRow(
            move.topic,
            move.partition,
            move.current,
            move.target,
            None if move.current is None else move.target - move.current,
            move.target != move.wanted,
        )
        for move in moves
    ]


def way_words(reset: Reset) -> list[str]:
    """As `headrace groups reset` takes it."""
    match reset.way:
        case Way.BEGINNING:
            return ["--to-beginning"]
        case Way.END:
            return ["--to-end"]
        case Way.OFFSET:
            return ["--to-offset", str(reset.number)]
        case Way.TIME:
            return ["--to-time", moment(reset.number).replace(" ", "T")]
    return [f"--shift-by={reset.number}"]
