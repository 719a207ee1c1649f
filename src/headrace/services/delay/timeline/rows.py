"""One pending record: the fields that are kept until it is due, and its form when delivered.

Rows are plain tuples, because one is built for every record twice: (due_ms, offset, kept) sorts in
the order of delivery, and `kept` is what marshal writes and reads in one call of C. As named tuples
they took 6 to 10 % more processor time to accept and to rebuild (`benchmarks/delay_store.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.services.delay.timeline.progress import DueKey
from headrace.wire.contract import headers as names
from headrace.wire.contract.cron import Cron, Run, run_after
from headrace.wire.contract.delay_instructions import RecordFields, Schedule

CronFields = tuple[str, str, int | None, int | None, int]
# (key, value, headers, partition, appended_ms, id, cron); cron as the fields of `Cron`.
Kept = tuple[
    bytes | None,
    bytes | None,
    list[tuple[str, bytes | None]] | None,
    int | None,
    int,
    str | None,
    CronFields | None,
]
Row = tuple[int, int, Kept]
# Fields by name, where a row is not taken apart as a whole: `row[KEPT][ID]`.
DUE_MS: Final = 0
OFFSET: Final = 1
KEPT: Final = 2
APPENDED_MS: Final = 4  # of what is kept
ID: Final = 5
CRON: Final = 6


class Delivery(NamedTuple):
    """A record that is ready for produce()."""

    key: bytes | None
    value: bytes | None
    # What is handed on, plus headrace-due-at, headrace-source with its topic id, and
    # headrace-message-id.
    headers: list[tuple[str, bytes | None]]
    partition: int  # the companion's own number unless the record named another
    due_ms: int
    offset: int  # the intake's
    from_ms: int  # before it could not be delivered: it was not due, or not sent yet


# Makes a named tuple of a plain one: quicker than a call with its fields.
_named = tuple.__new__

# The memory of a row besides its key, value and headers.
_ROW_BYTES = 200
_HEADER_BYTES = 100


def row_of(record: RecordFields, schedule: Schedule) -> Row:
    offset, appended_ms, key, value, _ = record
    cron = _fields(schedule.cron) if schedule.cron is not None else None
    kept = key, value, schedule.headers, schedule.partition, appended_ms, schedule.id, cron
    return schedule.due_ms, offset, kept


def key_of(row: Row) -> DueKey:
    """Returns its place in the order of delivery."""
    return row[DUE_MS], row[OFFSET]


def weight_of(kept: Kept) -> int:
    """Returns about how many bytes it takes, for bounds."""
    key, value, headers = kept[:3]
    size = _ROW_BYTES
    if key:
        size += len(key)
    if value:
        size += len(value)
    if headers:
        for name, content in headers:
            size += _HEADER_BYTES + len(name)
            if content:
                size += len(content)
    return size


def deliveries(
    rows: Iterable[Row], topic: str, partition: int, topic_id: str = ""
) -> list[Delivery]:
    """`topic`, `partition` and `topic_id` are the intake's."""
    source = f"{topic}/{partition}/%d".encode()
    due_at, source_name = names.DUE_AT, names.SOURCE
    of_topic = [(names.SOURCE_TOPIC_ID, topic_id.encode())] if topic_id else []
    run_id = source + (f"@{topic_id}".encode() if topic_id else b"")
    made: list[Delivery] = []
    for due_ms, offset, (key, value, kept_headers, asked, appended_ms, id_, cron) in rows:
        due = b"%d" % due_ms
        added = (due_at, due), (source_name, source % offset), *of_topic
        headers: list[tuple[str, bytes | None]] = (
            [*kept_headers, *added] if kept_headers else [*added]
        )
        if id_ is not None:
            headers.append((names.MESSAGE_ID, b"%b@%b" % (id_.encode(), due)))
        elif cron is not None:  # its runs come from one record, and are many messages
            headers.append((names.MESSAGE_ID, b"%b@%b" % (run_id % offset, due)))
        place = partition if asked is None else asked
        from_ms = max(due_ms, appended_ms)
        fields = key, value, headers, place, due_ms, offset, from_ms
        made.append(_named(Delivery, fields))
    return made


def run_of(row: Row) -> Run:
    cron = row[KEPT][CRON]
    assert cron is not None
    return Run(row[DUE_MS], Cron(*cron))


def _fields(cron: Cron) -> CronFields:
    # marshal takes plain tuples only.
    return cron.expression, cron.zone, cron.until_ms, cron.runs, cron.number


def at_run(row: Row, run: Run) -> Row:
    """The same record, for another run."""
    _, offset, kept = row
    return run.due_ms, offset, (*kept[:CRON], _fields(run.cron))


def next_run(row: Row, watermark: DueKey) -> Row | None:
    """The row of a repeating record after everything up to the watermark is done."""
    offset = row[OFFSET]
    # A run at the watermark's own time is still to come if the record's offset is above the
    # watermark's.
    due_ms, last_offset = watermark
    after_ms = due_ms if offset <= last_offset else due_ms - 1
    run = run_after(run_of(row), after_ms)
    return None if run is None else at_run(row, run)


def long_keys(rows: Iterable[Row], far_after_ms: int, far: int) -> list[DueKey]:
    """Keys of rows that may still be pending when the intake wants to forget them."""
    return [
        (due_ms, offset)
        for due_ms, offset, kept in rows
        if offset >= far and (due_ms - kept[APPENDED_MS] >= far_after_ms or kept[CRON] is not None)
    ]
