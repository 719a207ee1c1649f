"""Park a group's backlog in a database or a folder, and bring it back to that group alone.

Parking copies what the group has not read, then moves the group's offsets behind it. The copy may
be made while the group reads; for the move it must have no members, and what it has read meanwhile
does not count as parked. The order of the steps loses nothing: a parking that was killed is done
again. Bringing back sends records to the retry topic of the app's group, each once.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from headrace.app.names import retry_topic
from headrace.client.admin.groups import Groups
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.lookup.record_pages import Browser
from headrace.client.lookup.time_ordered import TimeOrderedReader
from headrace.client.records import Record
from headrace.installation import how_to_add
from headrace.services.backlog.parked import Owner, ParkedStore, ParkingRun, Spans
from headrace.services.replay import journal, selection, widenings
from headrace.services.replay.group_moves import GroupMoves
from headrace.services.replay.journal import CopyEntry, GroupEntry
from headrace.services.replay.pace import Pace
from headrace.services.replay.retried import require_retry_topic, retried
from headrace.services.replay.selection import Selection
from headrace.services.replay.topic_copy import Copying, CopyPlan, CopyRequest, Dress

RECORDS_PER_WRITE = 500
BYTES_PER_WRITE = 4 << 20
NAMED = "bring-back"
Offsets = list[tuple[str, int, int | None]]
LOOK_EVERY_S = 0.5


class CannotPark(ClientError):
    """One sentence why this backlog cannot be parked or brought back so."""


class Step(Enum):
    COPYING = "copying"
    WAITING = "waiting for the group's members to stop"
    DONE = "done"


@dataclass(slots=True)
class ParkStatus:
    step: Step
    copied: int  # so far; what the group reads meanwhile is among them
    parked: int = 0  # in the end


@dataclass(slots=True)
class ParkPlan:
    topic: str
    topic_id: str
    group: str
    spans: Spans  # from the group's offset to the end of what is committed
    left_alone: list[int] = field(default_factory=list)  # partitions without an offset of the group
    members: int = 0  # that read now
    committed: dict[int, int] = field(default_factory=dict)

    @property
    def most(self) -> int:
        return sum(end - first for first, end in self.spans.values())

    @property
    def owner(self) -> Owner:
        return Owner(self.group, self.topic, self.topic_id)


class Parking:
    def __init__(
        self,
        connection: ClientSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._connection = connection
        self._sleep = sleep
        self._now_ms = now_ms

    # ---- parking

    def plan(self, topic: str, group: str) -> ParkPlan:
        groups = Groups(self._connection)
        groups.partitions_of(topic)
        widenings.require_none(self._connection, group, [topic])
        committed = groups.committed(group)
        topic_id = Topics(self._connection).ids([topic])[topic]
        with closing(Browser(self._connection, topic)) as browser:
            lows, ends = browser.beginnings(browser.partitions), browser.ends(browser.partitions)
            spans: Spans = {}
            left_alone = []
            for p in browser.partitions:
                if p not in ends or p not in lows:
                    raise CannotPark(f"{topic}-{p} has no leader now; try again later.")
                if (topic, p) not in committed:
                    left_alone.append(p)  # unknown where the group would begin there
                    continue
                spans[p] = (min(max(committed[topic, p], lows[p]), ends[p]), ends[p])
        if not spans:
            raise CannotPark(f"Group {group} has committed nothing in {topic}: it has no backlog.")
        members = len(groups.members_of([group]).get(group, ()))
        starts = {p: committed[topic, p] for p in spans}
        return ParkPlan(topic, topic_id, group, spans, left_alone, members, starts)

    def park(
        self, plan: ParkPlan, to: str, *, by: str, reason: str = ""
    ) -> Generator[ParkStatus, None, None]:
        """Runs until the group has committed behind the parked records. Stop it anywhere, and run
        it again."""
        if plan.most == 0:
            raise CannotPark(f"Group {plan.group} has no backlog in {plan.topic}.")
        with closing(store_at(to, plan.owner)) as store:
            yield from self._park(plan, store, by=by, reason=reason)

    def _park(
        self, plan: ParkPlan, store: ParkedStore, *, by: str, reason: str
    ) -> Generator[ParkStatus, None, None]:
        store.prepare()
        self._require_not_returning(plan)
        self._note_known_moves(store, plan.topic, plan.group)
        run = ParkingRun(uuid.uuid4().hex[:12], plan.spans, moved=False, at_ms=self._now_ms())
        store.begin(run)
        copied = 0
        with closing(TimeOrderedReader(self._connection, plan.topic, plan.spans)) as reader:
            for batch in _batches(reader.records()):
                store.put(batch)
                copied += len(batch)
                yield ParkStatus(Step.COPYING, copied)
        while Groups(self._connection).members_of([plan.group]).get(plan.group):
            yield ParkStatus(Step.WAITING, copied)
            self._sleep(LOOK_EVERY_S)
        yield ParkStatus(Step.DONE, copied, self._move(plan, run, store, by=by, reason=reason))

    def _move(
        self, plan: ParkPlan, run: ParkingRun, store: ParkedStore, *, by: str, reason: str
    ) -> int:
        """Moves the group behind what it has not read. Returns how many records are parked."""
        # One may have begun while records were copied.
        widenings.require_none(self._connection, plan.group, [plan.topic])
        committed = Groups(self._connection).committed(plan.group)
        current = {p: committed.get((plan.topic, p)) for p in plan.spans}
        run.spans = self._unread(plan, current)
        store.finish(run)
        if not run.spans:
            raise CannotPark(f"Group {plan.group} has read everything by now: nothing to park.")
        if Topics(self._connection).ids([plan.topic])[plan.topic] != plan.topic_id:
            raise CannotPark(
                f"Topic {plan.topic} was deleted and created again while it was parked."
            )
        GroupMoves(self._connection).move(
            plan.group,
            current={(plan.topic, p): current[p] for p in run.spans},
            targets={(plan.topic, p): end for p, (_, end) in run.spans.items()},
            by=by,
            reason=reason or "its backlog was parked",
            parking=run.name,
        )
        store.note_moved(run.name, moved=True)
        return sum(each.rows for each in store.spans(run.name))

    def _unread(self, plan: ParkPlan, current: dict[int, int | None]) -> Spans:
        """The copied records that the group has not read meanwhile."""
        spans: Spans = {}
        for p, (first, end) in plan.spans.items():
            at = current[p]
            if at is None or at < min(first, plan.committed[p]):
                raise CannotPark(
                    f"Group {plan.group} has gone back in {plan.topic}-{p} meanwhile, to records "
                    "that are not parked. Run the command again."
                )
            if at < end:
                spans[p] = (max(at, first), end)
        return spans

    # ---- what is parked

    def parked(
        self, store: ParkedStore, topic: str, group: str, *, notes_moves: bool = True
    ) -> list[ParkingRun]:
        """Returns the parkings in a place that was opened for this group and topic, the oldest
        first. With `notes_moves`, a parking whose move was undone since is marked as undone
        there."""
        if not store.is_prepared():
            return []
        if notes_moves:
            self._note_known_moves(store, topic, group)
        return store.runs()

    # ---- bringing back

    def bring_back_plan(
        self, topic: str, group: str, at: str, wanted: Selection, *, by: str
    ) -> tuple[ParkedStore, CopyPlan]:
        wanted.check()
        counts = {each.name: each.partitions for each in Topics(self._connection).all()}
        to_topic = require_retry_topic(topic, group, counts)
        topic_id = Topics(self._connection).ids([topic])[topic]
        store = store_at(at, Owner(group, topic, topic_id))
        store.prepare()
        self._note_known_moves(store, topic, group)
        name, entry = self._run(topic, group, topic_id, wanted)
        spans = {
            each.partition: (each.first, each.last + 1) for each in store.spans() if each.waiting
        }
        if entry is None and not spans:
            raise CannotPark(f"Nothing of {topic} is parked for group {group} there.")
        request = CopyRequest(
            name, topic, to_topic, wanted, by=by, loop_guarded=False,
            fences=f"{NAMED}/{topic}/{group}",
        )  # fmt: skip
        return store, CopyPlan(request, topic_id, spans, same_partitions=True, entry=entry)

    def bring_back(
        self, store: ParkedStore, plan: CopyPlan, group: str, pace: Pace
    ) -> Generator[CopyEntry, None, None]:
        if plan.entry is not None:
            _mark_sent(store, plan.entry)  # those of a transaction after which it was killed
        copying = Copying(self._connection, self._connection, sleep=self._sleep)
        everything = {partition: end for partition, (_, end) in plan.spans.items()}
        if plan.entry is not None:
            everything |= plan.entry.ends
        dress: Dress = retried(
            plan.topic_id, retry_topic(plan.request.topic, group), everything, new_ids=None
        )
        yield from copying.copy(
            plan,
            pace,
            dress,
            read=lambda spans: store.waiting({p: first for p, (first, _) in spans.items()}),
            on_written=lambda records: store.mark_brought_back(
                [(record.partition, record.offset) for record in records]
            ),
            begin=lambda: self._require_alone(plan, group),
        )

    def _require_alone(self, plan: CopyPlan, group: str) -> None:
        """Another return, by other conditions, may have begun meanwhile and sent the same."""
        for entry in self._returning(plan.request.topic, group, plan.topic_id):
            if entry.name != plan.request.name:
                raise CannotPark(
                    f"Another command brings records of {entry.topic} back to {group}: let it end "
                    "first."
                )

    def _run(
        self, topic: str, group: str, topic_id: str, wanted: Selection
    ) -> tuple[str, CopyEntry | None]:
        """Returns the name of the run, and its entry if it was stopped before: then that run goes
        on, else the next one begins."""
        asked = hashlib.sha256(json.dumps(selection.as_json(wanted)).encode()).hexdigest()[:12]
        for entry in self._returning(topic, group, topic_id):
            if entry.name.split("/")[-2] == asked:
                return entry.name, entry
            raise CannotPark(
                f"Records of {topic} are being brought back to {group} by other conditions: "
                "let that command end first."
            )
        known = journal.read_journal(self._connection)
        number = known.next_number(f"{NAMED}/{topic}/{group}/", retry_topic(topic, group))
        return f"{NAMED}/{topic}/{group}/{asked}/{number}", None

    def _returning(self, topic: str, group: str, topic_id: str) -> list[CopyEntry]:
        """Returns the returns to this group that began and have not ended."""
        return [
            entry
            for entry in journal.read_journal(self._connection).copies.values()
            if entry.name.startswith(f"{NAMED}/")
            and entry.state == journal.UNDER_WAY
            and (entry.topic, entry.topic_id) == (topic, topic_id)
            and entry.to_topic == retry_topic(topic, group)
        ]

    def _require_not_returning(self, plan: ParkPlan) -> None:
        """Records parked now would be mistaken for those that this return has sent."""
        if self._returning(plan.topic, plan.group, plan.topic_id):
            raise CannotPark(
                f"Records of {plan.topic} are being brought back to {plan.group}: let `headrace "
                "backlog bring-back` end first."
            )

    # ---- what the journal knows of parkings

    def _note_known_moves(self, store: ParkedStore, topic: str, group: str) -> None:
        """Notes moves: a parking that was killed behind its move counts; one that was undone does
        not."""
        runs = store.runs()
        if not runs:
            return
        known = journal.read_journal(self._connection)
        committed: dict[int, int] | None = None
        for run in runs:
            counts = _counts(known.moves, run, topic, group)
            if counts is None or counts == run.moved:
                continue
            if run.moved:
                store.note_moved(run.name, moved=False)
                continue
            if committed is None:
                committed = {
                    p: at for (t, p), at in Groups(self._connection).committed(group).items()
                    if t == topic
                }  # fmt: skip
            # The journal is written before the move: was it made?
            if all(committed.get(p, -1) >= end for p, (_, end) in run.spans.items()):
                store.note_moved(run.name, moved=True)


def _counts(moves: list[GroupEntry], run: ParkingRun, topic: str, group: str) -> bool | None:
    """The journal's state of a parking: whether the group has moved behind it; None: no entry.

    Two commands that park the same stretch at once both move the group: an undo undoes both.
    """
    found: bool | None = None
    for entry in moves:
        if entry.group != group or not entry.parking:
            continue
        if entry.parking == run.name:
            found = _ends_at(entry.given, run, topic)
        elif found is not None and entry.action == journal.UNDONE:
            if _ends_at(entry.former, run, topic):
                found = _ends_at(entry.given, run, topic)
            elif _ends_at(entry.given, run, topic):
                found = True
    return found


def _ends_at(places: Offsets, run: ParkingRun, topic: str) -> bool:
    at = {p: offset for name, p, offset in places if name == topic}
    return all(at.get(p) == end for p, (_, end) in run.spans.items())


def store_at(to: str, owner: Owner) -> ParkedStore:
    """Opens a store. A URL is a database, anything else a folder; each needs an optional
    package."""
    if not to.strip():
        raise CannotPark("Give a place: the address of a database, or a folder.")
    if "://" in to:
        from headrace.services.backlog.parked_rows import opened

        return opened(to, owner)
    from headrace.services.backlog.parked_files import ParkedFiles

    return ParkedFiles(Path(to), owner)


@contextmanager
def needed_packages() -> Iterator[None]:
    """Names the package that a kind of store needs, if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        extra = "parquet" if (missing.name or "").startswith("pyarrow") else "sql"
        raise CannotPark(how_to_add("Parking there needs", missing.name, extra)) from missing


def _mark_sent(store: ParkedStore, entry: CopyEntry) -> None:
    wanted = selection.from_json(entry.asked["selection"])
    starts = dict.fromkeys(entry.next, 0)
    sent = [
        (record.partition, record.offset)
        for record in store.waiting(starts)
        if record.offset < entry.next[record.partition] and wanted.accepts(record)
    ]
    for at in range(0, len(sent), RECORDS_PER_WRITE):
        store.mark_brought_back(sent[at : at + RECORDS_PER_WRITE])


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.value or b"") + len(record.key or b"")
        if len(batch) == RECORDS_PER_WRITE or size >= BYTES_PER_WRITE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
