"""Have a group read again: move its committed offsets back, and put them where they were.

A move never goes forward, and a partition where the group has committed nothing is left alone: it
reads from its beginning anyway. The offsets that the group had are in the journal before any is
changed, so every move can be undone, also one that was killed half-way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from headrace.client.browsing import Browser
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.group_offsets import delete_offsets
from headrace.client.groups import Groups, Move, Place
from headrace.client.producer import Producer
from headrace.client.records import TopicPartition
from headrace.services.replay import journal
from headrace.services.replay.journal import JOURNAL_TOPIC, GroupEntry

# How long a running group is watched to see how fast it reads.
WATCHED_S = 2.0


class CannotMove(ClientError):
    """One sentence why the group cannot be moved so."""


@dataclass(slots=True)
class PartitionPlan:
    """One partition: where the group goes, and what it reads again."""

    topic: str
    partition: int
    current: int | None
    target: int | None  # None: it stays as it is
    again: int  # offsets, which is the most there can be of records
    oldest_ms: int | None  # the time of the first record that is read again
    why_not: str = ""  # of a partition that stays


@dataclass(slots=True)
class GroupPlan:
    group: str
    partitions: list[PartitionPlan]
    is_active: bool  # it has members, so it cannot be moved now
    rate: float | None  # records per second that it reads, as far as that could be seen

    @property
    def moves(self) -> list[PartitionPlan]:
        return [each for each in self.partitions if each.target is not None]

    @property
    def again(self) -> int:
        return sum(each.again for each in self.partitions)


class GroupMoves:
    def __init__(
        self,
        connection: Connection,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._sleep = sleep

    # ---- going back

    def plan(self, group: str, targets: Mapping[Place, int]) -> GroupPlan:
        """`targets` are offsets; one before the first record means that record."""
        groups = Groups(self._connection)
        [described] = groups.describe([group])
        wanted = {(each.topic, each.partition): each for each in groups.plan(group, targets)}
        oldest = self._times_at(
            {place: move.target for place, move in wanted.items() if _goes_back(move)}
        )
        partitions = [_planned(move, oldest.get(place)) for place, move in wanted.items()]
        rate = self._rate(groups, group) if described.members else None
        return GroupPlan(group, partitions, bool(described.members), rate)

    def execute(self, plan: GroupPlan, *, by: str, reason: str = "") -> None:
        if not plan.moves:
            raise CannotMove(f"Group {plan.group} would read nothing again there.")
        self.move(
            plan.group,
            current={(each.topic, each.partition): each.current for each in plan.moves},
            targets={(each.topic, each.partition): each.target or 0 for each in plan.moves},
            by=by,
            reason=reason,
        )

    def move(
        self,
        group: str,
        *,
        current: Mapping[Place, int | None],
        targets: Mapping[Place, int],
        by: str,
        reason: str,
    ) -> None:
        """In any direction; refuses if the group is not where it was when this was planned."""
        groups = Groups(self._connection)
        groups.require_inactive(group)
        committed = groups.committed(group)
        for (topic, partition), offset in current.items():
            if committed.get((topic, partition)) != offset:
                raise CannotMove(
                    f"Group {group} has moved in {topic}-{partition} since this was planned: look "
                    "again."
                )
        self._write(
            GroupEntry(
                group,
                journal.MOVED,
                former=[(*place, committed.get(place)) for place in targets],
                given=[(*place, offset) for place, offset in targets.items()],
                by=by,
                at_ms=self._now_ms(),
                reason=reason,
            )
        )
        groups.move(group, groups.plan(group, targets))

    # ---- and back again

    def undo_plan(self, group: str) -> GroupEntry:
        entry = journal.read_journal(self._connection).last_move(group)
        if entry is None:
            raise CannotMove(f"No replay has moved group {group} in the last 90 days.")
        return entry

    def undo(self, entry: GroupEntry, *, by: str, reason: str = "") -> None:
        """Puts back exactly what was there, no commit included."""
        groups = Groups(self._connection)
        groups.require_inactive(entry.group)
        committed = groups.committed(entry.group)
        self._write(
            GroupEntry(
                entry.group,
                journal.UNDONE,
                former=[(t, p, committed.get((t, p))) for t, p, _ in entry.former],
                given=entry.former,
                by=by,
                at_ms=self._now_ms(),
                reason=reason,
            )
        )
        moves = [
            Move(topic, partition, committed.get((topic, partition)), offset, offset)
            for topic, partition, offset in entry.former
            if offset is not None
        ]
        if moves:
            groups.move(entry.group, moves)
        without = [TopicPartition(t, p) for t, p, offset in entry.former if offset is None]
        if without:
            delete_offsets(self._connection, entry.group, without)

    def _write(self, entry: GroupEntry) -> None:
        journal.ensure_journal(self._connection)
        with Producer(self._connection) as producer:
            producer.send_sync(JOURNAL_TOPIC, journal.written(entry), key=entry.key)

    # ---- what is seen of the cluster

    def _times_at(self, places: Mapping[Place, int]) -> dict[Place, int | None]:
        """The time of the first record from each place on; None where nobody can say."""
        found: dict[Place, int | None] = {}
        for topic in {topic for topic, _ in places}:
            with closing(Browser(self._connection, topic)) as browser:
                for (name, partition), offset in places.items():
                    if name == topic:
                        page = browser.onwards(
                            {partition: offset}, want=1, accepts=lambda seen: seen.is_data
                        )
                        first = page.found[0].record if page.found else None
                        found[name, partition] = None if first is None else first.timestamp_ms
        return found

    def _rate(self, groups: Groups, group: str) -> float | None:
        before = groups.committed(group)
        self._sleep(WATCHED_S)
        after = groups.committed(group)
        read = sum(after[place] - before.get(place, after[place]) for place in after)
        return read / WATCHED_S if read > 0 else None


def _goes_back(move: Move) -> bool:
    return move.current is not None and move.target < move.current


def _planned(move: Move, oldest_ms: int | None) -> PartitionPlan:
    if move.current is None:
        why_not = "nothing committed: it reads from its own beginning"
    elif move.target >= move.current:
        why_not = "not read so far yet"
    else:
        return PartitionPlan(
            move.topic,
            move.partition,
            move.current,
            move.target,
            again=move.current - move.target,
            oldest_ms=oldest_ms,
        )
    return PartitionPlan(
        move.topic, move.partition, move.current, None, again=0, oldest_ms=None, why_not=why_not
    )
