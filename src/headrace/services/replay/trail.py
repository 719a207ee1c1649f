"""Where a replayed record came from, in its headers, and the guard against endless loops.

Each replay adds a header `headrace-replayed-from` with the place that it read. A record is not
replayed into a topic that it came from already, and not more than a few times in all: two replays
that feed each other would otherwise never end.
"""

from __future__ import annotations

from headrace.client.records import HeaderList, Record
from headrace.wire.contract.headers import REPLAYED_FROM

MOST_REPLAYS = 5


def would_loop(record: Record, to_topic: str) -> bool:
    """Returns whether the record has been in that topic before, or was replayed too often."""
    record_ids = [value for name, value in record.headers if name == REPLAYED_FROM and value]
    if len(record_ids) >= MOST_REPLAYS:
        return True
    return any(_topic(record_id.decode("utf-8", "replace")) == to_topic for record_id in record_ids)


def with_trail(record: Record) -> HeaderList:
    """The record's headers, and where it was read just now."""
    record_id = f"{record.topic}/{record.partition}/{record.offset}".encode()
    return [*record.headers, (REPLAYED_FROM, record_id)]


def _topic(record_id: str) -> str:
    return record_id.rsplit("/", 2)[0]
