"""A record in the hands of a worker, and the partition it belongs to.

`OwnedPartition` is a source partition that the group gave us, with the retry partition of the same
number, which is always ours as well. A `Job` is one record of either. Its original place, id and
count of attempts come from the headers that a retry carries; for most records nothing is parsed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message as NativeMessage

from headrace.app import headers as names
from headrace.app.blocked_keys import BlockedKeys
from headrace.app.completion import Completion
from headrace.app.message import Message
from headrace.app.message_ids import place_id, sent_id
from headrace.client.fetched import headers_of
from headrace.client.records import HeaderList, Outgoing, TopicPartition

if TYPE_CHECKING:
    from headrace.app.work import Work


class Stream:
    """One partition that is read: the source or its retry partition."""

    __slots__ = (
        "carries", "completion", "owned", "partition", "read_to", "retry", "topic", "committed",
    )  # fmt: skip

    def __init__(self, owned: OwnedPartition, topic: str, retry: bool) -> None:
        self.owned = owned
        self.topic = topic
        self.partition = owned.partition
        self.retry = retry
        # Whether records are copies that carry their first place and id in headers: in a topic
        # that anybody writes to such headers mean nothing.
        self.carries = retry or topic in owned.work.subscription.drained
        self.completion = Completion(0)
        self.committed: tuple[int, str] | None = None  # what the group's offset says
        self.read_to = 0  # where its end was when all of it had been read

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def committed_offset(self) -> int | None:
        return None if self.committed is None else self.committed[0]

    @property
    def topic_id(self) -> str | None:
        """Of a source; retries carry the id of the topic that they came from."""
        return None if self.retry else self.owned.topic_id


@dataclass(slots=True)
class Move:
    """A record whose place here is done when others are written, in one transaction with it.

    Either a copy of itself for the retry partition, or the records that its handler gave.
    """

    job: Job
    made: int = 0
    due_ms: int = 0
    records: list[Outgoing[Any, Any]] | None = None  # None: the copy
    ended: Callable[[], None] | None = None  # told when it is done, or its partition gone


class OwnedPartition:
    """A source partition of ours; all of it is guarded by its Work's lock."""

    __slots__ = (
        "work", "topic", "partition", "source", "retry", "blocked", "closing", "gone",
        "loading_to", "running", "moves", "moving", "paused", "topic_id",
        "arriving",
    )  # fmt: skip

    def __init__(
        self,
        work: Work,
        topic: str,
        partition: int,
        retry_topic: str | None,
        topic_id: str | None = None,
    ) -> None:
        self.work = work
        self.topic = topic
        self.topic_id = topic_id  # of the source; None: the cluster has no topic ids
        self.partition = partition
        self.source = Stream(self, topic, retry=False)
        self.retry = Stream(self, retry_topic, retry=True) if retry_topic else None
        self.blocked: BlockedKeys[Job] = BlockedKeys()
        self.closing = False  # begin nothing of it; what ends still counts
        self.gone = False  # given to another: nothing of it counts any more
        self.loading_to: int | None = None  # the end of the retry partition that must be read first
        self.running = 0  # records in runs that are out
        self.moves: list[Move] = []
        self.moving: list[Move] = []  # in a transaction whose end is not known
        self.paused = False
        self.arriving = 0  # records that were read and are not begun: see `arrivals.py`

    @property
    def streams(self) -> list[Stream]:
        return [self.source] if self.retry is None else [self.source, self.retry]

    @property
    def outstanding(self) -> int:
        return self.source.completion.outstanding + self.arriving


