"""A source partition that the group gave us, with the retry partition of the same number.

The two belong together: the owner of the source also owns its retry partition.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from headrace.app.dispatch.blocked_keys import BlockedKeys
from headrace.app.dispatch.completion import Completion
from headrace.client.records import HeaderList, TopicPartition

if TYPE_CHECKING:
    from headrace.app.dispatch.effects import Move
    from headrace.app.dispatch.record_in_hand import FetchedRecord, RecordInHand


class Acknowledgement(Enum):
    """How a record that a share group delivered is acknowledged."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


# Reads the headers of a record as the client fetched it; any bytes may have been written there.
HeadersOf = Callable[[Any], HeaderList]


class Stream:
    """One partition that is read: the source or its retry partition."""

    __slots__ = (
        "carries", "completion", "headers_of", "owned", "partition", "read_to", "retry", "topic",
        "committed",
    )  # fmt: skip

    def __init__(self, owned: OwnedPartition, topic: str, *, retry: bool, carries: bool) -> None:
        self.owned = owned
        self.topic = topic
        self.partition = owned.partition
        self.retry = retry
        # Whether records are copies that carry their first place and id in headers: in a topic that
        # any client writes to such headers mean nothing.
        self.carries = carries
        self.headers_of = owned.headers_of
        self.completion = Completion(0)
        self.committed: tuple[int, str] | None = None  # what the group's offset says
        self.read_to = 0  # its end at the last time when all had been read

    def begin(self, offset: int) -> bool:
        """A record was read, in order. Returns False if it is known, or was finished by a former
        owner."""
        if self.completion.starts_beyond(offset):
            self.completion = Completion(offset, topic_id=self.completion.topic_id)
        return self.completion.begin(offset)

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def committed_offset(self) -> int | None:
        return None if self.committed is None else self.committed[0]

    @property
    def topic_id(self) -> str | None:
        """The topic id of a source; retries carry the id of the topic that they came from."""
        return None if self.retry else self.owned.topic_id


Offsets = list[tuple[Stream, tuple[int, str]]]  # what to commit: position and metadata


class OwnedPartition:
    """A source partition of ours. The dispatcher changes it, under its runner's lock; fields that
    only the polling thread uses are marked below.
    """

    __slots__ = (
        "arriving", "blocked", "closing", "gone", "headers_of", "loading_to", "moves", "moving",
        "partition", "paused", "retry", "running", "acknowledgements", "source", "topic",
        "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        retry_topic: str,
        headers_of: HeadersOf,
        topic_id: str | None = None,
        carries: bool = False,
    ) -> None:
        """`carries`: the records of the source itself are copies, as in a wide topic."""
        self.topic = topic
        self.topic_id = topic_id  # of the source; None: the cluster has no topic ids
        self.partition = partition
        self.headers_of = headers_of
        self.source = Stream(self, topic, retry=False, carries=carries)
        self.retry = Stream(self, retry_topic, retry=True, carries=True)
        self.blocked: BlockedKeys[RecordInHand] = BlockedKeys()
        self.closing = False  # begin no more of it; results still count
        self.gone = False  # another worker has it: no result counts any more
        self.loading_to: int | None = None  # the end of the retry partition that must be read first
        self.running = 0  # records in runs that are out, or whose copies are being written
        self.moves: list[Move] = []
        self.moving: list[Move] = []  # in a transaction whose outcome is unknown
        # For a queue: records that are done or go back, which the polling thread acknowledges.
        # None: not a queue; a group's offset says what is done.
        self.acknowledgements: list[tuple[FetchedRecord, Acknowledgement]] | None = None
        self.paused = False  # the polling thread's
        self.arriving = 0  # the polling thread's: read, not begun (`arrivals.py`)

    @property
    def streams(self) -> tuple[Stream, Stream]:
        return self.source, self.retry

    @property
    def outstanding(self) -> int:
        return self.source.completion.outstanding + self.arriving

    def must_pause(self, most: int) -> bool:
        """Whether to pause reading: too many records wait, or its retries are not loaded yet."""
        if self.loading_to is not None:
            return True
        # Two limits instead of one, so that a partition near the limit is not paused and resumed
        # for every record.
        limit = most // 2 if self.paused else most
        return self.outstanding > limit or self.source.completion.full or self.blocked.full

    def acknowledge(self, record: RecordInHand, how: Acknowledgement) -> None:
        """For a queue: let the polling thread acknowledge the record, unless another consumer has
        it now."""
        if self.acknowledgements is not None and not self.gone:
            self.acknowledgements.append((record.native, how))

    # ---- offsets to commit

    def offsets(self) -> Offsets:
        """Offsets of both streams, always together: a key that one stream unblocked may have
        continued in the other.
        """
        return [
            (stream, (stream.completion.position, stream.completion.metadata()))
            for stream in self.streams
        ]

    def changed_offsets(self, *, sent_too: bool) -> Offsets:
        """The same offsets, if one of them has changed; none while a transaction of its moves is
        open."""
        if self.gone or self.moving or self.loading_to is not None:
            return []
        found = self.offsets()
        changed = sent_too or any(stream.committed != said for stream, said in found)
        return found if changed else []
