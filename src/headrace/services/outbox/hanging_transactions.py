"""Ends a transaction of a shard whose marker is missing behind the shard's position.

Apache Kafka 4.3.1, killed while a transaction was in PrepareCommit, was seen to write
CompleteCommit after its restart without the marker in one of the partitions (a hanging transaction,
KIP-664). The records are visible, the position is not, and no coordinator will ever end it.

The records tell what was decided: if one row of that transaction is committed anywhere, all of it
was. If none is, to abort it everywhere doubles nothing, since the rows are sent again. The marker
behind the position is written last: until then everything here is done again after a crash. If the
records cannot be read to their end, nothing is decided.

The caller has taken over the transactional id and begun nothing, so no transaction of the shard
can be under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headrace.client.admin.transactional_ids import OpenTransaction, Place, TransactionalIds
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.lookup.raw_log import LARGEST_BATCH_BYTES, RawLog
from headrace.contract.own_records import FAULTS, reason_of
from headrace.protocol.record_batch import Record, walk
from headrace.services.outbox import positions
from headrace.services.outbox.rows import NotARecord, OutboxRecord, Row, record_of
from headrace.services.outbox.shard import Position

# For the position and all records together.
BUDGET_BYTES = 256 << 20

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
    """What was ended and why, in a sentence; None if the transaction is not one of this shard.

    Raises ClientError if it cannot be decided or ended.
    """
    ids = TransactionalIds(at)
    own = ids.describe(transactional_id).producer_id
    found = [each for each in ids.open_in(*place) if each.start_offset == held_back.offset]
    if not found or found[0].producer_id != own:
        return None
    [hanging] = found
    pending = _pending(at, place, hanging, key)
    after = 0 if held_back.position is None else held_back.position.row_id
    records = [] if pending is None else _records(rows_of(after, pending), outbox_id)
    evidence = _committed_in(at, hanging, records)
    commit = evidence is not None
    for each in _places(at, records):
        ids.end_open_in(*each, hanging, commit=commit)
    ids.end_open_in(*place, hanging, commit=commit)
    word = "committed" if commit else "aborted"
    why = f"{evidence} is committed" if commit else "nothing of it is visible"
    return (
        f"{place[0]}-{place[1]} held a transaction of {transactional_id} from offset "
        f"{hanging.start_offset} that its coordinator had closed without a marker. It is {word} "
        f"now: {why}."
    )


def _pending(
    at: ClientSettings, place: Place, hanging: OpenTransaction, key: bytes
) -> Position | None:
    """The position that the transaction has not made visible."""
    pending = None
    log = RawLog(at, {place[0]}, BUDGET_BYTES)
    for header, batch in log.batches(*place, hanging.start_offset):
        if header.producer_id != hanging.producer_id:
            continue
        if header.is_control or header.producer_epoch != hanging.producer_epoch:
            raise ClientError("A later producer of the same id has gone on in it.")
        for record in walk(batch, LARGEST_BATCH_BYTES):
            if record.key == key and record.value is not None:
                try:
                    pending = positions.understood(record.value)
                except FAULTS as fault:
                    raise ClientError(
                        f"Its position cannot be read: {reason_of(fault)}."
                    ) from fault
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


def _committed_in(
    at: ClientSettings, hanging: OpenTransaction, records: list[OutboxRecord]
) -> str | None:
    """Where one of the records is visible; None if none is."""
    for topic in sorted({record.topic for record in records}):
        of_topic = [record for record in records if record.topic == topic]
        wanted = {identity for record in of_topic for identity in _sent(record)}
        since_ms = min(record.timestamp_ms for record in of_topic) - CLOCKS_DIFFER_MS
        log = RawLog(at, {topic}, BUDGET_BYTES)
        for place in log.partitions():
            start = log.offset_at(*place, max(since_ms, 0))
            ended = log.ended(
                *place,
                start,
                producer_id=hanging.producer_id,
                producer_epoch=hanging.producer_epoch,
            )
            for header, record, committed in ended:
                keeps_time = not header.has_log_append_time
                if committed and _stored(record, keeps_time=keeps_time) in wanted:
                    return f"offset {record.offset} of {place[0]}-{place[1]}"
    return None


def _sent(record: OutboxRecord) -> Iterator[Identity]:
    for timestamp in (record.timestamp_ms, None):
        yield record.key, record.value, tuple(record.headers), timestamp


def _stored(record: Record, *, keeps_time: bool) -> Identity:
    headers = tuple((header.key, header.value) for header in record.headers)
    timestamp = record.timestamp if keeps_time else None
    return record.key, record.value, headers, timestamp


def _places(at: ClientSettings, records: list[OutboxRecord]) -> list[Place]:
    topics = {record.topic for record in records}
    return RawLog(at, topics, 0).partitions() if topics else []
