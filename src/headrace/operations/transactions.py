"""Open and hanging transactions of a cluster, and ending one.

Records of an aborted transaction are lost to readers of committed records for good. In a single
partition only a transaction that no coordinator knows is ended: a marker against a transaction that
may yet commit in other partitions would split it.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.admin.transactional_ids import TransactionalIds, TransactionDescription
from headrace.client.errors import ClientError
from headrace.client.once.hanging import OpenInPartition, open_in_partitions

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


def open_transaction(ids: TransactionalIds, transactional_id: str) -> TransactionDescription:
    """The transaction that `TransactionalIds.abort` would end; raises if there is none."""
    found = ids.describe(transactional_id)
    if found.state != "Ongoing":
        raise ClientError(f"{transactional_id} has no open transaction: it is {found.state}.")
    return found


def hanging_in(
    ids: TransactionalIds, topic: str, partition: int, start_offset: int | None = None
) -> list[OpenInPartition]:
    """The hanging transactions of a partition, or the one that begins at an offset; raises if there
    are none."""
    found = [
        each
        for each in open_in_partitions(ids, [(topic, partition)])
        if start_offset in (None, each.start_offset)
    ]
    if not found:
        raise ClientError(f"No such transaction is open in {topic}-{partition}.")
    hangs = [each for each in found if each.transactional_id is None]
    if not hangs:
        owner = found[0].transactional_id
        raise ClientError(
            f"The transaction at offset {found[0].start_offset} of {topic}-{partition} does not "
            f"hang: it is that of {owner}, and its coordinator will end it. Abort it whole with "
            f"`headrace transactions abort {owner}`."
        )
    return hangs


def abort_hanging(ids: TransactionalIds, found: Iterable[OpenInPartition]) -> None:
    for each in found:
        ids.abort_in(each.topic, each.partition, each.as_known_there())
