"""Copy records of a topic into another one, each exactly once, in the order of their times.

Records and the journal's entry are one transaction, and the transactional id belongs to the copy's
name: of the same command started twice one keeps working, and a killed one continues where it was.
The range is fixed when a copy begins: up to the ends that the partitions have then. Both topics are
identified by their ids: a topic that is created again under the same name ends the copy. Records
that retention has deleted before a copy came to them are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from headrace.app.names import escaped
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.lookup.record_pages import Browser
from headrace.client.lookup.time_ordered import TimeOrderedReader
from headrace.client.producer.producer import Producer
from headrace.client.records import HeaderList, Outgoing, Record
from headrace.services.replay import journal, selection
from headrace.services.replay.journal import JOURNAL_TOPIC, CopyEntry
from headrace.services.replay.pace import Pace
from headrace.services.replay.selection import Selection
from headrace.services.replay.trail import with_trail, would_loop

RECORDS_PER_TRANSACTION = 500
BYTES_PER_TRANSACTION = 4 << 20
# Before a longer wait the transaction is committed, so that readers get what was sent.
LONG_WAIT_S = 0.02
# Progress is kept after so many records that were passed over.
PASSED_PER_TRANSACTION = 20_000

Spans = dict[int, tuple[int, int]]  # first and end offset by partition


class CannotCopy(ClientError):
    """One sentence why these records cannot be copied so."""


@dataclass(slots=True)
class CopyRequest:
    """The request of a user."""

    name: str
    topic: str
    to_topic: str
    selection: Selection
    partitions: list[int] | None = None  # None: all
    from_offset: int | None = None
    to_offset: int | None = None
    times_now: bool = False  # give the copies the time of the copying instead of their own
    by: str = ""
    # A user's replay passes over what replays have carried in a circle. The headers must not move a
    # group behind its copies: anybody may write headers, and records would disappear.
    loop_guarded: bool = True
    fences: str = ""  # copies with the same text end each other; "": copies of the same name do


@dataclass(slots=True)
class CopyPlan:
    """The plan of a copy; `entry` is an earlier copy of this name."""

    request: CopyRequest
    topic_id: str
    spans: Spans
    same_partitions: bool
    to_topic_id: str = ""  # "": not known
    entry: CopyEntry | None = None
    open_transactions: list[int] = field(default_factory=list)  # partitions with an unread tail

    @property
    def most(self) -> int:
        """Offsets to look at, which is the most there can be of records."""
        return sum(end - first for first, end in self.spans.values())


# Turns a selected record into what is written; None: skip it.
Dress = Callable[[Record], "Outgoing[bytes, bytes] | None"]
Read = Callable[[Spans], Iterator[Record]]
OnWritten = Callable[[list[Record]], None]


class Copying:
    """Copies between two clusters, which may be the same one."""

    def __init__(
        self,
        source: ClientSettings,
        target: ClientSettings,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._target = target
        self._now_ms = now_ms
        self._clock = clock
        self._sleep = sleep

    # ---- looking

    def plan(self, request: CopyRequest) -> CopyPlan:
        request.selection.check()
        topic_id = Topics(self._source).ids([request.topic])[request.topic]
        targets = Topics(self._target).cluster.topics
        if request.to_topic not in targets:
            raise NoSuchTopic(
                f"There is no topic {request.to_topic} to write to. Create it with "
                f"`headrace topics create {request.to_topic}`."
            )
        with closing(Browser(self._source, request.topic)) as browser:
            spans, behind = _spans(browser, request)
            same = len(browser.partitions) == len(targets[request.to_topic].partitions)
        plan = CopyPlan(request, topic_id, spans, same, open_transactions=behind)
        plan.to_topic_id = self._target_id(request)
        plan.entry = journal.read_journal(self._target).copies.get(request.name)
        if plan.entry is not None:
            _require_same(plan.entry, plan)
        return plan

    def _target_id(self, request: CopyRequest) -> str:
        return Topics(self._target).ids([request.to_topic])[request.to_topic]

    def require_kept(self, plan: CopyPlan) -> None:
        """Refuse to write records that the topic's retention would remove at once."""
        if plan.request.times_now:
            return
        settings = Topics(self._target).settings_of(plan.request.to_topic)
        if settings["message.timestamp.type"].value == "LogAppendTime":
            return
        keep_ms = int(settings["retention.ms"].value)
        if "delete" not in settings["cleanup.policy"].value or keep_ms < 0:
            return
        oldest_ms = self._oldest_ms(plan)
        if oldest_ms is not None and oldest_ms < self._now_ms() - keep_ms:
            raise CannotCopy(
                f"Topic {plan.request.to_topic} keeps records for {keep_ms // 1000:,} seconds, and "
                "the oldest that would be copied is older: it would be removed at once. Raise "
                "retention.ms of the topic, or give the copies the time of now with --times now."
            )

    def _oldest_ms(self, plan: CopyPlan) -> int | None:
        starts = {p: first for p, (first, end) in plan.spans.items() if first < end}
        if not starts:
            return None
        with closing(Browser(self._source, plan.request.topic)) as browser:
            page = browser.onwards(starts, want=1)
        return page.found[0].record.timestamp_ms if page.found else None

    # ---- doing

    def copy(
        self,
        plan: CopyPlan,
        pace: Pace,
        dress: Dress | None = None,
        *,
        read: Read | None = None,
        on_written: OnWritten | None = None,
        goes_on: bool = False,
        begin: Callable[[], None] | None = None,
    ) -> Generator[CopyEntry, None, None]:
        """Yields the progress after each transaction; the last entry is done.

        `read` gives the records, if they are not in the topic. `on_written` is called after each
        transaction with the records that it has written. A copy that `goes_on` ends at the end of
        the plan's spans, and is not done: a later one takes it further. `begin` is called when
        others are fenced, and may refuse.
        """
        request = plan.request
        journal.ensure_journal(self._target)
        with Producer(
            self._target,
            transactional_id=f"headrace-replay-{escaped(request.fences or request.name)}",
        ) as producer:
            # First fence any other process with this name, then read how far it came: nothing
            # happens in between.
            producer.prepare_transactions()
            if begin is not None:
                begin()
            entry = journal.read_journal(self._target).copies.get(request.name)
            plan.to_topic_id = self._target_id(request)
            if entry is None:
                entry = self._begun(plan)
            else:
                _require_same(entry, plan)
            if goes_on:
                entry.ends |= {p: max(entry.ends[p], plan.spans[p][1]) for p in entry.ends}
            if read is None:
                self._pass_deleted(entry)
            wanted = selection.from_json(entry.asked["selection"])
            check = (lambda: None) if read is not None else self._same_topics(plan)
            writer = _Writer(producer, entry, self._now_ms, check)
            dress = dress or _copy_of(entry.to_topic, plan)
            spans = {p: (entry.next[p], end) for p, end in entry.ends.items()}
            for record in (read or self._read_topic(request.topic))(spans):
                copy = _chosen(record, wanted, request, dress)
                wait_s = 0.0
                if not isinstance(copy, _Left):
                    wait_s = pace.wait_s(record.timestamp_ms, self._clock())
                if writer.is_full or wait_s > LONG_WAIT_S:
                    yield _committed(writer, on_written)
                if wait_s > 0:
                    self._sleep(wait_s)
                writer.add(record, copy)
            entry.next = dict(entry.ends)  # behind the last record there were markers only
            if on_written is not None and writer.has_copies:
                # If it is killed before `on_written` gets the last records, it must not count as
                # done.
                yield _committed(writer, on_written)
            if not goes_on:
                entry.state = journal.DONE
            yield writer.commit()

    def _pass_deleted(self, entry: CopyEntry) -> None:
        """Records that were deleted since the plan cannot be copied: they are counted."""
        with closing(Browser(self._source, entry.topic)) as browser:
            lows = browser.beginnings(list(entry.next))
        for p, at in entry.next.items():
            low = min(lows.get(p, at), entry.ends[p])
            if low > at:
                entry.deleted += low - at
                entry.next[p] = low

    def _same_topics(self, plan: CopyPlan) -> Callable[[], None]:
        """Returns a check, to be called before a commit: it raises if the topics are not those of
        the plan."""
        request = plan.request
        source, target = Topics(self._source), Topics(self._target)

        def check() -> None:
            if source.ids([request.topic])[request.topic] != plan.topic_id:
                raise _made_anew(request.topic, request.name)
            if target.ids([request.to_topic])[request.to_topic] != plan.to_topic_id:
                raise _made_anew(request.to_topic, request.name)

        return check

    def _read_topic(self, topic: str) -> Read:
        def read(spans: Spans) -> Iterator[Record]:
            with closing(TimeOrderedReader(self._source, topic, spans)) as reader:
                yield from reader.records()

        return read

    def _begun(self, plan: CopyPlan) -> CopyEntry:
        request = plan.request
        return CopyEntry(
            name=request.name,
            topic=request.topic,
            topic_id=plan.topic_id,
            to_topic=request.to_topic,
            to_topic_id=plan.to_topic_id,
            asked={"selection": selection.as_json(request.selection)},
            next={p: first for p, (first, _) in plan.spans.items()},
            ends={p: end for p, (_, end) in plan.spans.items()},
            by=request.by,
            began_at_ms=self._now_ms(),
        )


