"""The state of an outbox, from its database alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text

from headrace.services.outbox.confirmations import Confirmations
from headrace.services.outbox.metrics import ShardState
from headrace.services.outbox.source import Source
from headrace.services.outbox.store import Store

# Counting further costs more than it says.
MOST_COUNTED = 100_000


@dataclass(slots=True)
class Status:
    outbox_id: str
    shards: list[ShardState]
    relays: list[str]
    held_up_by: str | None
    confirmations_open: int  # messages that wait for a confirmation
    unconfirmed: int  # messages that were sent in vain
    table_bytes: int  # on disk, with indexes; of SQLite the whole file


def status_of(store: Store, *, with_holders: bool = True) -> Status:
    facts = store.facts()
    shards = shard_states(store)
    now = store.database.NOW_MS
    with store.engine.connect() as db:
        alive = text(f"SELECT relay FROM headrace_outbox_relays WHERE seen_until > {now}")
        relays = sorted(str(row[0]) for row in db.execute(alive))
    held_up_by = None
    if with_holders and any(each.waiting for each in shards):
        source = Source(store.engine)
        try:
            source.poll()
            held_up_by = source.held_up_by()
        finally:
            source.close()
    return Status(
        facts.outbox_id,
        shards,
        relays,
        held_up_by,
        *Confirmations(store).counts(),
        table_bytes(store),
    )


def table_bytes(store: Store) -> int:
    with store.engine.connect() as db:
        return int(db.execute(text(store.database.TABLE_BYTES)).scalar() or 0)


def shard_states(store: Store, known: Mapping[int, int] | None = None) -> list[ShardState]:
    """Returns the states of all shards. `known` are positions that a relay has and writes to the
    database a little later."""
    now = store.database.NOW_MS
    found = []
    with store.engine.connect() as db:
        now_ms = int(db.execute(text(f"SELECT {now}")).scalar_one())
        parked = {
            int(row[0]): int(row[1])
            for row in db.execute(
                text("SELECT shard, count(*) FROM headrace_outbox_parked GROUP BY shard")
            )
        }
        shards = db.execute(
            text(
                "SELECT shard, owner, lease_until, sent_id, problem, rows_per_s"
                " FROM headrace_outbox_shards ORDER BY shard"
            )
        ).all()
        for number, owner, until_ms, hint, problem, rate in shards:
            sent_id = (known or {}).get(int(number), hint)
            values = {"shard": number, "sent": sent_id or 0, "most": MOST_COUNTED}
            later = "FROM headrace_outbox WHERE shard = :shard AND id > :sent"
            waiting = db.execute(
                text(f"SELECT count(*) FROM (SELECT 1 AS one {later} LIMIT :most) AS found"), values
            ).scalar_one()
            oldest = db.execute(
                text(f"SELECT created_at {later} ORDER BY id LIMIT 1"), values
            ).scalar()
            leased = owner is not None and int(until_ms) > now_ms
            found.append(
                ShardState(
                    int(number),
                    str(owner) if leased else None,
                    None if sent_id is None else int(sent_id),
                    int(waiting),
                    None if oldest is None else max(0, now_ms - int(oldest)),
                    parked.get(int(number), 0),
                    problem,
                    float(rate) if leased else 0.0,
                )
            )
    return found
