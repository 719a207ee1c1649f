"""Pages of a topic's records for a person, forwards or backwards; every cost has a bound.

Uses our own codecs: one request per broker and round, nothing is fetched ahead, no group is needed,
and every page ends at its bounds of records, bytes and seconds. A page reports what it did not
reach (`Page.next`, `Page.unread`). Only committed records are shown; records of aborted
transactions and the markers between them are included, marked, on request. Not for consuming.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.client.connection import ClientSettings, addresses
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.client.records import Record
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.control_records import ControlKind, kind_of
from headrace.wire.protocol.errors import ErrorCode, MalformedMessage
from headrace.wire.protocol.messages import fetch, list_offsets, metadata
from headrace.wire.protocol.record_batch import BatchHeader, headers_in, walk

Address = tuple[str, int]
Offsets = dict[int, int]  # by partition

CLIENT = -1  # ListOffsets' replica id
EARLIEST, LATEST = -2, -1
READ_COMMITTED = 1
# One answer of one broker; a batch that is larger is sent whole.
ANSWER_BYTES = 1 << 20
# A batch that unpacks to more is passed over, and the page says so.
UNPACKED_BYTES = 32 << 20
# For one page: a megabyte of compressed batches can become a gigabyte.
UNPACKED_IN_ALL_BYTES = 96 << 20
# How far back the newest records are searched at first, in offsets, and the factor for later steps:
# large records fit into the first step, later steps cross holes (compaction, markers).
FIRST_STEP, FURTHER = 16, 8
MARKERS: dict[int, str] = {ControlKind.COMMIT: "commit", ControlKind.ABORT: "abort"}


@dataclass(slots=True, frozen=True)
class Bounds:
    """The bounds of one page."""

    records: int = 20_000  # looked at
    bytes: int = 16 << 20  # from the brokers
    seconds: float = 3.0


USUAL = Bounds()


@dataclass(slots=True)
class Seen:
    """A record, and the log's information about it."""

    record: Record
    marker: str | None = None  # for a control record: "commit", "abort" or "control"
    producer_id: int | None = None  # for a transactional record
    aborted: bool = False

    @property
    def is_data(self) -> bool:
        return self.marker is None and not self.aborted


@dataclass(slots=True)
class Page:
    found: list[Seen] = field(default_factory=list)
    next: Offsets = field(default_factory=dict)  # where the next page begins, in its direction
    looked_at: int = 0  # records that were read
    bytes: int = 0
    at_the_end: bool = True  # False: a bound was reached first
    skipped: int = 0  # by a tail that could not keep up
    unread: dict[int, str] = field(default_factory=dict)  # partitions, and why


Accepts = Callable[[Seen], bool]


def is_data(seen: Seen) -> bool:
    """Whether a page shows it by default: not a marker, not aborted."""
    return seen.is_data