class Job:
    """One record. Built for each one that is read, so it has no more than it needs."""

    __slots__ = ("native", "stream", "offset", "lane", "made", "came", "_carried")
    came: int  # its number among all that came; kept by the lanes

    def __init__(self, native: NativeMessage, stream: Stream, offset: int, lane: Hashable) -> None:
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
        """Not before; of copies in the retry partition."""
        return self.carried.due_ms

    @property
    def owned(self) -> OwnedPartition:
        return self.stream.owned

    @property
    def carried(self) -> Carried:
        if self._carried is None:
            self._carried = carried_by(_headers(self.native)) if self.stream.carries else Carried()
        return self._carried

    def message(self) -> Message:
        """As a handler sees it."""
        native, carried = self.native, self.carried
        timestamp_ms = native.timestamp()[1]
        place = self.stream.place
        origin = carried.origin or (place.topic, place.partition, self.offset)
        plain = [pair for pair in _headers(native) if not _is_ours(pair[0])]
        return Message(
            topic=origin[0],
            partition=origin[1],
            offset=origin[2],
            key=_bytes(native.key()),
            value=_bytes(native.value()),
            headers=plain,
            timestamp_ms=carried.origin_at_ms if carried.origin else (timestamp_ms or None),
            id=self.message_id,
            attempt=self.made + 1,
            read_from=place,
            read_offset=self.offset,
            redrives=carried.redrives,
        )

    @property
    def message_id(self) -> str:
        """The same through delay, retry and redrive."""
        carried = self.carried
        if carried.message_id is not None:
            return carried.message_id
        given = sent_id(_headers(self.native))
        if given is not None:
            return given
        topic, partition, offset = carried.origin or (*self.stream.place, self.offset)
        # A record of the retry topic without an id came from elsewhere; nobody knows its topic.
        return place_id(f"{topic}/{partition}/{offset}", self.stream.topic_id)

    @property
    def origin_text(self) -> str:
        """Where it was first read, for people."""
        topic, partition, offset = self.carried.origin or (*self.stream.place, self.offset)
        return f"{topic}/{partition}/{offset}"

    @property
    def written_at_ms(self) -> int | None:
        """When the record was first written, as far as anybody said."""
        if self.carried.origin is not None:
            return self.carried.origin_at_ms
        kind, timestamp_ms = self.native.timestamp()
        return timestamp_ms if kind else None

    def copy_for(
        self, topic: str, *, made: int, first_failed_ms: int, more: HeaderList
    ) -> Outgoing[Any, Any]:
        """The whole record again, for its retry topic or its dead letters."""
        native, carried = self.native, self.carried
        at, at_ms = carried.origin or (*self.stream.place, self.offset), self.written_at_ms
        kept = [pair for pair in _headers(native) if not _is_replaced(pair[0])]
        kept.append((names.ATTEMPT, b"%d" % made))
        kept.append((names.FIRST_FAILED_AT, b"%d" % (carried.first_failed_ms or first_failed_ms)))
        kept.append((names.ORIGIN, f"{at[0]}/{at[1]}/{at[2]}".encode()))
        if at_ms is not None:
            kept.append((names.ORIGIN_AT, b"%d" % at_ms))
        kept.append((names.CARRIED_ID, self.message_id.encode()))
        kept.append((names.WORKER, worker_name().encode("utf-8", "replace")))
        return Outgoing(
            topic, native.value(), native.key(), kept + more, self.stream.partition, None
        )


def worker_name() -> str:
    """host/process: who made an attempt, for people who look for its log."""
    return f"{socket.gethostname()}/{os.getpid()}"


@dataclass(slots=True)
class Carried:
    """What the headers of a retry say."""

    made: int = 0
    first_failed_ms: int = 0  # 0: it has not failed yet
    origin: tuple[str, int, int] | None = None
    origin_at_ms: int | None = None
    message_id: str | None = None
    due_ms: int = 0
    redrives: int = 0
    others: HeaderList = field(default_factory=list)


def carried_by(given: HeaderList) -> Carried:
    """Headers that make no sense, because somebody else wrote them, count as not there."""
    found = {name: value.decode("utf-8", "replace") for name, value in given if value is not None}
    return Carried(
        made=_number(found.get(names.ATTEMPT)) or 0,
        first_failed_ms=_number(found.get(names.FIRST_FAILED_AT)) or 0,
        origin=_place(found.get(names.ORIGIN)),
        origin_at_ms=_number(found.get(names.ORIGIN_AT)),
        message_id=found.get(names.CARRIED_ID),
        due_ms=_number(found.get(names.DUE)) or 0,
        redrives=_number(found.get(names.REDRIVES)) or 0,
    )


def retry_job(native: NativeMessage, stream: Stream, offset: int, lane: Hashable) -> Job:
    """A record of a retry partition."""
    job = Job(native, stream, offset, lane)
    job.made = job.carried.made
    return job


_headers = headers_of


def _bytes(given: Any) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


def _is_ours(name: str) -> bool:
    return (
        name in names.RETRY
        or name in names.ON_THE_WAY
        or name == names.REDRIVES
        or name.startswith(names.DEAD_PREFIX)
    )


def _is_replaced(name: str) -> bool:
    return name in names.RETRY or name in names.ON_THE_WAY or name.startswith(names.DEAD_PREFIX)


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text)


def _place(text: str | None) -> tuple[str, int, int] | None:
    parts = (text or "").rsplit("/", 2)
    if len(parts) != 3:
        return None
    partition, offset = _number(parts[1]), _number(parts[2])
    if not parts[0] or partition is None or offset is None:
        return None
    return parts[0], partition, offset
