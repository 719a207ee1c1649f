"""Hanging transactions: open in a partition, and no coordinator will end them.

A coordinator tells which partitions it has still to write a marker to. A transaction that is open
in another one holds back its readers for ever. Partitions are asked twice, before and after the
coordinators, so that one that ends in between is not taken for hanging. The user needs DESCRIBE on
every transactional id: an id that access control hides looks as if no coordinator knew it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from headrace.client.admin.transactional_ids import (
    NoSuchTransactionalId,
    OpenTransaction,
    Place,
    TransactionalIds,
)


@dataclass(slots=True)
class OpenInPartition:
    """An open transaction, where it is, and who is going to end it; None if nobody is."""

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
    """All that is open there; those that hang have no transactional id."""
    before = ids.open_at(places)
    expected = _expected(ids, {found.producer_id for _, found in before})
    unexpected = {
        place for place, found in before if (found.producer_id, place) not in expected
    }  # still open after the coordinators have spoken?
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
    """Whose markers are still to come, and where; by producer and place."""
    expected = {}
    if producers:
        for known in ids.all(producer_ids=sorted(producers)):
            with suppress(NoSuchTransactionalId):  # forgotten since it was listed
                described = ids.describe(known.transactional_id)
                for place in described.partitions:
                    expected[described.producer_id, place] = known.transactional_id
    return expected