def _chosen(
    record: Record, wanted: Selection, request: CopyRequest, dress: Dress
) -> Outgoing[bytes, bytes] | _Left:
    if not wanted.accepts(record):
        return _Left.NOT_MEANT
    if request.loop_guarded and would_loop(record, request.to_topic):
        return _Left.BEEN_THERE
    return dress(record) or _Left.NOT_MEANT


def _committed(writer: _Writer, on_written: OnWritten | None) -> CopyEntry:
    entry = writer.commit()
    if on_written is not None:
        on_written(writer.written)
    return entry


class _Left(Enum):
    """Why a record is not copied."""

    NOT_MEANT = auto()
    BEEN_THERE = auto()


class _Writer:
    """Gathers records for one transaction."""

    def __init__(
        self,
        producer: Producer,
        entry: CopyEntry,
        now_ms: Callable[[], int],
        check: Callable[[], None],
    ) -> None:
        self._check = check  # raises where what was read must not be written
        self._meant: list[Record] = []
        self.written: list[Record] = []  # by the last transaction
        self._producer = producer
        self._entry = entry
        self._now_ms = now_ms
        self._copies: list[Outgoing[bytes, bytes]] = []
        self._reached: dict[int, int] = {}
        self._bytes = 0
        self._read = 0

    @property
    def has_copies(self) -> bool:
        return bool(self._copies)

    @property
    def is_full(self) -> bool:
        return (
            len(self._copies) >= RECORDS_PER_TRANSACTION
            or self._bytes >= BYTES_PER_TRANSACTION
            or self._read >= PASSED_PER_TRANSACTION
        )

    def add(self, record: Record, copy: Outgoing[bytes, bytes] | _Left) -> None:
        self._reached[record.partition] = record.offset + 1
        self._read += 1
        if copy is _Left.NOT_MEANT:
            self._entry.passed_over += 1
        elif copy is _Left.BEEN_THERE:
            self._entry.looped += 1
        else:
            assert isinstance(copy, Outgoing)
            self._copies.append(copy)
            self._meant.append(record)
            self._bytes += len(copy.value or b"") + len(copy.key or b"")

    def commit(self) -> CopyEntry:
        self._check()
        entry = self._entry
        entry.next = {p: max(at, self._reached.get(p, at)) for p, at in entry.next.items()}
        entry.copied += len(self._copies)
        entry.at_ms = self._now_ms()
        with _refusals_in_words(entry.to_topic), self._producer.transaction():
            for copy in self._copies:
                self._producer.send_one_way(
                    copy.topic,
                    copy.value,
                    key=copy.key,
                    headers=copy.headers,
                    partition=copy.partition,
                    timestamp_ms=copy.timestamp_ms,
                )
            self._producer.send_one_way(JOURNAL_TOPIC, journal.written(entry), key=entry.key)
        self.written, self._meant = self._meant, []
        self._copies.clear()
        self._bytes = self._read = 0
        return entry


