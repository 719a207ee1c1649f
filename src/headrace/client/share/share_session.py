"""The share session of one member with one leader: requests to send, and what their answers mean.

    session.acknowledge(record, ACCEPT)          # kept until the next request
    request = session.fetch_request(...)         # or acknowledge_request()
    arrived = session.fetched(answer, now_s, topic_of)
    session.lost(why)                            # the connection ended

One request is under way at a time, because each one carries the next session epoch. The broker
takes or refuses the acknowledgements of a partition together, so after INVALID_RECORD_STATE (one
lock had run out) they are sent again in halves until only those that are refused are left. Pure:
no clock and no connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from headrace.client.share.acquired_records import ShareRecord, acquired_in
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import share_acknowledge, share_fetch

T = TypeVar("T")

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FIRST_EPOCH, FINAL_EPOCH = 0, -1
STRICT_LIMIT = 1  # share.acquire.mode record_limit: never more than max_records
MOST_BYTES = 50 << 20  # Kafka's fetch.max.bytes
LARGEST_EPOCH = 2**31 - 1

# After these the broker has no session of ours: another member may have the records of it.
SESSION_GONE = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
# After these errors of a partition its leader must be looked up.
MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
LOST = "the lock of the record has ended: its time or the connection to its leader was over"
UNANSWERED = "the leader has not answered in time; the acknowledgement may count or not"


class QueuePartition(NamedTuple):
    """A partition as share requests name it."""

    topic_id: bytes
    partition: int


class Mark(NamedTuple):
    """Offsets that are acknowledged in the same way."""

    first: int
    last: int
    kind: int


@dataclass(slots=True)
class RefusedAcknowledgement:
    """Acknowledgements that had no effect: the records are or were delivered again."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    why: str
    code: int = 0


@dataclass(slots=True)
class Arrived:
    """The contents of an answer."""

    records: list[ShareRecord] = field(default_factory=list)
    errors: dict[QueuePartition, int] = field(default_factory=dict)
    error: int = 0  # of the whole request

    @property
    def moved(self) -> bool:
        """Whether the leaders must be looked up."""
        return any(code in MOVED for code in self.errors.values())


