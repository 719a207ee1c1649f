"""Questions about transactions: which are open, which are hanging, and how to abort one."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.client.admin.transactional_ids import (
    NoSuchTransactionalId,
    TransactionalIds,
    TransactionDescription,
    TransactionSummary,
)
from headrace.client.connection import ClientSettings
from headrace.client.once.hanging import OpenInPartition, hanging
from headrace.console.access.parts import Part, part
from headrace.operations import transactions as operations
from headrace.operations.transactions import OPEN_STATES, hanging_in, open_transaction

ON_ONE_PAGE = 50
MOST_PARTITIONS = 2_000


@dataclass(slots=True)
class Transactions:
    open: list[TransactionDescription] = field(default_factory=list)
    there: int = 0  # open ones
    ids: int = 0  # that any producer has used lately
    hanging: Part[list[OpenInPartition]] = field(default_factory=lambda: Part([]))
    partitions_left_out: int = 0


def list_transactions(connection: ClientSettings) -> Transactions:
    ids = TransactionalIds(connection)
    everything = ids.all()
    found = [each for each in everything if each.state in OPEN_STATES]
    places = ids.led_partitions()
    return Transactions(
        _described(ids, found[:ON_ONE_PAGE]),
        len(found),
        len(everything),
        part(lambda: hanging(ids, places[:MOST_PARTITIONS])),
        max(len(places) - MOST_PARTITIONS, 0),
    )


def _described(
    ids: TransactionalIds, found: list[TransactionSummary]
) -> list[TransactionDescription]:
    described = []
    for each in found:
        try:
            described.append(ids.describe(each.transactional_id))
        except NoSuchTransactionalId:  # ended and forgotten since it was listed
            continue
    return sorted(described, key=lambda each: (each.started_ms or 0, each.transactional_id))


def abort(connection: ClientSettings, transactional_id: str) -> None:
    ids = TransactionalIds(connection)
    open_transaction(ids, transactional_id)
    ids.abort(transactional_id)


def abort_hanging(
    connection: ClientSettings, topic: str, partition: int, start_offset: int
) -> None:
    ids = TransactionalIds(connection)
    operations.abort_hanging(ids, hanging_in(ids, topic, partition, start_offset))
