"""Hanging transactions: open in a partition, and no coordinator will end them. Find, decide, end.

Apache Kafka 4.3.1, killed while a transaction was in PrepareCommit, was seen to write
CompleteCommit after its restart without the marker in one of the partitions (KIP-664): readers of
committed records are held back there for ever. A coordinator lists the partitions in which it still
has to write a marker; a transaction that is open in another partition is hanging. Partitions are
asked twice, before and after the coordinators, so that one that ends in between is not taken for
hanging. The user needs DESCRIBE on every transactional id: an id that access control hides looks as
if no coordinator knew it.

A service that writes records and its mark in one transaction (`marks.py`) can find out what was
decided, and ends a hanging transaction of its own accordingly: the coordinator says it, or the
records do. If one of the records is committed, all of the transaction was. If none is, aborting it
duplicates nothing: the mark is not visible, so all is written again. A partition that cannot be
read to its end decides nothing. The marker after the mark is written last: as long as it is
missing, all of this is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from headrace.client.admin.transactional_ids import (
    NoSuchTransactionalId,
    OpenTransaction,
    Place,
    TransactionalIds,
    TransactionDescription,
)
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.lookup.raw_log import LARGEST_BATCH_BYTES, RawLog
from headrace.wire.protocol.record_batch import BatchHeader, Record, walk

# One search for evidence reads at most this: some transactions, and the records of others in
# between.
BUDGET_BYTES = 256 << 20
COMMITTED, ABORTED = "CompleteCommit", "CompleteAbort"


@dataclass(slots=True)
class OpenInPartition:
    """An open transaction, where it is, and the coordinator that will end it; None if none will."""

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    transactional_id: str | None

    def as_known_there(self) -> OpenTransaction:
        return OpenTransaction(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.start_offset,
            self.last_timestamp_ms,
        )


def open_in_partitions(ids: TransactionalIds, places: Iterable[Place]) -> list[OpenInPartition]:
    """All open transactions there; those that hang have no transactional id."""
    before = ids.open_at(places)
    expected = _expected(ids, {found.producer_id for _, found in before})
    unexpected = {
        place for place, found in before if (found.producer_id, place) not in expected
    }  # are they still open after the coordinators have answered?
    after = {
        (place, found.producer_id, found.start_offset) for place, found in ids.open_at(unexpected)
    }
    return [
        OpenInPartition(
            *place,
            found.start_offset,
            found.producer_id,
            found.producer_epoch,
            found.coordinator_epoch,
            found.last_timestamp_ms,
            expected.get((found.producer_id, place)),
        )
        for place, found in before
        if (found.producer_id, place) in expected
        or (place, found.producer_id, found.start_offset) in after
    ]


def hanging(ids: TransactionalIds, places: Iterable[Place]) -> list[OpenInPartition]:
    return [found for found in open_in_partitions(ids, places) if found.transactional_id is None]


def _expected(ids: TransactionalIds, producers: set[int]) -> dict[tuple[int, Place], str]:
    """The markers that coordinators still have to write; by producer and place."""
    expected = {}
    if producers:
        for known in ids.all(producer_ids=sorted(producers)):
            with suppress(NoSuchTransactionalId):  # forgotten since it was listed
                described = ids.describe(known.transactional_id)
                for place in described.partitions:
                    expected[described.producer_id, place] = known.transactional_id
    return expected


class HasEnded(ClientError):
    """The transaction ended during the inspection."""


@dataclass(slots=True)
class Decision:
    commit: bool
    why: str


# Names the record within the transaction; None if the record does not belong to it.
Recognizes = Callable[[Place, BatchHeader, Record], str | None]


def open_records(
    at: ClientSettings, place: Place, found: OpenTransaction
) -> Iterator[tuple[BatchHeader, Record]]:
    """The records that an open transaction has written in its partition.

    Raises HasEnded, or ClientError if a later producer of its id has continued there.
    """
    log = RawLog(at, {place[0]}, BUDGET_BYTES)
    for header, batch in log.batches(*place, found.start_offset):
        if header.producer_id != found.producer_id:
            continue
        if header.is_control:
            raise HasEnded("It has ended by now.")
        if header.producer_epoch != found.producer_epoch:
            raise ClientError("A later producer of the same id has continued it.")
        for record in walk(batch, LARGEST_BATCH_BYTES):
            yield header, record


def by_coordinator(known: TransactionDescription | None, found: OpenTransaction) -> Decision | None:
    """The outcome according to its coordinator, if that has begun no other transaction since."""
    if (
        known is not None
        and known.state in (COMMITTED, ABORTED)
        and (known.producer_id, known.producer_epoch) == (found.producer_id, found.producer_epoch)
    ):
        return Decision(known.state == COMMITTED, f"its coordinator says {known.state}")
    return None


def by_records(
    at: ClientSettings,
    found: OpenTransaction,
    since_ms: dict[str, int],
    recognizes: Recognizes,
) -> Decision:
    """The outcome according to its records, in these topics from these times on.

    Raises ClientError if they cannot be read to their end.
    """
    aborted = None
    for topic, first_ms in sorted(since_ms.items()):
        log = RawLog(at, {topic}, BUDGET_BYTES)
        for place in log.partitions():
            ended = log.ended(
                *place,
                log.offset_at(*place, max(first_ms, 0)),
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
            )
            for header, record, committed in ended:
                which = recognizes(place, header, record)
                if which is None:
                    continue
                if committed:
                    return Decision(True, f"{which} is committed")
                aborted = f"{which} is aborted"
    return Decision(False, aborted or "nothing of it is visible")


def end(
    ids: TransactionalIds,
    found: OpenTransaction,
    decision: Decision,
    *,
    mark: Place,
    topics: Iterable[str],
) -> int:
    """Write the missing markers in these topics, then the one after the mark; returns how many."""
    count = 0
    names = set(topics)
    for place in RawLog(ids.connection, names, 0).partitions() if names else []:
        count += ids.end_open_in(*place, found, commit=decision.commit)
    # Only what was found: a transaction that was extended since is not decided.
    for each in ids.open_in(*mark):
        if each == found:
            ids.end_in(*mark, each, commit=decision.commit)
            count += 1
    return count