class ShareSession:
    """`number` tells this session from earlier ones with the same leader."""

    def __init__(self, group: str, member: str, node: int, number: int) -> None:
        self.node, self.number = node, number
        self._group, self._member = group, member
        self._epoch = FIRST_EPOCH
        self._known: set[QueuePartition] = set()  # partitions that the broker has in this session
        self._pending: dict[QueuePartition, list[Mark]] = defaultdict(list)
        self._again: dict[QueuePartition, list[list[Mark]]] = {}  # each to be sent by itself
        self._sent: dict[QueuePartition, list[Mark]] = {}
        self._held: dict[QueuePartition, dict[int, ShareRecord]] = defaultdict(dict)
        self._lock_ms = 0
        self.names: dict[bytes, str] = {}
        self.refused: list[RefusedAcknowledgement] = []

    # ---- acknowledgements

    @property
    def is_open(self) -> bool:
        """Whether the broker knows the session: acknowledgements can be sent."""
        return self._epoch != FIRST_EPOCH

    @property
    def owes(self) -> bool:
        """Whether acknowledgements wait to be sent."""
        return bool(self._pending or self._again)

    @property
    def awaits_answers(self) -> bool:
        """Whether acknowledgements are under way."""
        return bool(self._sent)

    @property
    def must_acknowledge(self) -> bool:
        """Whether acknowledgements need a request of their own, without a fetch."""
        return bool(self._again) or any(
            mark.kind == RENEW for marks in self._pending.values() for mark in marks
        )

    @property
    def held(self) -> int:
        return sum(map(len, self._held.values()))

    def acknowledge(self, share_partition: QueuePartition, offset: int, kind: int) -> bool:
        """Note an acknowledgement; returns False if the record is not ours any more."""
        held = self._held.get(share_partition)
        if held is None or offset not in held:
            return False
        if kind != RENEW:
            del held[offset]
            if not held:
                del self._held[share_partition]
        self._pending[share_partition].append(Mark(offset, offset, kind))
        return True

    def unanswered(self) -> list[RefusedAcknowledgement]:
        """The acknowledgements that wait to be sent or for their answer, renewals included."""
        found = []
        waiting = [*self._sent.items(), *self._pending.items()]
        waiting += [(where, marks) for where, each in self._again.items() for marks in each]
        for where, marks in waiting:
            name = self.names.get(where.topic_id, "")
            found += [
                RefusedAcknowledgement(name, where.partition, first, last, UNANSWERED)
                for first, last, kind in marks
                if kind != GAP
            ]
        return found

    def forget_before(self, locked_until: float) -> None:
        """Forget records whose locks ended before: they came to others, or will come again."""
        for where, held in list(self._held.items()):
            if all(record.locked_until >= locked_until for record in held.values()):
                continue
            self._held[where] = {
                at: record for at, record in held.items() if record.locked_until >= locked_until
            }
            if not self._held[where]:
                del self._held[where]

    def holds(self, share_partition: QueuePartition, offset: int) -> bool:
        """Whether a record was given to us and is not acknowledged."""
        return offset in self._held.get(share_partition, ())

    def lost(self, why: str = LOST) -> None:
        """The broker has closed the session: refuse all waiting acknowledgements, and forget held
        records."""
        for share_partition, marks in (*self._sent.items(), *self._pending.items()):
            self._refuse(share_partition, marks, why)
        for share_partition, each in self._again.items():
            for marks in each:
                self._refuse(share_partition, marks, why)
        for owed in (self._sent, self._pending, self._again, self._held):
            owed.clear()
        self._known.clear()
        self._epoch = FIRST_EPOCH

    # ---- requests

    def fetch_request(
        self, wanted: Collection[QueuePartition], *, max_records: int, max_wait_ms: int
    ) -> share_fetch.ShareFetchRequest:
        """A fetch of these partitions, with the waiting acknowledgements."""
        assert not self._sent, "one request is under way at a time"
        marks = self._taken() if self.is_open else {}
        new = [share_partition for share_partition in wanted if share_partition not in self._known]
        gone = self._known - set(wanted) if self.is_open else set()
        empty: dict[QueuePartition, list[Mark]] = {share_partition: [] for share_partition in new}
        self._known = set(wanted)
        self._sent = marks
        return share_fetch.ShareFetchRequest(
            self._group,
            self._member,
            self._epoch,
            max_wait_ms,
            1,
            MOST_BYTES,
            max_records,
            max_records,
            STRICT_LIMIT,
            False,
            _topics(
                share_fetch.FetchTopic,
                share_fetch.FetchPartition,
                share_fetch.AcknowledgementBatch,
                empty | marks,
            ),
            [
                share_fetch.ForgottenTopic(topic_id, partitions)
                for topic_id, partitions in _by_topic(gone).items()
            ],
        )

    def acknowledge_request(
        self, *, final: bool = False
    ) -> share_acknowledge.ShareAcknowledgeRequest:
        """`final` ends the session: the broker gives back all that is not acknowledged."""
        assert not self._sent and self.is_open
        self._sent = marks = self._taken()
        return share_acknowledge.ShareAcknowledgeRequest(
            self._group,
            self._member,
            FINAL_EPOCH if final else self._epoch,
            any(mark.kind == RENEW for each in marks.values() for mark in each),
            _topics(
                share_acknowledge.AcknowledgeTopic,
                share_acknowledge.AcknowledgePartition,
                share_acknowledge.AcknowledgementBatch,
                marks,
            ),
        )

    def _taken(self) -> dict[QueuePartition, list[Mark]]:
        """The acknowledgements of the next request, each partition's in the order of offsets."""
        taken: dict[QueuePartition, list[Mark]] = {}
        for share_partition in [*self._again]:
            taken[share_partition] = self._again[share_partition].pop(0)
            if not self._again[share_partition]:
                del self._again[share_partition]
        for share_partition in [*self._pending]:
            if share_partition not in taken:
                taken[share_partition] = joined(self._pending.pop(share_partition))
        return taken

    # ---- answers

    def fetched(self, answer: share_fetch.ShareFetchResponse, sent_s: float) -> Arrived:
        """`sent_s` is when the request was sent, on the clock of `locked_until`."""
        arrived = Arrived(error=answer.error_code)
        if not self._went_well(answer.error_code):
            return arrived
        self._lock_ms = answer.acquisition_lock_timeout_ms or self._lock_ms
        until = sent_s + self._lock_ms / 1000
        answered: dict[QueuePartition, int] = {}
        for topic in answer.responses:
            name = self.names.get(topic.topic_id)
            for part in topic.partitions:
                share_partition = QueuePartition(topic.topic_id, part.partition_index)
                answered[share_partition] = part.acknowledge_error_code
                if part.error_code:
                    arrived.errors[share_partition] = part.error_code
                elif name is not None:
                    arrived.records += self._take(share_partition, name, part, until)
        self._settle(lambda share_partition: answered.get(share_partition, ErrorCode.NONE), sent_s)
        return arrived

    def acknowledged(
        self, answer: share_acknowledge.ShareAcknowledgeResponse, sent_s: float
    ) -> Arrived:
        arrived = Arrived(error=answer.error_code)
        if not self._went_well(answer.error_code):
            return arrived
        self._lock_ms = answer.acquisition_lock_timeout_ms or self._lock_ms
        answered = {
            QueuePartition(topic.topic_id, part.partition_index): part.error_code
            for topic in answer.responses
            for part in topic.partitions
        }
        arrived.errors = {
            share_partition: code for share_partition, code in answered.items() if code
        }
        self._settle(lambda share_partition: answered.get(share_partition, ErrorCode.NONE), sent_s)
        return arrived

    def _went_well(self, code: int) -> bool:
        if code == ErrorCode.NONE:
            self._epoch = 1 if self._epoch == LARGEST_EPOCH else self._epoch + 1
            return True
        self.lost(_words(code))
        return False

    def _take(
        self,
        share_partition: QueuePartition,
        name: str,
        part: share_fetch.PartitionData,
        until: float,
    ) -> list[ShareRecord]:
        found = acquired_in(name, part)
        for record in found.records:
            record.topic_id, record.locked_until = share_partition.topic_id, until
            record.node, record.session = self.node, self.number
            self._held[share_partition][record.offset] = record
        # A batch that cannot be read is given up, as Kafka's own consumer does: it would come again
        # for ever.
        for ranges, kind in ((found.gaps, GAP), (found.broken, REJECT)):
            if ranges:
                self._pending[share_partition] += [
                    Mark(first, last, kind) for first, last in ranges
                ]
        return found.records

    def _settle(self, code_of: Callable[[QueuePartition], int], sent_s: float) -> None:
        sent, self._sent = self._sent, {}
        for share_partition, marks in sent.items():
            code = code_of(share_partition)
            if code == ErrorCode.NONE:
                self._renewed(share_partition, marks, sent_s)
            elif code == ErrorCode.INVALID_RECORD_STATE and len(halves := halved(marks)) > 1:
                self._again.setdefault(share_partition, []).extend(halves)
            else:
                self._refuse(share_partition, marks, _words(code), code)

    def _renewed(
        self, share_partition: QueuePartition, marks: Iterable[Mark], sent_s: float
    ) -> None:
        held = self._held.get(share_partition, {})
        for mark in marks:
            for offset in range(mark.first, mark.last + 1) if mark.kind == RENEW else ():
                if offset in held:
                    held[offset].locked_until = sent_s + self._lock_ms / 1000

    def _refuse(
        self, share_partition: QueuePartition, marks: Iterable[Mark], why: str, code: int = 0
    ) -> None:
        name = self.names.get(share_partition.topic_id, "")
        held = self._held.get(share_partition, {})
        for mark in marks:
            if mark.kind == GAP:
                continue
            self.refused.append(
                RefusedAcknowledgement(
                    name, share_partition.partition, mark.first, mark.last, why, code
                )
            )
            if mark.kind == RENEW:
                for offset in range(mark.first, mark.last + 1):
                    held.pop(offset, None)


