"""The copies of a record that are written after a failed attempt: for a retry, or a dead letter."""

from __future__ import annotations

from typing import Any

from headrace.app import headers as names
from headrace.app.dispatch.effects import Move, Write
from headrace.app.names import dead_topic
from headrace.app.retries.dead_letters import why_headers
from headrace.app.retries.failure_fate import Fate
from headrace.client.delay.schedules import schedule_headers, to_companion
from headrace.client.records import HeaderList, Outgoing


def copy_to_write(write: Write, *, group: str, worker: str, more: HeaderList) -> Outgoing[Any, Any]:
    """`more`: headers that belong to the attempt, which `worker` made."""
    if write.fate is Fate.DEAD_LETTER:
        return _dead_letter(write, group, worker, more)
    copy = write.record.copy_for(
        write.record.owned.retry.topic,
        made=write.made,
        first_failed_ms=write.failed_ms,
        worker=worker,
        more=[],
    )
    copy = to_companion(copy, schedule_headers({"deliver_at": write.due_ms}))
    copy.headers += more
    return copy


def _dead_letter(write: Write, group: str, worker: str, more: HeaderList) -> Outgoing[Any, Any]:
    record, carried = write.record, write.record.carried
    first_ms = carried.first_failed_ms or write.failed_ms
    why = why_headers(
        write.error,
        attempts=write.made,
        first_at_ms=first_ms,
        last_at_ms=write.failed_ms,
        origin=carried.origin or (*record.stream.place, record.offset),
        group=group,
    )
    topic = dead_topic(record.owned.topic, group)
    return record.copy_for(
        topic, made=write.made, first_failed_ms=first_ms, worker=worker, more=why + more
    )


def copy_to_move(move: Move, now_ms: int, *, worker: str) -> Outgoing[Any, Any]:
    """The copy for the retry partition; without an attempt it waits behind another of its key."""
    return move.record.copy_for(
        move.record.owned.retry.topic,
        made=move.made,
        first_failed_ms=now_ms if move.made else 0,
        worker=worker,
        more=[(names.DUE, b"%d" % move.due_ms)],
    )
