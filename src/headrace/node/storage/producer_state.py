"""The state of idempotent and transactional producers in one log, and its `.snapshot` files.

A producer numbers its records per partition (the sequence). A batch that does not continue the
sequence is refused; a repeat of one of the last five batches is answered with its first offset. The
rules and codes are those of Apache Kafka's ProducerAppendInfo. Only batches in the log count:
`check` decides and changes nothing, `record` is called for each appended batch and is also the
start-up path.

A snapshot is taken when the log rolls and when it closes, and named by the offset up to which it is
valid; as in Apache Kafka it keeps the last batch of each producer, not all five.

A transaction is open from its first batch in this log to its marker. It holds back the last stable
offset until the high watermark has passed the marker, because before that the marker may still be
lost.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from struct import Struct

from crc32c import crc32c

from headrace.environment import Disk
from headrace.node.storage.append_rules import RecordsRefused
from headrace.node.storage.segments.segment import DELETED, file_name
from headrace.wire.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

# A client has at most five batches in flight, so an older duplicate cannot arrive.
CACHED_BATCHES = 5
MAX_SEQUENCE = 0x7FFF_FFFF
NO_SEQUENCE = -1
SUFFIX = ".snapshot"

# version, crc, number of entries; the crc is of what follows it
_HEAD = Struct(">hIi")
_CRC_FROM = 6
_VERSION = 1
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
# offset of the open transaction
_ENTRY = Struct(">qhiqiqiq")

# first sequence, last sequence, base offset, last offset, timestamp
Batch = tuple[int, int, int, int, int]


class Producer:
    """One producer in one log."""

    __slots__ = (
        "epoch",
        "next_sequence",
        "batches",
        "last_timestamp",
        "coordinator_epoch",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        # Invariant: `next_sequence` follows the last sequence of `batches[-1]`, if there is one. A
        # batch of this epoch is new if and only if it begins with `next_sequence`.
        self.epoch = epoch
        self.next_sequence = 0
        self.batches: deque[Batch] = deque(maxlen=CACHED_BATCHES)
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.transaction_first_offset = -1  # -1: none is open

    def goes_on(self, first: int, records: int, base_offset: int, timestamp: int) -> None:
        """Note a batch that was appended. Coordinators write transactional offset commits with a
        producer's id but without a sequence."""
        last = (first + records - 1) & MAX_SEQUENCE if first >= 0 else NO_SEQUENCE
        self.next_sequence = (last + 1) & MAX_SEQUENCE
        self.batches.append((first, last, base_offset, base_offset + records - 1, timestamp))
        self.last_timestamp = timestamp

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1] if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1][3] if self.batches else -1


def last_sequence_of(first: int, records: int) -> int:
    """Sequences wrap from 2^31-1 to 0."""
    return (first + records - 1) & MAX_SEQUENCE


def first_sequence_of(last: int, delta: int) -> int:
    return (last - delta) & MAX_SEQUENCE


