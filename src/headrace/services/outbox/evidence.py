"""Ends a transaction of a shard whose marker is missing behind the shard's position.

How, and when it is decided: `client/once/hanging.py`. The records of a shard's transaction are
those of the rows between the position that is visible and the one that is not.

The caller has taken over the transactional id and begun nothing, so no transaction of the shard
can be under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headrace.client.admin.transactional_ids import OpenTransaction, Place, TransactionalIds
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.once import hanging
from headrace.services.outbox import positions
from headrace.services.outbox.rows import NotARecord, OutboxRecord, Row, record_of
from headrace.services.outbox.shard import Position
from headrace.wire.contract.own_records import FAULTS, reason_of
from headrace.wire.protocol.record_batch import BatchHeader, Record

# The rows between a row's id and a position.
RowsOf = Callable[[int, Position], list[Row]]
# Rows have the time of their transaction, a topic with LogAppendTime that of the broker's clock.
CLOCKS_DIFFER_MS = 60_000
# What makes a record the one of a row: key, value, headers with the message's id, and its time,
# where the topic keeps it.
Identity = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]


def end_own(
    at: ClientSettings,
    *,
    transactional_id: str,
    outbox_id: str,
    place: Place,
    key: bytes,
    held_back: positions.HeldBack,
    rows_of: RowsOf,
) -> str | None:
    """Ends the transaction. Returns what was ended and why, in a sentence; None if the transaction
    is not one of this shard, or has ended meanwhile.

    Raises ClientError if it cannot be decided or ended.
    """
    ids = TransactionalIds(at)
    own = ids.describe(transactional_id).producer_id
    open_now = [each for each in ids.open_in(*place) if each.start_offset == held_back.offset]
    if not open_now or open_now[0].producer_id != own:
        return None
    [found] = open_now
    try:
        pending = _pending(at, place, found, key)
    except hanging.HasEnded:
        return None
    after = 0 if held_back.position is None else held_back.position.row_id
    records = [] if pending is None else _records(rows_of(after, pending), outbox_id)
    decision = _decision(at, found, records)
    topics = {record.topic for record in records}
    if not hanging.end(ids, found, decision, mark=place, topics=topics):
        return None
    word = "committed" if decision.commit else "aborted"
    return (
        f"{place[0]}-{place[1]} held a transaction of {transactional_id} from offset "
        f"{found.start_offset} that its coordinator had closed without a marker. It is {word} "
        f"now: {decision.why}."
    )


def _pending(
    at: ClientSettings, place: Place, found: OpenTransaction, key: bytes
) -> Position | None:
    """The position that the transaction has not made visible."""
    pending = None
    for _, record in hanging.open_records(at, place, found):
        if record.key == key and record.value is not None:
            try:
                pending = positions.understood(record.value)
            except FAULTS as fault:
                raise ClientError(f"Its position cannot be read: {reason_of(fault)}.") from fault
    return pending


def _records(rows: Iterable[Row], outbox_id: str) -> list[OutboxRecord]:
    """Rows that were parked instead have none."""
    records = []
    for row in rows:
        try:
            records.append(record_of(row, outbox_id))
        except NotARecord:
            continue
    return records


def _decision(
    at: ClientSettings, found: OpenTransaction, records: list[OutboxRecord]
) -> hanging.Decision:
    wanted: dict[str, set[Identity]] = {}
    since_ms: dict[str, int] = {}
    for record in records:
        topic, first_ms = record.topic, record.timestamp_ms - CLOCKS_DIFFER_MS
        wanted.setdefault(topic, set()).update(_sent(record))
        since_ms[topic] = min(since_ms.get(topic, first_ms), first_ms)

    def recognizes(place: Place, header: BatchHeader, record: Record) -> str | None:
        stored = _stored(record, keeps_time=not header.has_log_append_time)
        if stored not in wanted[place[0]]:
            return None
        return f"offset {record.offset} of {place[0]}-{place[1]}"

    return hanging.by_records(at, found, since_ms, recognizes)


def _sent(record: OutboxRecord) -> Iterator[Identity]:
    for timestamp in (record.timestamp_ms, None):
        yield record.key, record.value, tuple(record.headers), timestamp


def _stored(record: Record, *, keeps_time: bool) -> Identity:
    headers = tuple((header.key, header.value) for header in record.headers)
    timestamp = record.timestamp if keeps_time else None
    return record.key, record.value, headers, timestamp