class Browser:
    """One topic; keeps a connection to each broker until `close`. For one thread at a time."""

    def __init__(
        self, connection: ClientSettings, topic: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.topic = topic
        self.connection = connection
        self._clock = clock
        self._wires: dict[Address, Wire] = {}
        with self._any_broker() as wire:
            wanted = [metadata.MetadataRequestTopic(name=topic)]
            answer = wire.ask(metadata, metadata.MetadataRequest(wanted, False))
        [found] = answer.topics
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NoSuchTopic(f"There is no topic {topic}.")
        require_no_error(found.error_code)
        brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        self.topic_id = found.topic_id  # another id if the topic was created again
        self._leaders = {
            each.partition_index: brokers[each.leader_id]
            for each in found.partitions
            if each.leader_id in brokers
        }
        self.partitions = sorted(each.partition_index for each in found.partitions)

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def _any_broker(self) -> Wire:
        *others, last = addresses(self.connection.bootstrap)
        for address in others:
            try:
                return Wire(self.connection, address)
            except ClientError:
                continue
        return Wire(self.connection, last)

    # ---- first and end offsets

    def beginnings(self, partitions: Iterable[int]) -> Offsets:
        return self._offsets(partitions, EARLIEST)

    def ends(self, partitions: Iterable[int]) -> Offsets:
        """The last stable offset of each partition. A partition without a leader is left out."""
        return self._offsets(partitions, LATEST)

    def at_time(self, partitions: Iterable[int], wall_ms: int) -> Offsets:
        """The offset of the first record that is not older; the end where there is none. Partitions
        whose leader does not answer are left out."""
        partitions = list(partitions)
        found, ends = self._offsets(partitions, max(wall_ms, 0)), self.ends(partitions)
        return {
            p: offset if offset >= 0 else ends[p]
            for p, offset in found.items()
            if offset >= 0 or p in ends
        }

    def _offsets(self, partitions: Iterable[int], which: int) -> Offsets:
        found: Offsets = {}
        for address, led in self._by_leader(partitions).items():
            places = [list_offsets.ListOffsetsPartition(p, -1, which) for p in led]
            request = list_offsets.ListOffsetsRequest(
                CLIENT, READ_COMMITTED, [list_offsets.ListOffsetsTopic(self.topic, places)]
            )
            try:
                answer = self._wire(address).ask(list_offsets, request)
            except ClientError:
                self._drop(address)
                continue
            for each in answer.topics[0].partitions:
                if each.error_code == ErrorCode.NONE:
                    found[each.partition_index] = each.offset
        return found

    def _by_leader(self, partitions: Iterable[int]) -> dict[Address, list[int]]:
        shared: dict[Address, list[int]] = {}
        for partition in partitions:
            if partition in self._leaders:
                shared.setdefault(self._leaders[partition], []).append(partition)
        return shared

    def _wire(self, address: Address) -> Wire:
        if address not in self._wires:
            self._wires[address] = Wire(self.connection, address)
        return self._wires[address]

    def _drop(self, address: Address) -> None:
        """Close a connection: with a half-read answer it cannot be used again."""
        if (wire := self._wires.pop(address, None)) is not None:
            wire.close()

    # ---- pages

    def onwards(
        self,
        starts: Mapping[int, int],
        *,
        want: int,
        accepts: Accepts = is_data,
        bounds: Bounds = USUAL,
    ) -> Page:
        """A page from these offsets towards the ends, the oldest record first."""
        reading = _Reading(self, bounds)
        ends = self.ends(starts)
        low = self.beginnings(starts)
        at = {p: max(offset, low.get(p, 0)) for p, offset in starts.items() if p in ends}
        found: dict[int, list[Seen]] = {p: [] for p in at}
        open_ = {p for p in at if at[p] < ends[p]}
        while open_ and reading.may_go_on():
            for partition, seen, reached in reading.read({p: at[p] for p in open_}, ends):
                taken, left = reading.take(seen, accepts)
                found[partition] += taken
                at[partition] = reached if left is None else left
            open_ = {
                p
                for p in open_
                if at[p] < ends[p] and len(found[p]) < want and p not in reading.page.unread
            }
        page = reading.page
        self._note_leaderless(page, starts, ends)
        # A merge keeps the order of each partition, whatever timestamps its producers wrote.
        everything = list(heapq.merge(*found.values(), key=_moment))
        page.found, rest = everything[:want], everything[want:]
        page.next = dict(at)
        for one in rest:  # the first that is not shown is where the next page begins
            place = one.record.partition
            page.next[place] = min(page.next[place], one.record.offset)
        page.at_the_end = all(page.next[p] >= ends[p] for p in page.next)
        return page

    def backwards(
        self,
        befores: Mapping[int, int],
        *,
        want: int,
        accepts: Accepts = is_data,
        bounds: Bounds = USUAL,
    ) -> Page:
        """A page from before these offsets towards the beginnings, the newest record first."""
        reading = _Reading(self, bounds)
        lows = self.beginnings(befores)
        at = {p: offset for p, offset in befores.items() if p in lows}
        found: dict[int, list[Seen]] = {p: [] for p in at}
        step = FIRST_STEP
        open_ = {p for p in at if at[p] > lows[p]}
        while open_ and reading.may_go_on():
            windows = {p: (max(lows[p], at[p] - step), at[p]) for p in open_}
            for partition, seen in self._windows(reading, windows).items():
                taken, left = reading.take(seen[::-1], accepts)
                found[partition] += taken
                at[partition] = windows[partition][0] if left is None else left + 1
            open_ = {
                p
                for p in open_
                if at[p] > lows[p] and len(found[p]) < want and p not in reading.page.unread
            }
            step *= FURTHER
        page = reading.page
        self._note_leaderless(page, befores, lows)
        everything = list(heapq.merge(*found.values(), key=_moment, reverse=True))
        page.found, rest = everything[:want], everything[want:]
        page.next = dict(at)
        for one in rest:
            place = one.record.partition
            page.next[place] = max(page.next[place], one.record.offset + 1)
        page.at_the_end = all(page.next[p] <= lows[p] for p in page.next)
        return page

    def _windows(
        self, reading: _Reading, windows: Mapping[int, tuple[int, int]]
    ) -> dict[int, list[Seen]]:
        """Use whole windows only: half a window would lack its newest records."""
        found: dict[int, list[Seen]] = {p: [] for p in windows}
        at = {p: begin for p, (begin, _) in windows.items()}
        untils = {p: until for p, (_, until) in windows.items()}
        open_ = set(windows)
        while open_ and reading.may_go_on():
            for partition, seen, reached in reading.read({p: at[p] for p in open_}, untils):
                found[partition] += seen
                at[partition] = reached
            open_ = {p for p in open_ if at[p] < untils[p] and p not in reading.page.unread}
        return {p: seen for p, seen in found.items() if at[p] >= untils[p]}

    def at(self, partition: int, offset: int) -> Seen | None:
        """The record at an offset; None if there is none (compaction, retention, the end)."""
        reading = _Reading(self, USUAL)
        found = self._windows(reading, {partition: (offset, offset + 1)})
        return next(iter(found.get(partition, ())), None)

    def fresh(self, since: Mapping[int, int], *, most: int, bounds: Bounds = USUAL) -> Page:
        """The records since these offsets, at most the newest `most` of each partition: the cost is
        the same for a busy topic. `next` has the offsets for the next call."""
        reading = _Reading(self, bounds)
        ends = self.ends(since)
        starts = {p: max(since[p], end - most) for p, end in ends.items() if end > since[p]}
        read = self._windows(reading, {p: (start, ends[p]) for p, start in starts.items()})
        page = reading.page
        page.found = list(heapq.merge(*read.values(), key=_moment))
        page.skipped = sum((starts[p] if p in read else ends[p]) - since[p] for p in starts)
        page.next = {**since, **{p: end for p, end in ends.items() if end > since[p]}}
        self._note_leaderless(page, since, ends)
        return page

    def _note_leaderless(
        self, page: Page, asked: Iterable[int], answered: Mapping[int, int]
    ) -> None:
        for partition in asked:
            if partition not in answered:
                page.unread.setdefault(partition, "no broker that leads it answers")

    # ---- one round

    def fetch(self, starts: Mapping[int, int]) -> Iterator[fetch.PartitionData]:
        """Send one request to each leader; those that do not answer are left out."""
        for address, led in self._by_leader(starts).items():
            places = [
                fetch.FetchPartition(
                    p, fetch_offset=starts[p], partition_max_bytes=ANSWER_BYTES // 4
                )
                for p in led
            ]
            request = fetch.FetchRequest(
                max_bytes=ANSWER_BYTES,
                isolation_level=READ_COMMITTED,
                topics=[fetch.FetchTopic(self.topic, self.topic_id, places)],
            )
            try:
                answer = self._wire(address).ask(fetch, request)
                require_no_error(answer.error_code)
            except ClientError:
                self._drop(address)
                continue
            for topic in answer.responses:
                yield from topic.partitions


class _Reading:
    """The rounds of one page: what they read, and how much of the bounds is left."""

    def __init__(self, browser: Browser, bounds: Bounds) -> None:
        self.page = Page()
        self._browser, self._bounds = browser, bounds
        self._deadline = browser._clock() + bounds.seconds
        self._hungry: list[int] = []  # got nothing in the last round, and are first in the next
        self._unpacked = 0  # bytes of the records that were read

    def may_go_on(self) -> bool:
        bounds, page = self._bounds, self.page
        page.at_the_end = (
            page.looked_at < bounds.records and page.bytes < bounds.bytes and not self._is_over()
        )
        return page.at_the_end

    def _is_over(self) -> bool:
        return self._unpacked >= UNPACKED_IN_ALL_BYTES or self._browser._clock() >= self._deadline

    def take(self, seen: list[Seen], accepts: Accepts) -> tuple[list[Seen], int | None]:
        """The accepted records, and the offset of the first record that was not tested because the
        time was over (None if all were): a filter may be slow, such as a schema that expands few
        bytes."""
        taken: list[Seen] = []
        for number, one in enumerate(seen):
            if number and self._browser._clock() >= self._deadline:
                return taken, one.record.offset
            if accepts(one):
                taken.append(one)
        return taken, None

    def read(
        self, starts: Mapping[int, int], untils: Mapping[int, int]
    ) -> Iterator[tuple[int, list[Seen], int]]:
        """Yields a partition, its records from the start on, and the offset that was reached. That
        is never after `untils`, although an answer may hold records that were written later."""
        hungry = [p for p in self._hungry if p in starts]
        ordered = {p: starts[p] for p in (*hungry, *starts)}
        answers = {each.partition_index: each for each in self._browser.fetch(ordered)}
        for partition in starts.keys() - answers.keys():
            self.page.unread[partition] = "its leader does not answer"
        filled = any(each.records for each in answers.values())
        self._hungry = [p for p, each in answers.items() if not each.records]
        for partition, each in answers.items():
            if each.error_code != ErrorCode.NONE:
                self.page.unread[partition] = _refusal(each.error_code)
            elif each.records:
                self.page.bytes += len(each.records)
                start, until = starts[partition], untils[partition]
                seen, reached = self._records(each, start, until)
                yield partition, seen, reached
            elif not filled:  # the answers had room for it: no records are left before `until`
                yield partition, [], untils[partition]

    def _records(
        self, answer: fetch.PartitionData, start: int, until: int
    ) -> tuple[list[Seen], int]:
        records, partition = bytes(answer.records or b""), answer.partition_index
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()
        )
        seen: list[Seen] = []
        aborting: set[int] = set()
        reached = start
        for pos, header in headers_in(records):
            if header.base_offset >= until:
                reached = until  # no records are left before it
                break
            while aborted and aborted[0][0] <= header.last_offset:
                aborting.add(aborted.pop(0)[1])
            if seen and self._is_over():
                break  # the page ends here, and the next one goes on
            if header.last_offset >= start:
                seen += self._of_batch(
                    partition, header, records[pos : pos + header.size], start, until, aborting
                )
            if header.is_control:
                aborting.discard(header.producer_id)  # this transaction is over
            reached = max(reached, min(header.last_offset + 1, until))
        return seen, reached

    def _of_batch(
        self,
        partition: int,
        header: BatchHeader,
        batch: bytes,
        start: int,
        until: int,
        aborting: set[int],
    ) -> list[Seen]:
        page = self.page
        kind = "append" if header.has_log_append_time else "create"
        is_aborted = header.is_transactional and header.producer_id in aborting
        seen = []
        try:
            for one in walk(batch, UNPACKED_BYTES):
                if start <= one.offset < until:
                    page.looked_at += 1
                    self._unpacked += len(one.key or b"") + len(one.value or b"")
                    headers = [(each.key, each.value) for each in one.headers]
                    stamp = one.timestamp if one.timestamp >= 0 else None
                    record = Record(
                        self._browser.topic,
                        partition,
                        one.offset,
                        stamp,
                        kind,
                        one.key,
                        one.value,
                        headers,
                    )
                    seen.append(
                        Seen(
                            record,
                            _marker(kind_of(one)) if header.is_control else None,
                            header.producer_id if header.is_transactional else None,
                            is_aborted and not header.is_control,
                        )
                    )
        except MalformedMessage as broken:
            page.unread[partition] = f"its batch at offset {header.base_offset} is passed: {broken}"
        return seen


def _marker(kind: int) -> str:
    return MARKERS.get(kind, "control")


def _moment(one: Seen) -> int:
    return one.record.timestamp_ms or 0


def _refusal(code: int) -> str:
    try:
        require_no_error(code)
    except ClientError as refusal:
        return str(refusal).rstrip(".")
    return ""