class ProducerState:
    __slots__ = (
        "producers",
        "open_transactions",
        "ended_transactions",
        "snapshots",
        "_disk",
        "_folder",
    )

    def __init__(self, disk: Disk, folder: str) -> None:
        # Invariant: a producer with `transaction_first_offset >= 0` has exactly one entry in
        # `open_transactions`, under that offset. The order of insertion is the order of offsets, so
        # the first key is the earliest open transaction and `last_stable_offset` need not search.
        self._disk = disk
        self._folder = folder
        self.producers: dict[int, Producer] = {}
        self.open_transactions: dict[int, int] = {}  # first offset -> producer id, ascending
        # first offset -> offset of the marker, as long as the high watermark may be below it
        self.ended_transactions: dict[int, int] = {}
        self.snapshots: list[int] = []  # offsets of the snapshot files, ascending

    # --- the rules

    def check(self, producer_id: int, epoch: int, first: int, records: int) -> Batch | None:
        """None: append it. A batch: it is in the log already. Or a refusal, raised."""
        producer = self.producers.get(producer_id)
        # Unknown here (new, expired, or its records are deleted): any first sequence will do.
        if producer is None:
            return None
        if epoch == producer.epoch:
            if first == producer.next_sequence:
                return None
            last = last_sequence_of(first, records)
            # A duplicate is a retry of one of the last five batches: same first and last sequence.
            # It is answered with the offset of the first time. Any other sequence is a gap.
            for batch in producer.batches:
                if batch[0] == first and batch[1] == last:
                    return batch
            raise RecordsRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {first}, expected {producer.next_sequence}",
            )
        if epoch < producer.epoch:
            raise RecordsRefused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {producer.epoch}, not {epoch}",
            )
        if first != 0:
            raise RecordsRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} began epoch {epoch} with sequence {first}, expected 0",
            )
        return None

    def check_transaction(self, producer_id: int, transactional: bool) -> None:
        """Refuse a batch outside the transaction while the producer has a transaction open."""
        producer = self.producers.get(producer_id)
        if producer and producer.transaction_first_offset >= 0 and not transactional:
            raise RecordsRefused(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction open"
            )

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, bumps_epoch: bool
    ) -> None:
        """Raise if a coordinator of this epoch may not end the transaction.

        `bumps_epoch` (KIP-890, transaction.version 2): the marker carries a higher epoch than the
        records, so that late batches with the records' epoch are refused. The same marker may come
        again.
        """
        producer = self.producers.get(producer_id)
        if producer is None:
            return
        is_open = producer.transaction_first_offset >= 0
        if epoch < producer.epoch or (bumps_epoch and is_open and epoch == producer.epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {producer.epoch}, not {epoch}",
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {producer.coordinator_epoch} has written, "
                f"{coordinator_epoch} is older",
            )

    def record(
        self,
        producer_id: int,
        epoch: int,
        first: int,
        records: int,
        base_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """This batch is in the log. `records` counts offsets, also those compaction emptied."""
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            # Sequences begin at 0 in each epoch, so batches of the old epoch must not be taken for
            # duplicates of new ones.
            producer.batches.clear()
        producer.goes_on(first, records, base_offset, timestamp)
        if transactional and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = base_offset
            self.open_transactions[base_offset] = producer_id

    def record_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int
    ) -> int:
        """End the transaction with a marker; returns its first offset, -1 if none was open."""
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
            producer.next_sequence = 0
        first_offset = producer.transaction_first_offset
        if first_offset >= 0:
            self.open_transactions.pop(first_offset, None)
            # The marker is in this log and perhaps on no other replica yet. Until the high
            # watermark has passed it, a reader of committed records must not see the transaction.
            self.ended_transactions[first_offset] = offset
            producer.transaction_first_offset = -1
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        return first_offset

    def take_back(self, producer_ids: Iterable[int], offset: int) -> bool:
        """Undo the batches of these producers from `offset` on, which no marker has ended. Returns
        False, without changes, if the state before them is no longer known.

        Fewer than five batches are remembered afterwards. That is enough: a client has at most five
        batches in flight, and the lost ones, which it sends again, are among them.
        """
        touched = []
        for producer_id in producer_ids:
            producer = self.producers.get(producer_id)
            if producer is None or not producer.batches or producer.batches[0][2] >= offset:
                return False  # its first batch, or the first of an epoch
            went_on = 0 <= producer.transaction_first_offset < offset
            if producer.coordinator_epoch != -1 and not went_on:
                return False  # perhaps the first after a marker
            touched.append(producer)
        for producer in touched:
            while producer.last_offset >= offset:
                producer.batches.pop()
            producer.next_sequence = (producer.last_sequence + 1) & MAX_SEQUENCE
            producer.last_timestamp = producer.batches[-1][4]
            if producer.transaction_first_offset >= offset:
                del self.open_transactions[producer.transaction_first_offset]
                producer.transaction_first_offset = -1
        return True

    def expect_first(self, producer_id: int, epoch: int, timestamp: int) -> None:
        """The first batch of a producer was refused with a retriable error. Remember the producer:
        from an unknown one any sequence would be accepted, and its second batch may already be in
        flight."""
        if producer_id not in self.producers:
            producer = self.producers[producer_id] = Producer(epoch)
            producer.last_timestamp = timestamp

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.producers.get(producer_id)
        return (
            producer is not None
            and producer.epoch == epoch
            and producer.transaction_first_offset >= 0
        )

    def first_undecided_offset(self) -> int | None:
        """Returns where the earliest open transaction began."""
        return next(iter(self.open_transactions), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset before which every transaction is decided, at most the high watermark."""
        self.forget_decided(high_watermark)
        first = min(self.ended_transactions, default=high_watermark)
        return min(first, next(iter(self.open_transactions), first), high_watermark)

    def forget_decided(self, high_watermark: int) -> None:
        """Drop transactions whose marker is below the high watermark: they hold back nothing."""
        if self.ended_transactions:
            self.ended_transactions = {
                first: marker
                for first, marker in self.ended_transactions.items()
                if marker >= high_watermark
            }

    def remove_expired(self, wall_ms: int, expiration_ms: int) -> None:
        """Remove producers that have not written for this long and have no open transaction."""
        expired = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.transaction_first_offset < 0
            and wall_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]

    def clear(self) -> None:
        self.producers.clear()
        self.open_transactions.clear()
        self.ended_transactions.clear()

    def take_over(self, other: ProducerState) -> None:
        """Take over the state of `other`, which belongs to the same log and is not used any
        more."""
        self.producers = other.producers
        self.open_transactions = other.open_transactions
        self.ended_transactions = other.ended_transactions

    def start_anew(self) -> None:
        """Remove all producers and all snapshot files."""
        self.clear()
        for offset in list(self.snapshots):
            self.remove_snapshot(offset)

    # --- snapshots

    def path(self, offset: int) -> str:
        return f"{self._folder}/{file_name(offset, SUFFIX)}"

    def take_snapshot(self, offset: int) -> bool:
        """Write the state as of `offset`, unless there is such a file already."""
        if offset <= 0 or offset in self.snapshots:
            return False
        self._disk.write_file(self.path(offset), [self.to_bytes()], flush=False)
        self.snapshots = sorted([*self.snapshots, offset])
        return True

    def find_snapshots(self, names: Iterable[str]) -> None:
        found = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
        self.snapshots = sorted(int(offset) for offset in found if offset.isdigit())

    def load_snapshot(self, *, not_above: int, wall_ms: int, expiration_ms: int) -> int | None:
        """Load the last good snapshot and return its offset. Later ones are removed."""
        self.clear()
        while self.snapshots:
            offset = self.snapshots[-1]
            if offset <= not_above:
                if self.from_bytes(self._disk.read_file(self.path(offset))):
                    self.remove_expired(wall_ms, expiration_ms)
                    return offset
                log.warning(
                    "%s is damaged: producers are found again in the log", self.path(offset)
                )
            self.remove_snapshot(offset)
        return None

    def remove_snapshot(self, offset: int) -> None:
        if offset in self.snapshots:
            self.snapshots.remove(offset)
            self._disk.remove(self.path(offset))

    def remove_snapshots_except(self, segment_bases: set[int]) -> None:
        """Keep the snapshots at the base of a segment, and the last one (taken at the close)."""
        for offset in self.snapshots[:-1]:
            if offset not in segment_bases:
                self.remove_snapshot(offset)

    def mark_snapshot_deleted(self, offset: int) -> list[str]:
        """The segment at this offset is removed: rename its snapshot; returns files to delete."""
        if offset not in self.snapshots:
            return []
        self.snapshots.remove(offset)
        deleted = self.path(offset) + DELETED
        self._disk.rename(self.path(offset), deleted)
        return [deleted]

    def to_bytes(self) -> bytes:
        entries = []
        for producer_id, producer in self.producers.items():
            _, last, base_offset, last_offset, _ = (
                producer.batches[-1] if producer.batches else (0, NO_SEQUENCE, -1, -1, -1)
            )
            entries.append(
                _ENTRY.pack(
                    producer_id,
                    producer.epoch,
                    last,
                    last_offset,
                    last_offset - base_offset,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                    producer.transaction_first_offset,
                )
            )
        body = len(entries).to_bytes(4, "big") + b"".join(entries)
        return _HEAD.pack(_VERSION, crc32c(body), len(entries)) + body[4:]

    def from_bytes(self, data: bytes) -> bool:
        """Load a snapshot; False, and nothing is changed, if it is damaged."""
        if len(data) < _HEAD.size:
            return False
        version, crc, count = _HEAD.unpack_from(data)
        whole = len(data) == _HEAD.size + count * _ENTRY.size
        if version != _VERSION or not whole or crc32c(data[_CRC_FROM:]) != crc:
            return False
        for fields in _ENTRY.iter_unpack(data[_HEAD.size :]):
            self._load_entry(*fields)
        self.open_transactions = dict(sorted(self.open_transactions.items()))
        return True

    def _load_entry(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp: int,
        coordinator_epoch: int,
        transaction_first_offset: int,
    ) -> None:
        producer = self.producers[producer_id] = Producer(epoch)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = transaction_first_offset
        if last_offset >= 0:
            first = first_sequence_of(last_sequence, offset_delta)
            base_offset = last_offset - offset_delta
            producer.batches.append((first, last_sequence, base_offset, last_offset, timestamp))
            producer.next_sequence = (last_sequence + 1) & MAX_SEQUENCE
        if transaction_first_offset >= 0:
            self.open_transactions[transaction_first_offset] = producer_id
