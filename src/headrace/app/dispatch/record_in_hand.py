"""A record that a worker holds, from when it is read until it is done or written elsewhere.

Its first place, id and count of attempts come from the headers that a retry carries; for most
records nothing is parsed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Protocol

from headrace.app import headers as names
from headrace.app.message import Message
from headrace.app.once.message_ids import place_id, sent_id
from headrace.app.retries.carried_headers import Carried, carried_by, is_ours, is_replaced
from headrace.client.records import HeaderList, Outgoing

if TYPE_CHECKING:
    from headrace.app.dispatch.owned_partition import OwnedPartition, Stream


class FetchedRecord(Protocol):
    """A record as the client fetched it: the part of librdkafka's message that is used here.

    Its headers are read by `headers_of` of its stream.
    """

    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]:
        """The type of the timestamp, 0 if there is none, and its milliseconds."""
        ...


class DeliveredRecord(FetchedRecord, Protocol):
    """A record as a share group delivers it, with the number of its deliveries."""

    def delivery_count(self) -> int:
        """The number of deliveries, this one included."""
        ...


class RecordInHand:
    """One record. One is built for each record read, so it has no more fields than it needs."""

    __slots__ = ("native", "stream", "offset", "lane", "made", "came", "_carried")
    came: int  # its number among all records; kept by the lanes

    def __init__(self, native: FetchedRecord, stream: Stream, offset: int, lane: Hashable) -> None:
        self.native = native
        self.stream = stream
        self.offset = offset
        self.lane = lane
        self.made = 0  # attempts made so far
        self._carried: Carried | None = None

    @property
    def origin_offset(self) -> int:
        origin = self.carried.origin
        return self.offset if origin is None else origin[2]

    @property
    def due_ms(self) -> int:
        """Earliest time of the next attempt; 0 for records of the source partition."""
        return self.carried.due_ms

    @property
    def owned(self) -> OwnedPartition:
        return self.stream.owned

    @property
    def carried(self) -> Carried:
        if self._carried is None:
            stream = self.stream
            self._carried = (
                carried_by(stream.headers_of(self.native)) if stream.carries else Carried()
            )
        return self._carried

    def message(self) -> Message:
        """The message for a handler."""
        native, carried = self.native, self.carried
        timestamp_ms = native.timestamp()[1]
        place = self.stream.place
        origin = carried.origin or (place.topic, place.partition, self.offset)
        headers = self.stream.headers_of(native)
        plain = [pair for pair in headers if not is_ours(pair[0])]
        return Message(
            topic=origin[0],
            partition=origin[1],
            offset=origin[2],
            key=_bytes(native.key()),
            value=_bytes(native.value()),
            headers=plain,
            timestamp_ms=carried.origin_at_ms if carried.origin else (timestamp_ms or None),
            id=self._id_by(headers),
            attempt=self.made + 1,
            read_from=place,
            read_offset=self.offset,
            redrives=carried.redrives,
        )

    @property
    def message_id(self) -> str:
        """The id of the message: the same through delay, retry and redrive."""
        return self._id_by(self.stream.headers_of(self.native))

    def _id_by(self, headers: HeaderList) -> str:
        carried = self.carried
        if carried.message_id is not None:
            return carried.message_id
        given = sent_id(headers)
        if given is not None:
            return given
        topic, partition, offset = carried.origin or (*self.stream.place, self.offset)
        # A record of the retry topic without an id came from elsewhere; its topic is unknown.
        return place_id(f"{topic}/{partition}/{offset}", self.stream.topic_id)

    @property
    def origin_text(self) -> str:
        """The place where it was first read, as text for people."""
        topic, partition, offset = self.carried.origin or (*self.stream.place, self.offset)
        return f"{topic}/{partition}/{offset}"

    @property
    def written_at_ms(self) -> int | None:
        """The time when the record was first written; None if it is unknown."""
        if self.carried.origin is not None:
            return self.carried.origin_at_ms
        kind, timestamp_ms = self.native.timestamp()
        return timestamp_ms if kind else None

    def copy_for(
        self, topic: str, *, made: int, first_failed_ms: int, worker: str, more: HeaderList
    ) -> Outgoing[Any, Any]:
        """A copy of the whole record, for its retry topic or its dead letters.

        `worker` names the process that made the attempt, for people who search its log.
        """
        native, carried = self.native, self.carried
        at, at_ms = carried.origin or (*self.stream.place, self.offset), self.written_at_ms
        kept = [pair for pair in self.stream.headers_of(native) if not is_replaced(pair[0])]
        kept.append((names.ATTEMPT, b"%d" % made))
        kept.append((names.FIRST_FAILED_AT, b"%d" % (carried.first_failed_ms or first_failed_ms)))
        kept.append((names.ORIGIN, f"{at[0]}/{at[1]}/{at[2]}".encode()))
        if at_ms is not None:
            kept.append((names.ORIGIN_AT, b"%d" % at_ms))
        kept.append((names.CARRIED_ID, self.message_id.encode()))
        kept.append((names.WORKER, worker.encode("utf-8", "replace")))
        return Outgoing(
            topic, native.value(), native.key(), kept + more, self.stream.partition, None
        )


def lane_of_key(owned: OwnedPartition, native: FetchedRecord, unkeyed: int) -> Hashable:
    """The lane of a record; a record without a key has its own lane, with a number of its own."""
    key = native.key()
    return (owned, key) if key is not None else (owned, unkeyed)


def lane_alone(record: RecordInHand) -> Hashable:
    """The lane of a record without order: it waits in the retry partition by itself."""
    return record.owned, record.offset if record.stream.retry else -1 - record.offset


def retried_record(
    native: FetchedRecord, stream: Stream, offset: int, lane: Hashable
) -> RecordInHand:
    """A record of a retry partition."""
    record = RecordInHand(native, stream, offset, lane)
    record.made = record.carried.made
    return record


def _bytes(given: Any) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
