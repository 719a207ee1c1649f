"""Drain a group's backlog through a wider topic, then hand the group back to the source.

The records that the group has not read are forwarded into `<topic>.<group>.wide`, which has
several times as many partitions, each record once, in the order of its key, with its first place
and message id. Consumers of the same group read that topic instead of the source. When little is
left, forwarding stops; when all is drained and the consumers have stopped, the group's offsets in
the source move behind what was forwarded, and the wide topic goes.

Until then the group's offsets in the source stay where they were: whatever happens, nothing is
lost. Each step is in the journal, and the same command continues with the next step. If the wide
topic is deleted meanwhile, only an abort is possible: the group continues where it was before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import Enum

from headrace.app import headers as names
from headrace.app.names import dead_topic, retry_topic, wide_topic
from headrace.app.retries.carried_headers import carried_by
from headrace.client.admin.groups import Groups, Place
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.lookup.record_pages import Browser
from headrace.client.lookup.record_reader import RecordReader
from headrace.client.producer.producer import Producer
from headrace.client.records import Outgoing, Record
from headrace.services.replay import journal
from headrace.services.replay.group_moves import GroupMoves
from headrace.services.replay.journal import JOURNAL_TOPIC, CopyEntry
from headrace.services.replay.pace import Pace
from headrace.services.replay.retried import retried
from headrace.services.replay.selection import Selection
from headrace.services.replay.topic_copy import Copying, CopyPlan, CopyRequest, Dress
from headrace.services.replay.widenings import ABORTED, DRAINING, begun

LOOK_EVERY_S = 0.5
# The records that are left when forwarding stops; the group reads them before it goes back to the
# source.
FEW_LEFT = 1_000
# As many offsets are looked at, one by one, to tell records from markers.
LOOKED_AT = 2_000
SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
SHARED_SETTINGS = ("min.insync.replicas", "max.message.bytes")
# Headers of a copy for the retry topic, the wide topic and the dead letters.
ROOM_FOR_HEADERS = 64 << 10


class CannotWiden(ClientError):
    """One sentence why this backlog cannot be widened so."""


class Step(Enum):
    """The step of a widening; the values are for people."""

    FORWARDING = "forwarding"
    DRAINING = "draining"  # nothing more is forwarded
    WAITING = "waiting for the group's members to stop"
    HANDED_BACK = "handed back"


@dataclass(slots=True)
class WidenPlan:
    topic: str
    topic_id: str
    group: str
    wide_topic: str
    partitions: int
    wide_partitions: int
    spans: dict[int, tuple[int, int]]
    name: str
    entry: CopyEntry | None  # of one that began earlier
    left_alone: list[int]  # partitions where the group has committed nothing
    retries: int  # records that failed and wait for another try: they come after the widening
    was_moved: bool = False  # killed behind the move of the group
    is_lost: bool = False  # the wide topic was deleted

    @property
    def lag(self) -> int:
        return sum(end - first for first, end in self.spans.values())


@dataclass(slots=True)
class WidenStatus:
    step: Step
    forwarded: int
    not_forwarded: int
    in_wide: int  # records that the group has not read there
    members: int
    members_at_source: int = 0  # that read the source meanwhile: they do everything a second time
    deleted: int = 0  # offsets that retention took before they were forwarded


def under_way(connection: ClientSettings, group: str) -> dict[str, str]:
    """The topics whose backlog is being widened for this group -> their wide topics."""
    there = Topics(connection).cluster.topics
    found = begun(journal.read_journal(connection), group)
    return {entry.topic: entry.to_topic for entry in found if entry.to_topic in there}


class Widening:
    def __init__(
        self,
        connection: ClientSettings,
        *,
        few_left: int = FEW_LEFT,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._few_left = few_left
        self._sleep = sleep

    # ---- the plan

    def plan(self, topic: str, group: str, times: int) -> WidenPlan:
        groups = Groups(self._connection)
        partitions = len(groups.partitions_of(topic))
        topic_id = Topics(self._connection).ids([topic])[topic]
        wide = wide_topic(topic, group)
        there = groups.cluster.topics.get(wide)
        entry = self._begun(topic, group, topic_id)
        if entry is None:
            groups.require_inactive(group)
            if there is not None and any(Topics(self._connection).written([wide]).values()):
                raise CannotWiden(f"Topic {wide} is there already, and no widening knows of it.")
        committed = groups.committed(group)
        spans = self._spans(topic, committed, entry)
        if not spans:
            raise CannotWiden(f"Group {group} has committed nothing in {topic}: no backlog.")
        was_moved = entry is not None and self._was_moved(entry)
        return WidenPlan(
            topic,
            topic_id,
            group,
            wide,
            partitions,
            partitions * times if there is None else len(there.partitions),
            spans,
            self._next_name(topic, group) if entry is None else entry.name,
            entry,
            left_alone=[p for p in range(partitions) if p not in spans],
            retries=self._waiting(retry_topic(topic, group), committed),
            was_moved=was_moved,
            is_lost=entry is not None and not was_moved and self._is_lost(entry),
        )

    def _begun(self, topic: str, group: str, topic_id: str) -> CopyEntry | None:
        """Returns the widening that has not ended. One of an earlier topic of this name does not
        count, unless its wide topic still exists."""
        known = journal.read_journal(self._connection)
        found = [entry for entry in begun(known, group) if entry.topic == topic]
        for entry in found:
            if entry.topic_id != topic_id and not self._is_lost(entry):
                raise CannotWiden(
                    f"Topic {topic} was deleted and created again since its backlog was widened. "
                    f"Delete {entry.to_topic} if its records are not needed."
                )
        return next((each for each in reversed(found) if each.topic_id == topic_id), None)

    def _next_name(self, topic: str, group: str) -> str:
        prefix = f"widen/{topic}/{group}/"
        known = journal.read_journal(self._connection)
        return f"{prefix}{known.next_number(prefix, wide_topic(topic, group))}"

    def _is_lost(self, entry: CopyEntry) -> bool:
        topics = Topics(self._connection)
        if entry.to_topic not in topics.cluster.topics:
            return True
        return entry.to_topic_id not in ("", topics.ids([entry.to_topic])[entry.to_topic])

    def _spans(
        self, topic: str, committed: dict[Place, int], entry: CopyEntry | None
    ) -> dict[int, tuple[int, int]]:
        with closing(Browser(self._connection, topic)) as browser:
            lows, ends = browser.beginnings(browser.partitions), browser.ends(browser.partitions)
            for p in browser.partitions:
                if p not in ends or p not in lows:
                    raise CannotWiden(f"{topic}-{p} has no leader now; try again later.")
            starts = (
                {p: committed[topic, p] for p in browser.partitions if (topic, p) in committed}
                if entry is None
                else entry.next
            )
        return {p: (min(max(at, lows[p]), ends[p]), ends[p]) for p, at in starts.items()}

    def look(self, plan: WidenPlan) -> WidenStatus | None:
        """Returns the progress of a widening that has begun, whichever process runs it. None: it
        did not begin, or its wide topic was deleted."""
        entry = plan.entry
        if entry is None or plan.is_lost:
            return None
        if plan.was_moved:
            return WidenStatus(Step.HANDED_BACK, entry.copied, 0, 0, 0, deleted=entry.deleted)
        status = self._status(plan, entry, Step.FORWARDING)
        if entry.state == DRAINING:
            status.step = Step.DRAINING if status.in_wide else Step.WAITING
        return status

    # ---- all steps

    def run(self, plan: WidenPlan, *, by: str) -> Generator[WidenStatus, None, None]:
        """Runs until the group is handed back; stop it anywhere, and run it again."""
        if plan.is_lost:
            raise _lost(plan)
        if not plan.was_moved:
            self._make_wide_topic(plan)
        entry = plan.entry
        if entry is None or entry.state == journal.UNDER_WAY:
            entry = yield from self._forward(plan, by)
        while (status := self._seen(plan, entry, Step.DRAINING)).in_wide:
            yield status
            self._sleep(LOOK_EVERY_S)
        while not self._was_moved(entry) and self._has_members(plan.group):
            yield self._status(plan, entry, Step.WAITING)
            self._sleep(LOOK_EVERY_S)
        self._require_not_aborted(plan, entry)
        self._hand_back(plan, entry, dict(entry.next), journal.DONE, by)
        yield WidenStatus(Step.HANDED_BACK, entry.copied, 0, 0, 0, deleted=entry.deleted)

    def _make_wide_topic(self, plan: WidenPlan) -> None:
        topics = Topics(self._connection)
        if plan.wide_topic in topics.cluster.topics:
            return
        own = topics.settings_of(plan.topic)
        settings = {key: own[key].value for key in SHARED_SETTINGS if key in own}
        settings["max.message.bytes"] = str(int(settings["max.message.bytes"]) + ROOM_FOR_HEADERS)
        source = topics.cluster.topics[plan.topic]
        topics.create(
            plan.wide_topic,
            partitions=plan.wide_partitions,
            replication=max(len(p.replicas) for p in source.partitions.values()),
            settings=SETTINGS | settings,
        )

    def _forward(self, plan: WidenPlan, by: str) -> Generator[WidenStatus, None, CopyEntry]:
        """Forwards in rounds, because new records keep arriving; returns the entry when little is
        left."""
        request = CopyRequest(
            plan.name, plan.topic, plan.wide_topic, Selection(), by=by, loop_guarded=False
        )
        copying = Copying(self._connection, self._connection, sleep=self._sleep)
        looked_at = float("-inf")  # the first transaction is reported: consumers may start
        while True:
            now = CopyPlan(request, plan.topic_id, plan.spans, same_partitions=False)
            for entry in copying.copy(now, Pace(), _forwarded(plan), goes_on=True):
                # A look asks the cluster a dozen questions: not after each transaction.
                if self._clock() - looked_at >= LOOK_EVERY_S:
                    yield self._seen(plan, entry, Step.FORWARDING)
                    looked_at = self._clock()
            plan.spans = self._spans(plan.topic, {}, entry)
            status = self._seen(plan, entry, Step.FORWARDING)
            yield status
            if status.not_forwarded + status.in_wide <= self._few_left:
                entry.state = DRAINING
                self._write(entry)
                return entry
            self._sleep(LOOK_EVERY_S)

    def _seen(self, plan: WidenPlan, entry: CopyEntry, step: Step) -> WidenStatus:
        """Returns how far it is; raises if it cannot go on. A deleted wide topic has nothing to
        read, like a drained one; therefore its existence is checked after the count."""
        status = self._status(plan, entry, step)
        self._require_not_aborted(plan, entry)
        if self._is_lost(entry) and not self._was_moved(entry):
            raise _lost(plan)
        return status

    def _require_not_aborted(self, plan: WidenPlan, entry: CopyEntry) -> None:
        """Raises if the widening was aborted meanwhile: then the group reads the source again."""
        now = journal.read_journal(self._connection).copies.get(entry.name)
        if now is not None and now.state == ABORTED:
            raise CannotWiden(
                f"The widening of {plan.topic} for {plan.group} was aborted by another command: "
                f"its consumers read {plan.topic} as usual."
            )

    def _status(self, plan: WidenPlan, entry: CopyEntry, step: Step) -> WidenStatus:
        [described] = Groups(self._connection).describe([plan.group])
        committed = {
            (one.topic, one.partition): one.committed
            for one in described.progress
            if one.committed is not None
        }
        wide = self._waiting(plan.wide_topic, committed)
        retries = self._waiting(retry_topic(plan.wide_topic, plan.group), committed)
        return WidenStatus(
            step,
            entry.copied,
            sum(max(0, end - entry.next[p]) for p, (_, end) in plan.spans.items()),
            wide + retries,
            len(described.members),
            sum(any(t == plan.topic for t, _ in m.assigned) for m in described.members),
            entry.deleted,
        )

    def _waiting(self, topic: str, committed: dict[Place, int]) -> int:
        """Returns how many records the group has not read. After the last of them there are markers
        of transactions, which are never read as records: so a short rest is read to count
        exactly."""
        spans = Topics(self._connection).spans([topic]).get(topic, {})
        rest = {
            p: (max(first, committed.get((topic, p), 0)), end) for p, (first, end) in spans.items()
        }
        starts = {p: first for p, (first, end) in rest.items() if first < end}
        most = sum(end - first for first, end in rest.values() if first < end)
        if not starts or most > LOOKED_AT + len(spans):
            return most
        with closing(Browser(self._connection, topic)) as browser:
            page = browser.onwards(starts, want=LOOKED_AT)
        return len(page.found) if page.at_the_end else max(1, len(page.found))

    def _has_members(self, group: str) -> bool:
        [described] = Groups(self._connection).describe([group])
        return bool(described.members)

    # ---- the end, good or not

    def abort(self, plan: WidenPlan, *, by: str) -> dict[int, int]:
        """Moves the group back to the source, at the first record of each partition that was not
        handled. Nothing is lost; records behind it that were handled come again under the same
        message id."""
        if plan.entry is None:
            raise CannotWiden(f"No backlog of {plan.topic} is being widened for {plan.group}.")
        groups = Groups(self._connection)
        groups.require_inactive(plan.group)
        targets = self.way_back(plan)
        if plan.is_lost:
            plan.entry.state = ABORTED
            self._write(plan.entry)
        else:
            self._hand_back(plan, plan.entry, targets, ABORTED, by)
        return targets

    def way_back(self, plan: WidenPlan) -> dict[int, int]:
        """Returns where an abort puts the group now. It reads all that was not handled."""
        assert plan.entry is not None, "one that began"
        if plan.is_lost:
            committed = Groups(self._connection).committed(plan.group)
            return {p: at for (topic, p), at in committed.items() if topic == plan.topic}
        targets = dict(plan.entry.next)
        for record in self._unhandled(plan):
            origin = carried_by(record.headers).origin
            if origin is not None and origin[0] == plan.topic and origin[1] in targets:
                targets[origin[1]] = min(targets[origin[1]], origin[2])
        return targets

    def _unhandled(self, plan: WidenPlan) -> Iterator[Record]:
        groups = Groups(self._connection)
        committed = groups.committed(plan.group)
        for name in (plan.wide_topic, retry_topic(plan.wide_topic, plan.group)):
            if name not in groups.cluster.topics:
                continue
            with closing(RecordReader(self._connection, name)) as reader:
                for record in reader.records():
                    if record.offset >= committed.get((name, record.partition), 0):
                        yield record

    def _hand_back(
        self, plan: WidenPlan, entry: CopyEntry, targets: dict[int, int], state: str, by: str
    ) -> None:
        self._copy_dead_letters(plan, by)
        if not self._was_moved(entry):
            committed = Groups(self._connection).committed(plan.group)
            # Members that read the source meanwhile may have come further.
            places: dict[Place, int] = {
                (plan.topic, p): max(offset, committed.get((plan.topic, p), 0))
                for p, offset in targets.items()
            }
            GroupMoves(self._connection).move(
                plan.group,
                current={place: committed.get(place) for place in places},
                targets=places,
                by=by,
                reason=_reason(entry),
            )
        topics = Topics(self._connection)
        for name in (
            plan.wide_topic,
            retry_topic(plan.wide_topic, plan.group),
            dead_topic(plan.wide_topic, plan.group),
        ):
            if name in topics.cluster.topics:
                topics.delete(name)
        # At the end: killed before, the same command deletes the rest.
        entry.state = state
        self._write(entry)

    def _was_moved(self, entry: CopyEntry) -> bool:
        """Whether it was killed behind the move: the group may have gone on since, and must not be
        moved again."""
        moves = journal.read_journal(self._connection).moves
        return any(each.reason == _reason(entry) for each in moves)

    def _copy_dead_letters(self, plan: WidenPlan, by: str) -> None:
        """Copies dead letters to the dead-letter topic of the source, where users look for them."""
        own, to = dead_topic(plan.wide_topic, plan.group), dead_topic(plan.topic, plan.group)
        topics = Topics(self._connection)
        if own not in topics.cluster.topics:
            return
        topics.ensure(to, partitions=plan.partitions, settings={})
        copying = Copying(self._connection, self._connection)
        name = f"{plan.name}/dead"
        entry = journal.read_journal(self._connection).copies.get(name)
        if entry is None or entry.state != journal.DONE:
            copies = copying.plan(
                CopyRequest(name, own, to, Selection(), by=by, loop_guarded=False)
            )
            for _ in copying.copy(copies, Pace(), _letter_of(to)):
                pass

    def _write(self, entry: CopyEntry) -> None:
        with Producer(self._connection) as producer:
            producer.send_sync(JOURNAL_TOPIC, journal.written(entry), key=entry.key)


def _lost(plan: WidenPlan) -> CannotWiden:
    return CannotWiden(
        f"{plan.wide_topic} was deleted, and with it what the group had not read. Go back "
        f"to {plan.topic} with --abort --execute: the group continues where it was before the "
        "widening."
    )


def _reason(entry: CopyEntry) -> str:
    return f"handed back after {entry.name}"


def _forwarded(plan: WidenPlan) -> Dress:
    """Makes the copy, as for a retry topic, but the key chooses the partition."""
    everything = dict.fromkeys(plan.spans, 1 << 62)
    dress = retried(plan.topic_id, plan.wide_topic, everything, new_ids=None)

    def forwarded(record: Record) -> Outgoing[bytes, bytes] | None:
        copy = dress(record)
        if copy is not None:
            # Without a key there is no order to keep: spread the records by partition and offset.
            copy.partition = (
                None
                if record.key is not None
                else (record.offset * plan.partitions + record.partition) % plan.wide_partitions
            )
        return copy

    return forwarded


def _letter_of(to: str) -> Dress:
    def letter(record: Record) -> Outgoing[bytes, bytes]:
        partition = record.header(names.DEAD_PARTITION)
        number = int(partition) if partition is not None and partition.isdigit() else None
        return Outgoing(
            to, record.value, record.key, list(record.headers), number, record.timestamp_ms
        )

    return letter
