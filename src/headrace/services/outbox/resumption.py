"""Sets where a shard continues by a person's decision: after a restored backup, on a new cluster.

A relay stops by itself when the cluster's position cannot be the one of its database (`shard.py`).
Then an operator checks what was sent, and names the row after which to continue. The position goes
to the cluster first, then to the database, as at the very first beginning.
"""

from __future__ import annotations

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.once.outcome import Committed
from headrace.services.outbox import positions
from headrace.services.outbox.rows import Row
from headrace.services.outbox.schema import OutboxError
from headrace.services.outbox.sender import Sender
from headrace.services.outbox.shard import Position
from headrace.services.outbox.store import Store

LEASE_MS = 60_000


def resume(store: Store, at: ClientSettings, shard: int, *, after: int) -> None:
    """Sets where the shard continues. Raises OutboxError if a relay has the shard, or the row does
    not exist."""
    facts = store.facts()
    if not 0 <= shard < facts.shards:
        raise OutboxError(f"This outbox has {facts.shards} shards, counted from 0.")
    row = store.row(shard, after) if after else None
    if after and row is None:
        raise OutboxError(f"Shard {shard} has no row {after}: name one that is there, or 0.")
    me = "headrace outbox resume"
    if not store.take(shard, me, LEASE_MS):
        raise OutboxError(f"A relay has shard {shard}: stop the relays first.")
    try:
        positions.ensure(at)
        position = Position(after, row.checksum if row is not None else 0)
        _write(store, at, facts.outbox_id, shard, position)
        store.force_hint(shard, after)
    finally:
        store.release(shard, me)


def _write(
    store: Store, at: ClientSettings, outbox_id: str, shard: int, position: Position
) -> None:
    def rows_of(after: int, up_to: Position) -> list[Row]:
        return store.rows(shard, after, up_to.row_id, up_to.retried)

    sender = Sender(at, outbox_id, shard, rows_of=rows_of)
    try:
        sender.open()
        outcome = sender.send([], position)
    except ClientError as failure:
        raise OutboxError(f"The position could not be written: {failure}.") from failure
    finally:
        sender.close()
    if not isinstance(outcome, Committed):
        raise OutboxError(f"The position could not be written: {outcome.why}.")
