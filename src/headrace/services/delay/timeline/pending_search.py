"""Queries about pending messages: by topic, time, id or key, page by page.

Answers from the store, so what was taken in the last second may be missing. A page looks at a
bounded number of rows; it can be short, even empty, and still have a cursor for the next one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.services.delay.timeline.pending import Pending
from headrace.services.delay.timeline.progress import DueKey
from headrace.services.delay.timeline.rows import Row, key_of

MOST_ROWS = 1_000
SCANNED_PER_PAGE = 20_000
_AT_A_TIME = 256
_END_MS = 2**63


class Held(Pending, Protocol):
    """One partition's rows, with its name."""

    topic: str
    partition: int


@dataclass(slots=True)
class Wanted:
    """The filter of a list: all conditions must hold."""

    partition: int | None = None  # of the companion
    id: str | None = None
    key: bytes | None = None
    from_ms: int | None = None  # due at that time or later
    to_ms: int | None = None  # due before that time
    after: str | None = None  # the cursor of the page before
    limit: int = 100


class PendingRow(NamedTuple):
    """One pending message."""

    topic: str  # the companion's
    partition: int  # the companion's
    offset: int  # in the companion
    due_ms: int
    appended_ms: int
    id: str | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    target_partition: int
    cron: tuple[str, str, int | None, int | None] | None  # expression, zone, until_ms, count


def find(partitions: Iterable[Held], wanted: Wanted) -> tuple[list[PendingRow], str | None]:
    """A page, and the cursor of the next one; None: that was all.

    Raises ValueError for a cursor that is none, or a limit out of bounds.
    """
    if not 1 <= wanted.limit <= MOST_ROWS:
        raise ValueError(f"a page has 1 to {MOST_ROWS} messages, not {wanted.limit}")
    asked = [held for held in partitions if wanted.partition in (None, held.partition)]
    if wanted.id is not None:
        return [row for held in asked for row in _by_id(held, wanted)][: wanted.limit], None
    cursor = _read_cursor(wanted.after) if wanted.after is not None else None
    streams = [_stream(held, _start(held.partition, wanted, cursor), wanted) for held in asked]
    rows: list[PendingRow] = []
    scanned = heapq.merge(*streams, key=lambda row: (row.due_ms, row.partition, row.offset))
    for number, row in enumerate(scanned, start=1):
        if wanted.key is None or row.key == wanted.key:
            rows.append(row)
        if len(rows) == wanted.limit or number == SCANNED_PER_PAGE:
            return rows, f"{row.due_ms}-{row.partition}-{row.offset}"
    return rows, None


def count_due_before(partitions: Iterable[Held], until_ms: int, at_most: int) -> int:
    count = 0
    for held in partitions:
        if count < at_most:
            rows, _ = held.scan(held.watermark, until_ms - 1, at_most - count)
            count += len(rows)
    return count


def _by_id(held: Held, wanted: Wanted) -> Iterator[PendingRow]:
    assert wanted.id is not None
    key = held.find_id(wanted.id)
    if key is None or key <= held.watermark or (row := held.get(key)) is None:
        return
    found = _pending_row(held, row)
    if (
        (wanted.key is None or found.key == wanted.key)
        and (wanted.from_ms is None or found.due_ms >= wanted.from_ms)
        and (wanted.to_ms is None or found.due_ms < wanted.to_ms)
    ):
        yield found


def _stream(held: Held, after: DueKey, wanted: Wanted) -> Iterator[PendingRow]:
    until_ms = (wanted.to_ms if wanted.to_ms is not None else _END_MS) - 1
    complete = False
    while not complete:
        rows, complete = held.scan(max(after, held.watermark), until_ms, _AT_A_TIME)
        for row in rows:
            after = key_of(row)
            yield _pending_row(held, row)


def _start(partition: int, wanted: Wanted, cursor: tuple[int, int, int] | None) -> DueKey:
    """Rows after this key come next, where equal due times are in the order of partitions."""
    start = ((wanted.from_ms or 0) - 1, _END_MS)
    if cursor is None:
        return start
    due_ms, last_partition, offset = cursor
    if partition == last_partition:
        return max(start, (due_ms, offset))
    return max(start, (due_ms, _END_MS) if partition < last_partition else (due_ms - 1, _END_MS))


def _read_cursor(text: str) -> tuple[int, int, int]:
    try:
        due_ms, partition, offset = (int(part) for part in text.split("-"))
    except ValueError as error:
        raise ValueError(f"'{text[:100]}' is not a cursor of a page") from error
    return due_ms, partition, offset


def _pending_row(held: Held, row: Row) -> PendingRow:
    due_ms, offset, (key, value, headers, target, appended_ms, id_, cron) = row
    return PendingRow(
        held.topic,
        held.partition,
        offset,
        due_ms,
        appended_ms,
        id_,
        key,
        value,
        headers or [],
        held.partition if target is None else target,
        None if cron is None else cron[:4],
    )
