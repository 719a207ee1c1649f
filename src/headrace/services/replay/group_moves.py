"""Lets a group read again: moves its committed offsets back, and can restore them.

A move never goes forward, and a partition where the group has committed nothing is left alone: it
reads from its beginning anyway. The offsets that the group had are in the journal before any is
changed, so every move can be undone, also one that was killed half-way. A topic that was created
again since is another topic: the group's offsets in the former one are not restored there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from headrace.client.admin.group_offsets import delete_offsets
from headrace.client.admin.groups import Groups, Move, Place
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.lookup.record_pages import Browser
from headrace.client.producer.producer import Producer
from headrace.client.records import TopicPartition
from headrace.services.replay import journal, widenings
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
    again: int  # offsets, an upper bound for records
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


@dataclass(slots=True)
class UndoPartition:
    """One partition: where the group is put back."""

    topic: str
    partition: int
    current: int | None
    former: int | None  # None: it had committed nothing
    target: int | None  # as far as the partition still has it
    why_not: str = ""  # of a partition that stays


@dataclass(slots=True)
class UndoPlan:
    entry: GroupEntry
    partitions: list[UndoPartition]

    @property
    def moves(self) -> list[UndoPartition]:
        return [each for each in self.partitions if not each.why_not]


class GroupMoves:
    def __init__(
        self,
        connection: ClientSettings,
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
        widenings.require_none(self._connection, plan.group, {each.topic for each in plan.moves})
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
        parking: str = "",
    ) -> None:
        """Moves in any direction; refuses if the group is not where it was when this was
        planned."""
        groups = Groups(self._connection)
        groups.require_inactive(group)
        committed = groups.committed(group)
        for (topic, partition), offset in current.items():
            if committed.get((topic, partition)) != offset:
                raise CannotMove(
                    f"Group {group} has moved in {topic}-{partition} since this was planned: look "
                    "again."
                )
        entry = GroupEntry(
            group,
            journal.MOVED,
            former=[(*place, committed.get(place)) for place in targets],
            given=[(*place, offset) for place, offset in targets.items()],
            by=by,
            at_ms=self._now_ms(),
            reason=reason,
            topic_ids=Topics(self._connection).ids({topic for topic, _ in targets}),
            parking=parking,
        )
        with self._journalled(entry, committed):
            groups.move(group, groups.plan(group, targets))

    # ---- and back again

    def undo_plan(self, group: str) -> UndoPlan:
        entry = journal.read_journal(self._connection).last_move(group)
        if entry is None:
            raise CannotMove(f"No replay has moved group {group} in the last 90 days.")
        groups = Groups(self._connection)
        committed = groups.committed(group)
        why_not = self._not_put_back(entry)
        there = [(t, p) for t, p, _ in entry.former if t not in why_not]
        lows, ends = groups.beginnings(there), groups.ends(there)
        partitions = []
        for topic, partition, former in entry.former:
            place = (topic, partition)
            target = former
            if former is not None and topic not in why_not:
                target = min(max(former, lows[place]), ends[place])
            partitions.append(
                UndoPartition(*place, committed.get(place), former, target, why_not.get(topic, ""))
            )
        return UndoPlan(entry, partitions)

    def _not_put_back(self, entry: GroupEntry) -> dict[str, str]:
        """Returns the topics that are not what they were, and why."""
        topics = Topics(self._connection)
        names = {topic for topic, _, _ in entry.former}
        found = {name: "the topic is gone" for name in names - topics.cluster.topics.keys()}
        ids = topics.ids(names - found.keys())
        for name, now in ids.items():
            if entry.topic_ids.get(name, now) != now:
                found[name] = "the topic was created again since"
        for topic, partition, _ in entry.former:
            if topic not in found and partition not in topics.cluster.topics[topic].partitions:
                found[topic] = "the topic was created again since, with fewer partitions"
        return found

    def undo(self, plan: UndoPlan, *, by: str, reason: str = "") -> None:
        """Restores the former offsets; a partition without a commit gets none again."""
        groups, undone = Groups(self._connection), plan.entry
        if not plan.moves:
            raise CannotMove(f"Nothing of it can be undone: {plan.partitions[0].why_not}.")
        groups.require_inactive(undone.group)
        widenings.require_none(self._connection, undone.group, {each.topic for each in plan.moves})
        committed = groups.committed(undone.group)
        entry = GroupEntry(
            undone.group,
            journal.UNDONE,
            former=[
                (m.topic, m.partition, committed.get((m.topic, m.partition))) for m in plan.moves
            ],
            given=[(each.topic, each.partition, each.target) for each in plan.moves],
            by=by,
            at_ms=self._now_ms(),
            reason=reason,
            topic_ids=Topics(self._connection).ids({each.topic for each in plan.moves}),
            parking=undone.parking,
        )
        with self._journalled(entry, committed):
            self._put_back(groups, plan, committed)

    def _put_back(self, groups: Groups, plan: UndoPlan, committed: Mapping[Place, int]) -> None:
        moves = [
            Move(m.topic, m.partition, committed.get((m.topic, m.partition)), m.target, m.target)
            for m in plan.moves
            if m.target is not None
        ]
        if moves:
            groups.move(plan.entry.group, moves)
        without = [
            TopicPartition(m.topic, m.partition)
            for m in plan.moves
            if m.target is None and (m.topic, m.partition) in committed
        ]
        if without:
            delete_offsets(self._connection, plan.entry.group, without)

    @contextmanager
    def _journalled(self, entry: GroupEntry, committed: Mapping[Place, int]) -> Iterator[None]:
        """Written before the move. A move that was refused and has changed nothing is taken out
        again: an undo must not undo what never was."""
        self._write(entry.key, journal.written(entry))
        try:
            yield
        except ClientError:
            if Groups(self._connection).committed(entry.group) == committed:
                self._write(entry.key, None)
            raise

    def _write(self, key: bytes, value: bytes | None) -> None:
        journal.ensure_journal(self._connection)
        with Producer(self._connection) as producer:
            producer.send_sync(JOURNAL_TOPIC, value, key=key)

    # ---- what is seen of the cluster

    def _times_at(self, places: Mapping[Place, int]) -> dict[Place, int | None]:
        """Returns the time of the first record from each place on; None if there is no record, or
        it has no time."""
        found: dict[Place, int | None] = {}
        for topic in {topic for topic, _ in places}:
            with closing(Browser(self._connection, topic)) as browser:
                for (name, partition), offset in places.items():
                    if name == topic:
                        page = browser.onwards({partition: offset}, want=1)
                        first = page.found[0].record if page.found else None
                        found[name, partition] = None if first is None else first.timestamp_ms
        return found

    def _rate(self, groups: Groups, group: str) -> float | None:
        before = groups.committed(group)
        self._sleep(WATCHED_S)
        after = groups.committed(group)
        read = sum(after[place] - before.get(place, after[place]) for place in after)
        return read / WATCHED_S if read > 0 else None


def targets_from(
    connection: ClientSettings,
    topics: Iterable[tuple[str, list[int]]],
    *,
    since_ms: int | None,
    from_offset: int | None,
) -> dict[Place, int]:
    """Where a group goes that reads these topics again; without partitions all of a topic."""
    groups = Groups(connection)
    places = groups.places_in(topics)
    by_time = {} if since_ms is None else groups.at_time(places, since_ms)
    return {place: max(by_time.get(place, 0), from_offset or 0) for place in places}


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
