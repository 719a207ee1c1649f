"""Lag: counts the records that a reader at an offset can still get.

The distance to the end of a partition is not that number. The end also counts transaction markers,
so a group that has read everything would stay one behind for ever; records of aborted transactions
are never delivered; and records before the log start offset are deleted. So where a reader is close
to the end, the headers of the batches after its offset are fetched and examined (public protocol
only: ListOffsets, Fetch). Records of a transaction that is still open count: they are in the log,
and most of them will be delivered.

Rules: one ListOffsets for each leader and thousand partitions, a second one for the log start
offsets of the partitions with a distance, and at most `ROUNDS` times as many fetches of a few bytes
for each partition. A reader that is further from the end than `CLOSE` has real records before it,
and the distance is the answer. The distance is also the answer where a fetch is refused (describing
a topic is not reading it), and where more than `MOST_FETCHED` partitions would have to be fetched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.wire.protocol.errors import ErrorCode, MalformedMessage
from headrace.wire.protocol.messages import fetch, list_offsets
from headrace.wire.protocol.record_batch.header import HEADER_SIZE, BatchHeader, read_header

Address = tuple[str, int]
Place = tuple[str, int]  # topic, partition
Item = TypeVar("Item")

EARLIEST, LATEST, CLIENT = -2, -1, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PARTITIONS_AT_ONCE = 1_000
# A transaction of one record takes two offsets, so this is a tail of fifty small ones.
CLOSE = 100
# 26 markers, or the header of the first batch; a batch that is cut off has its header too.
FETCHED_BYTES = 2_048
# The first batch of an answer comes whole, however large it is; the others need room too.
SPARE_BYTES = 16 << 20
ROUNDS = 4
MOST_FETCHED = 5_000
# Later versions name topics by id, which librdkafka's metadata does not have.
LAST_FETCH_BY_NAME = 12


@dataclass(slots=True)
class Unread:
    """The partitions at the time of the request; those without a leader are missing."""

    starts: dict[Place, int] = field(default_factory=dict)  # only where something may be unread
    ends: dict[Place, int] = field(default_factory=dict)
    # For a tail: how many of its offsets hold no record for a reader.
    hollow: dict[tuple[Place, int], int] = field(default_factory=dict)

    def first(self, place: Place, offset: int | None) -> int:
        """The next offset of a reader at this offset: not before the log start offset."""
        return max(self.starts.get(place, 0), offset or 0)

    def after(self, place: Place, offset: int | None) -> int | None:
        """The number of records from this offset on, or from the first one if it is None. Returns
        None if there is no leader."""
        end = self.ends.get(place)
        if end is None:
            return None
        first = self.first(place, offset)
        return max(end - first - self.hollow.get((place, first), 0), 0)


class UnreadCounter:
    """Asks the leaders of `cluster` (librdkafka's metadata) through connections that `wire_to`
    opens and its owner closes."""

    def __init__(self, cluster: Any, wire_to: Callable[[Address], Wire]) -> None:
        self._cluster = cluster
        self._wire_to = wire_to

    def look(self, readers: Mapping[Place, Iterable[int | None]]) -> Unread:
        """Count for readers at these offsets of these partitions; None is a reader without a
        commit."""
        found = Unread(ends=self._offsets(readers, LATEST))
        unsure = {
            place: offsets
            for place, offsets in readers.items()
            if place in found.ends and any(at is None or at < found.ends[place] for at in offsets)
        }
        found.starts = self._offsets(unsure, EARLIEST)
        tails = {
            (place, max(at or 0, found.starts[place]))
            for place, offsets in unsure.items()
            if place in found.starts
            for at in offsets
        }
        close = [(p, at) for p, at in tails if 0 < found.ends[p] - at <= CLOSE]
        close.sort(key=lambda tail: (found.ends[tail[0]] - tail[1], tail))
        self._look_into([_Tail(p, at, found.ends[p]) for p, at in close[:MOST_FETCHED]], found)
        return found

    def _look_into(self, tails: list[_Tail], found: Unread) -> None:
        for _ in range(ROUNDS):
            if not tails:
                return
            asked: dict[Place, _Tail] = {}
            for tail in tails:  # a request names a partition once; another reader of it waits
                asked.setdefault(tail.place, tail)
            for address, places in self._by_leader(asked).items():
                for some in _slices(places, PARTITIONS_AT_ONCE):
                    with suppress(ClientError):
                        for place, answer in self._fetched(address, [asked[p] for p in some]):
                            asked[place].take(answer)
            for tail in asked.values():
                found.hollow[tail.place, tail.offset] = tail.hollow
            tails = [tail for tail in tails if tail not in asked.values() or tail.goes_on]

    def _fetched(
        self, address: Address, tails: Sequence[_Tail]
    ) -> Iterator[tuple[Place, fetch.PartitionData]]:
        by_topic: dict[str, list[fetch.FetchPartition]] = defaultdict(list)
        for tail in tails:
            asked = fetch.FetchPartition(
                tail.place[1], fetch_offset=tail.next, partition_max_bytes=FETCHED_BYTES
            )
            by_topic[tail.place[0]].append(asked)
        request = fetch.FetchRequest(
            max_bytes=len(tails) * FETCHED_BYTES + SPARE_BYTES,
            isolation_level=READ_COMMITTED,
            topics=[fetch.FetchTopic(topic, partitions=of) for topic, of in by_topic.items()],
        )
        wire = self._wire_to(address)
        version = min(wire.version_of(fetch), LAST_FETCH_BY_NAME)
        for topic in wire.ask(fetch, request, version=version).responses:
            for each in topic.partitions:
                if each.error_code == ErrorCode.NONE:
                    yield (topic.topic, each.partition_index), each

    def _offsets(self, places: Iterable[Place], which: int) -> dict[Place, int]:
        """End offsets (LATEST) are high watermarks, as Kafka's own tools count them."""
        found: dict[Place, int] = {}
        for address, led in self._by_leader(places).items():
            for some in _slices(led, PARTITIONS_AT_ONCE):
                with suppress(ClientError):
                    found.update(self._offsets_at(address, some, which))
        return found

    def _offsets_at(
        self, address: Address, places: Sequence[Place], which: int
    ) -> Iterator[tuple[Place, int]]:
        by_topic: dict[str, list[list_offsets.ListOffsetsPartition]] = defaultdict(list)
        for topic, partition in places:
            by_topic[topic].append(list_offsets.ListOffsetsPartition(partition, -1, which))
        request = list_offsets.ListOffsetsRequest(
            CLIENT,
            READ_UNCOMMITTED,
            [list_offsets.ListOffsetsTopic(name, asked) for name, asked in by_topic.items()],
        )
        for answered in self._wire_to(address).ask(list_offsets, request).topics:
            for each in answered.partitions:
                if each.error_code == ErrorCode.NONE:
                    yield (answered.name, each.partition_index), each.offset

    def _by_leader(self, places: Iterable[Place]) -> dict[Address, list[Place]]:
        found: dict[Address, list[Place]] = defaultdict(list)
        for topic, partition in sorted(places):
            known = self._cluster.topics.get(topic)
            there = None if known is None else known.partitions.get(partition)
            broker = None if there is None else self._cluster.brokers.get(there.leader)
            if broker is not None:
                found[str(broker.host), broker.port].append((topic, partition))
        return found


class _Tail:
    """The batches between a reader's offset and the end, as far as they were fetched."""

    __slots__ = ("end", "goes_on", "hollow", "next", "offset", "place")

    def __init__(self, place: Place, offset: int, end: int) -> None:
        self.place, self.offset, self.end = place, offset, end
        self.next = offset
        self.hollow = 0
        self.goes_on = False  # only offsets without records so far, and the end is not reached

    def take(self, answer: fetch.PartitionData) -> None:
        """Add a fetch with READ_COMMITTED from `next` on. Batches older than magic 2, which Apache
        Kafka up to 3 may hold, are not unpacked."""
        before, readable = self.next, 0
        aborted = _Aborted(answer.aborted_transactions or ())
        with suppress(MalformedMessage):
            for header in headers_of(answer.records or b""):
                is_hidden = aborted.hide(header)  # also for skipped batches
                first = max(header.base_offset, self.next)
                after = min(header.last_offset + 1, self.end)
                if after <= first:
                    continue
                records = 0 if is_hidden else min(header.record_count, after - first)
                self.hollow += after - self.next - records  # also offsets removed by compaction
                readable += records
                self.next = after
        self.goes_on = before < self.next < self.end and not readable


class _Aborted:
    """The aborted transactions of one answer, walked along with its batches."""

    def __init__(self, transactions: Iterable[fetch.AbortedTransaction]) -> None:
        self._begin: dict[int, list[int]] = defaultdict(list)  # offsets, by producer
        for each in sorted(transactions, key=lambda each: each.first_offset):
            self._begin[each.producer_id].append(each.first_offset)

    def hide(self, header: BatchHeader) -> bool:
        """Whether this batch is hidden from a reader of committed records."""
        begin = self._begin.get(header.producer_id)
        if not begin or begin[0] > header.base_offset or not header.is_transactional:
            return header.is_control
        if header.is_control:
            begin.pop(0)  # its abort marker
        return True


def headers_of(batches: bytes | memoryview) -> Iterator[BatchHeader]:
    """The header of each batch, also of a last one that is cut off after its header."""
    pos = 0
    while len(batches) - pos >= HEADER_SIZE:
        header = read_header(batches, pos)
        yield header
        pos += header.size


class Wires:
    """Connections to brokers, opened when they are needed; use it in a `with` statement."""

    def __init__(self, connection: ClientSettings) -> None:
        self._connection = connection
        self._open: dict[Address, Wire] = {}

    def __enter__(self) -> Wires:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for wire in self._open.values():
            wire.close()
        self._open.clear()

    def to(self, address: Address) -> Wire:
        if address not in self._open:
            self._open[address] = Wire(self._connection, address)
        return self._open[address]


def unread(
    connection: ClientSettings, cluster: Any, readers: Mapping[Place, Iterable[int | None]]
) -> Unread:
    """Count once, with connections of its own."""
    with Wires(connection) as wires:
        return UnreadCounter(cluster, wires.to).look(readers)


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
