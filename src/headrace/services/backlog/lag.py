"""How far a group is behind, in records and in seconds, from two looks at it. Pure.

The rates between the looks tell when the group will have caught up, or that it never will.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Place = tuple[str, int]  # topic and partition

# Below this rate the end of the backlog is not predicted: two looks are too short for it.
SLOWEST_TOLD = 0.01
# A lag that shrinks by less than this share of the incoming records counts as constant.
STANDS_STILL = 0.02


@dataclass(slots=True)
class Look:
    """One sample."""

    at_s: float
    committed: dict[Place, int]
    ends: dict[Place, int]
    unread: dict[Place, int]  # records that the group can still get; all, if it has no commit
    state: str  # of the group, in Kafka's words
    members: dict[str, list[Place]]  # what each member has


@dataclass(slots=True)
class PartitionLag:
    topic: str
    partition: int
    committed: int | None  # None: never; then the lag is unknown, unless nothing is unread
    end: int
    unread: int
    member: str | None
    rate_in: float  # records per second
    rate_out: float
    behind_s: float | None = None  # age of the next record to be read; None: nothing to read

    @property
    def place(self) -> Place:
        return (self.topic, self.partition)

    @property
    def lag(self) -> int:
        return 0 if self.committed is None else self.unread

    @property
    def is_unknown(self) -> bool:
        return self.committed is None and self.unread > 0


@dataclass(slots=True)
class GroupLag:
    group: str
    state: str
    members: dict[str, list[Place]]
    partitions: list[PartitionLag] = field(default_factory=list)

    @property
    def lag(self) -> int:
        """The lag where it is known; `unknown` has the other partitions."""
        return sum(each.lag for each in self.partitions)

    @property
    def unknown(self) -> list[PartitionLag]:
        return [each for each in self.partitions if each.is_unknown]

    @property
    def behind_s(self) -> float | None:
        """How far the partition that is furthest behind is behind, in seconds."""
        return max(
            (each.behind_s for each in self.partitions if each.behind_s is not None), default=None
        )

    @property
    def rate_in(self) -> float:
        return sum(each.rate_in for each in self.partitions)

    @property
    def rate_out(self) -> float:
        return sum(each.rate_out for each in self.partitions)

    @property
    def caught_up_in_s(self) -> float | None:
        """Seconds until caught up at the present rates; the slowest partition decides.
        None: never."""
        return caught_up_in_s(self.partitions)


def caught_up_in_s(partitions: list[PartitionLag]) -> float | None:
    longest = 0.0
    for each in partitions:
        if each.lag == 0:
            continue
        gain = each.rate_out - each.rate_in
        if gain < SLOWEST_TOLD or gain < STANDS_STILL * each.rate_in:
            return None
        longest = max(longest, each.lag / gain)
    return longest


def group_lag(group: str, before: Look, after: Look) -> GroupLag:
    seconds = max(after.at_s - before.at_s, 1e-3)
    owners = {place: member for member, places in after.members.items() for place in places}
    found = GroupLag(group, after.state, after.members)
    for place in sorted(after.ends):  # without those that are gone or have no leader
        committed = after.committed.get(place)
        earlier = before.committed.get(place, committed)
        found.partitions.append(
            PartitionLag(
                *place,
                committed=committed,
                end=after.ends[place],
                unread=after.unread.get(place, 0),
                member=owners.get(place),
                rate_in=_rate(before.ends.get(place), after.ends[place], seconds),
                rate_out=_rate(earlier, committed, seconds),
            )
        )
    return found


def _rate(before: int | None, after: int | None, seconds: float) -> float:
    """Returns the rate per second; 0 for a group that was moved back meanwhile."""
    if before is None or after is None:
        return 0.0
    return max(0, after - before) / seconds