def joined(marks: Iterable[Mark]) -> list[Mark]:
    """Sorted by offset, with neighbours of one kind merged. A renewal of an offset does not count
    beside another acknowledgement of it."""
    found: list[Mark] = []
    # The others first, then the renewals: `sorted` keeps the order of equals.
    for mark in sorted(marks, key=lambda mark: (mark.first, mark.kind == RENEW)):
        last = found[-1] if found else None
        if last is not None and mark.first <= last.last:
            continue
        if last is not None and last.kind == mark.kind and last.last + 1 == mark.first:
            found[-1] = Mark(last.first, mark.last, mark.kind)
        else:
            found.append(mark)
    return found


def halved(marks: list[Mark]) -> list[list[Mark]]:
    """The same offsets in two parts; in one if there is only one offset."""
    if len(marks) > 1:
        middle = len(marks) // 2
        return [marks[:middle], marks[middle:]]
    [(first, last, kind)] = marks
    if first == last:
        return [marks]
    middle = (first + last) // 2
    return [[Mark(first, middle, kind)], [Mark(middle + 1, last, kind)]]


def _topics(
    topic_class: Callable[[bytes, list[Any]], T],
    partition_class: Callable[[int, list[Any]], Any],
    batch_class: Callable[[int, int, list[int]], Any],
    marks: Mapping[QueuePartition, Sequence[Mark]],
) -> list[T]:
    """The topics of either request; their classes differ by name only."""
    found = []
    for topic_id, partitions in _by_topic(marks).items():
        parts = []
        for partition in partitions:
            given = marks[QueuePartition(topic_id, partition)]
            batches = [batch_class(mark.first, mark.last, [mark.kind]) for mark in given]
            parts.append(partition_class(partition, batches))
        found.append(topic_class(topic_id, parts))
    return found


def _by_topic(share_partitions: Iterable[QueuePartition]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(share_partitions):
        found[topic_id].append(partition)
    return found


def _words(code: int) -> str:
    known = ErrorCode._value2member_map_.get(code)
    return known.description if isinstance(known, ErrorCode) else f"error {code}"
