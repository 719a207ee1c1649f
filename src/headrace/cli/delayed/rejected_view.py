"""Delayed messages that were refused, with their reasons."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from headrace.cli import output
from headrace.cli.delayed.moments import clock
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.contract import headers as names
from headrace.contract.delay_topics import rejected_of
from headrace.foreign_text import escaped_bytes


def rows_of(cluster: ClientSettings, topic: str) -> list[dict[str, Any]]:
    """Oldest first within a partition."""
    with closing(RecordReader(cluster, rejected_of(topic))) as reader:
        return [
            {
                "rejected_at_ms": record.timestamp_ms,
                "reason": _text(record.header(names.REJECTED_REASON)),
                "source": _text(record.header(names.SOURCE)),
                "id": _text(record.header(names.ID) or record.header(names.CANCEL)),
                "key": _text(record.key),
                "value": _text(record.value),
            }
            for record in reader.records()
        ]


def show(rows: list[dict[str, Any]]) -> None:
    columns = ("refused", "was at", "id", "key", "why")
    shown = ("source", "id", "key", "reason")
    output.table(
        columns, [(clock(row["rejected_at_ms"]), *(row[n] for n in shown)) for row in rows]
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else escaped_bytes(raw)
