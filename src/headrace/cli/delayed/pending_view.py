"""Pending messages at a terminal: a table of many, a sheet of one."""

from __future__ import annotations

from typing import Any

from headrace.cli import output
from headrace.cli.delayed.moments import away, clock
from headrace.client.delay.pending_rows import field_bytes
from headrace.foreign_text import escaped_bytes

LONGEST_KEY = 32


def show_many(rows: list[dict[str, Any]], now_ms: int) -> None:
    output.table(
        ("topic", "due", "", "id", "key", "waits at", "size"),
        [
            (
                row["topic"],
                clock(row["due_ms"]),
                away(row["due_ms"], now_ms),
                row["id"],
                _short(field_bytes(row, "key")),
                f"{row['partition']}@{row['offset']}",
                output.size(row["size"]),
            )
            for row in rows
        ],
    )


def _short(key: bytes | None) -> str | None:
    if key is None:
        return None
    shown = escaped_bytes(key)
    return shown if len(shown) <= LONGEST_KEY else shown[: LONGEST_KEY - 1] + "…"


def show_one(row: dict[str, Any], now_ms: int) -> None:
    topic, record_id = row["topic"], f"{row['partition']}@{row['offset']}"
    lines = [
        ("topic", f"{topic}, partition {row['target_partition']}"),
        ("due", f"{clock(row['due_ms'])}, {away(row['due_ms'], now_ms)}"),
        ("accepted", clock(row["accepted_ms"])),
        ("waits at", f"{topic}.delay, {record_id}"),
        ("id", row["id"] or "-"),
    ]
    if row["cron"] is not None:
        lines.append(("repeats", cron_text(row["cron"])))
    lines.append(("key", escaped_bytes(field_bytes(row, "key"))))
    for header in row.get("headers", []):
        lines.append(("header", f"{header['name']}: {escaped_bytes(field_bytes(header, 'value'))}"))
    lines.append(("value", escaped_bytes(field_bytes(row, "value"))))
    for name, words in lines:
        output.say(f"{name:<10}{words}")


def cron_text(cron: dict[str, Any]) -> str:
    words = f"{cron['expression']} in {cron['zone']}"
    if cron["until_ms"] is not None:
        words += f", until {clock(cron['until_ms'])}"
    if cron["count"] is not None:
        words += f", {output.count(cron['count'], 'time')} in all"
    return words
