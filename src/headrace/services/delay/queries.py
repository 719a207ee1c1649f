"""What people ask about pending messages: which are there, by topic, time, id or key, page by page.

Answers from the store, so what was taken in the last second may be missing. A page looks at a
bounded number of rows; it can be short, even empty, and still have a cursor for the next one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.services.delay.pending import Pending
from headrace.services.delay.progress import DueKey
from headrace.services.delay.rows import CronFields, Row

MOST_ROWS = 1_000
SCANNED_PER_PAGE = 20_000
MOST_COUNTED = 100_000
_AT_A_TIME = 256
_END_MS = 2**63


class Held(Pending, Protocol):
    """One partition's rows, with its name. Read by another thread than the one that changes them."""

    topic: str
    partition: int


@dataclass(slots=True)
class Query:
    topic: str
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
    cron: CronFields | None  # expression, zone, until_ms, number of runs, number of the next run


@dataclass(slots=True)
class Page:
    rows: list[PendingRow]
    after: str | None  # the next page's cursor; None: that was all


def find(partitions: Iterable[Held], query: Query) -> Page:
    """Raises ValueError for a cursor that is none, or a limit out of bounds."""
    if not 1 <= query.limit <= MOST_ROWS:
        raise ValueError(f"a page has 1 to {MOST_ROWS} messages, not {query.limit}")
    asked = [held for held in partitions if query.partition in (None, held.partition)]
    if query.id is not None:
        return Page([row for held in asked for row in _by_id(held, query)][: query.limit], None)
    cursor = _read_cursor(query.after) if query.after is not None else None
    streams = [_stream(held, _start(held.partition, query, cursor), query) for held in asked]
    page = Page([], None)
    scanned = heapq.merge(*streams, key=lambda row: (row.due_ms, row.partition, row.offset))
    for number, row in enumerate(scanned, start=1):
        if query.key is None or row.key == query.key:
            page.rows.append(row)
        if len(page.rows) == query.limit or number == SCANNED_PER_PAGE:
            page.after = f"{row.due_ms}-{row.partition}-{row.offset}"
            break
    return page


def count_due_before(partitions: Iterable[Held], until_ms: int) -> int:
    count = 0
    for held in partitions:
        if count < MOST_COUNTED:
            rows, _ = held.scan(held.watermark, until_ms - 1, MOST_COUNTED - count)
            count += len(rows)
    return count


def _by_id(held: Held, query: Query) -> Iterator[PendingRow]:
    assert query.id is not None
    key = held.find_id(query.id)
    if key is None or key <= held.watermark or (row := held.get(key)) is None:
        return
    found = _pending_row(held, row)
    if (
        (query.key is None or found.key == query.key)
        and (query.from_ms is None or found.due_ms >= query.from_ms)
        and (query.to_ms is None or found.due_ms < query.to_ms)
    ):
        yield found


def _stream(held: Held, after: DueKey, query: Query) -> Iterator[PendingRow]:
    until_ms = (query.to_ms if query.to_ms is not None else _END_MS) - 1
    complete = False
    while not complete:
        rows, complete = held.scan(max(after, held.watermark), until_ms, _AT_A_TIME)
        for row in rows:
            after = row[0], row[1]
            yield _pending_row(held, row)


def _start(partition: int, query: Query, cursor: tuple[int, int, int] | None) -> DueKey:
    """Rows after this key come next, where equal due times are in the order of partitions."""
    start = ((query.from_ms or 0) - 1, _END_MS)
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
        raise ValueError(f"'{text[:100]}' is no cursor of a page") from error
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
        cron,
    )