# The errors of a topic that refuses records, and the remedies.
REFUSALS = {
    "INVALID_TIMESTAMP": "the time of a record is outside of what the topic takes "
    "(message.timestamp.before.max.ms, message.timestamp.after.max.ms): use --times now, or change "
    "these settings",
    "INVALID_RECORD": "a compacted topic takes no record without a key: choose others with --where",
    "MSG_SIZE_TOO_LARGE": "a record with the headers of its copy is larger than max.message.bytes "
    "of the topic: raise it",
}


@contextmanager
def _refusals_in_words(topic: str) -> Iterator[None]:
    try:
        yield
    except ClientError as refused:
        for code, why in REFUSALS.items():
            if code == refused.code or code == getattr(refused.__cause__, "code", None):
                raise CannotCopy(f"Topic {topic} refused records: {why}.") from refused
        raise


def _copy_of(to_topic: str, plan: CopyPlan) -> Dress:
    def dress(record: Record) -> Outgoing[bytes, bytes]:
        headers: HeaderList = with_trail(record)
        partition = record.partition if plan.same_partitions else None
        time_ms = None if plan.request.times_now else record.timestamp_ms
        return Outgoing(to_topic, record.value, record.key, headers, partition, time_ms)

    return dress


def _spans(browser: Browser, request: CopyRequest) -> tuple[Spans, list[int]]:
    """The ranges to read, and the partitions where an open transaction hides the rest."""
    chosen = browser.partitions if request.partitions is None else request.partitions
    for partition in chosen:
        if partition not in browser.partitions:
            raise CannotCopy(
                f"Topic {request.topic} has no partition {partition}; it has "
                f"{len(browser.partitions)}, counted from 0."
            )
    lows, ends = browser.beginnings(chosen), browser.ends(chosen)
    since_ms = request.selection.since_ms
    firsts = lows if since_ms is None else browser.at_time(chosen, since_ms)
    spans: Spans = {}
    for p in chosen:
        if p not in lows or p not in ends or p not in firsts:
            raise CannotCopy(f"{request.topic}-{p} has no leader now; try again later.")
        first = max(firsts[p], lows[p], request.from_offset or 0)
        end = ends[p] if request.to_offset is None else min(ends[p], request.to_offset)
        spans[p] = (min(first, end), end)
    latest = Topics(browser.connection).spans([request.topic]).get(request.topic, {})
    hidden = [
        p
        for p in chosen
        if p in latest
        and latest[p][1] > ends[p]
        and (request.to_offset is None or request.to_offset > ends[p])
    ]
    return spans, hidden


def _require_same(entry: CopyEntry, plan: CopyPlan) -> None:
    request = plan.request
    if entry.state == journal.DONE:
        raise CannotCopy(
            f"The replay {entry.name} is done: {entry.copied:,} records were copied. To do it once "
            "more give it another name with --name."
        )
    if (entry.topic, entry.to_topic) != (request.topic, request.to_topic):
        raise CannotCopy(
            f"The replay {entry.name} copies {entry.topic} to {entry.to_topic}: give this one "
            "another name with --name."
        )
    if entry.topic_id != plan.topic_id:
        raise _made_anew(entry.topic, entry.name)
    if entry.to_topic_id and entry.to_topic_id != plan.to_topic_id:
        raise _made_anew(entry.to_topic, entry.name)


def _made_anew(topic: str, name: str) -> CannotCopy:
    return CannotCopy(
        f"Topic {topic} was deleted and created again since the replay {name} began: begin another "
        "one with --name."
    )
