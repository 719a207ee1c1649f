"""Records that a share group delivers: how often, and which are delivered for the last time.

After its last delivery the broker gives a record up and keeps nothing of it, also if a worker
crashes while it holds the record. So a record in its last delivery is parked and not attempted.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.app.dispatch.effects import Write
from headrace.app.dispatch.owned_partition import Stream
from headrace.app.dispatch.record_in_hand import DeliveredRecord, RecordInHand
from headrace.app.retries.failure_fate import Fate
from headrace.app.retry import DeliveriesUsedUp

# group.share.delivery.count.limit of Apache Kafka 4.3, unless the group says otherwise.
MOST_DELIVERIES = 5


def delivered(
    stream: Stream, natives: Iterable[DeliveredRecord], limit: int | None, now_ms: int
) -> tuple[list[RecordInHand], list[Write]]:
    """The records to handle, and dead letters of those whose deliveries are used up. With `limit`
    None no record is parked."""
    new: list[RecordInHand] = []
    letters: list[Write] = []
    for native in natives:
        offset = native.offset()
        assert offset is not None
        record = RecordInHand(native, stream, offset, None)
        record.made = native.delivery_count() - 1
        if limit is not None and native.delivery_count() >= limit:
            letters.append(used_up_letter(record, now_ms))
        else:
            new.append(record)
    return new, letters


def used_up_letter(record: RecordInHand, now_ms: int) -> Write:
    error = DeliveriesUsedUp(
        f"It was delivered {record.made} times and not acknowledged: its workers ended, lost their "
        "connection, or gave it back."
    )
    return Write(record, Fate.DEAD_LETTER, error, record.made, now_ms)
