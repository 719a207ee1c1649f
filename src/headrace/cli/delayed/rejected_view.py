"""Delayed messages that were refused, with their reasons."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from headrace.cli import output
from headrace.cli.delayed.moments import clock
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.foreign_text import escaped_bytes
from headrace.operations.delayed import RejectedMessage, rejected_message
from headrace.wire.contract.delay_topics import rejected_of


def rows_of(cluster: ClientSettings, topic: str) -> list[dict[str, Any]]:
    """Oldest first within a partition."""
    with closing(RecordReader(cluster, rejected_of(topic))) as reader:
        return [_as_row(rejected_message(record)) for record in reader.records()]


def _as_row(found: RejectedMessage) -> dict[str, Any]:
    return {
        "rejected_at_ms": found.at_ms,
        "reason": _text(found.reason),
        "source": _text(found.source),
        "id": _text(found.id),
        "key": _text(found.key),
        "value": _text(found.value),
    }


def show(rows: list[dict[str, Any]]) -> None:
    columns = ("refused", "was at", "id", "key", "why")
    shown = ("source", "id", "key", "reason")
    output.table(
        columns, [(clock(row["rejected_at_ms"]), *(row[n] for n in shown)) for row in rows]
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else escaped_bytes(raw)
