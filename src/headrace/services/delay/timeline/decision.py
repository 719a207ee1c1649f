"""Decides one plan: the deliveries, the dropped rows, the moves to the far topic.

Pure: reads a timeline's state and changes nothing of it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

from headrace.services.delay.timeline import far_records
from headrace.services.delay.timeline.limits import DelayLimits
from headrace.services.delay.timeline.overlay import Overlay
from headrace.services.delay.timeline.pending import Changes, Pending, Sample
from headrace.services.delay.timeline.progress import DueKey, IntakeProgress
from headrace.services.delay.timeline.rows import (
    APPENDED_MS,
    CRON,
    ID,
    KEPT,
    OFFSET,
    Delivery,
    Row,
    at_run,
    deliveries,
    key_of,
    long_keys,
    next_run,
    run_of,
    weight_of,
)
from headrace.services.delay.timeline.transaction_plan import (
    FarRecord,
    Misfit,
    Rejection,
    TransactionPlan,
)
from headrace.wire.contract.cron import last_run_by

# Kept of the intake's age; when a partition cannot move on for long they become coarser.
MOST_SAMPLES = 256


class TimelineState(Protocol):
    """The parts of a timeline that are read here."""

    topic: str
    topic_id: str
    partition: int
    progress: IntakeProgress
    limits: DelayLimits
    pending: Pending
    overlay: Overlay
    samples: list[Sample]
    refused: dict[int, str]
    misfits: dict[int, Misfit]

    @property
    def taken_to(self) -> int: ...

    @property
    def first_stored_ms(self) -> int: ...


class _Due:
    """The deliveries in order, and the new watermark."""

    __slots__ = ("crons", "rows", "stored", "watermark")

    def __init__(self, watermark: DueKey) -> None:
        self.rows: list[Row] = []  # to deliver
        self.stored = 0  # rows of the store up to the new watermark
        self.crons: list[Row] = []  # repeating rows that were due up to the new watermark, at their
        # last run that is due
        self.watermark = watermark


def decide(state: TimelineState, now_ms: int, room: int) -> TransactionPlan:
    overlay, before = state.overlay, state.progress
    late = sorted(overlay.rows[offset] for offset in overlay.late)
    due = _due(state, now_ms, room) if room else _Due(before.watermark)
    watermark = due.watermark
    moved, ended = _next_runs(
        due.crons + [row for row in late if row[KEPT][CRON] is not None], watermark
    )
    delivered = late + due.rows
    puts = [row for row in overlay.rows.values() if key_of(row) > watermark] + moved
    far, far_rows = _far(state, now_ms, watermark, {row[OFFSET]: row for row in moved})

    progress = IntakeProgress(state.taken_to, watermark, far)
    plan = TransactionPlan(before, progress)
    plan.outcomes = overlay.outcomes
    plan.rejections = overlay.rejections
    plan.deliveries, refused = _split_refused(state, delivered)
    if refused:
        plan.rejections = overlay.rejections + refused
        plan.refused_offsets = [rejection.record[0] for rejection in refused]
    done = [row for row in delivered if row[KEPT][CRON] is None] + ended
    plan.far = far_rows + _tombstones(state, done)
    if room and state.misfits:
        _set_aside(state, plan)
    plan.changes = Changes(
        progress.position,
        watermark,
        far,
        _trimmed(state.samples, far),
        count_by=len(puts) - due.stored - len(overlay.dropped),
        puts=puts,
        long=long_keys(puts, state.limits.far_after_ms, far),
        deletes=list(overlay.dropped),
        ids=overlay.ids | _names(moved + ended),
        done_ids=[(key_of(row), id_) for row in done if (id_ := row[KEPT][ID]) is not None],
    )
    return plan


def _set_aside(state: TimelineState, plan: TransactionPlan) -> None:
    """Sets misfits of the far topic aside: they are reported, and removed from that topic."""
    aside = list(state.misfits.items())
    plan.misfits = [offset for offset, _ in aside]
    plan.far += [far_records.tombstone(state.topic, state.partition, offset) for offset, _ in aside]
    plan.rejections = plan.rejections + [
        Rejection(misfit.record, misfit.reason) for _, misfit in aside if misfit.reason is not None
    ]


def _names(rows: list[Row]) -> dict[str, DueKey | None]:
    return {id_: key_of(row) for row in rows if (id_ := row[KEPT][ID]) is not None}


def _due(state: TimelineState, now_ms: int, room: int) -> _Due:
    overlay, limits = state.overlay, state.limits
    due = _Due(state.progress.watermark)
    rows, complete = state.pending.scan(due.watermark, now_ms, room, limits.transaction_bytes)
    # Rows behind the last scanned one are not known: nothing may be delivered beyond it.
    frontier = None if complete else key_of(rows[-1])
    if overlay.dropped:
        rows = [row for row in rows if key_of(row) not in overlay.dropped]
    stored = rows
    if fresh := overlay.due(now_ms):
        rows = sorted(rows + fresh)
    # Missed runs collapse into the last of them, which takes its place in the order.
    crons = {
        key_of(row): at_run(row, last_run_by(run_of(row), now_ms))
        for row in rows
        if row[KEPT][CRON] is not None
    }
    if crons:
        rows = sorted(crons.get(key_of(row), row) for row in rows)
    if frontier is not None:
        rows = rows[: _index_after(rows, frontier)]
    if len(rows) > room:
        rows = rows[:room]
        frontier = None
    due.rows = rows
    if frontier is not None:
        due.watermark = frontier
    elif rows:
        due.watermark = key_of(rows[-1])
    due.stored = _index_after(stored, due.watermark)
    due.crons = [row for key, row in crons.items() if key <= due.watermark]
    return due


def _index_after(rows: list[Row], key: DueKey) -> int:
    return bisect_right(rows, key, key=key_of)


def _next_runs(crons: list[Row], watermark: DueKey) -> tuple[list[Row], list[Row]]:
    """Returns the repeating rows at their next place, and those that have had their last run.

    A row that is due and was not reached gets its last run that is due. With the next run after the
    watermark, many rows that have missed many runs would be moved again and again.
    """
    moved, ended = [], []
    for row in crons:
        following = next_run(row, watermark)
        if following is None:
            ended.append(row)
        else:
            moved.append(following)
    return moved, ended


def _split_refused(state: TimelineState, rows: list[Row]) -> tuple[list[Delivery], list[Rejection]]:
    intake, refused = (state.topic, state.partition, state.topic_id), state.refused
    if not refused:
        return deliveries(rows, *intake), []
    taken = deliveries([row for row in rows if row[OFFSET] not in refused], *intake)
    return taken, [
        Rejection((row[OFFSET], row[KEPT][APPENDED_MS], key, value, headers), refused[row[OFFSET]])
        for row in rows
        if row[OFFSET] in refused
        for key, value, headers, *_ in deliveries([row], *intake)
    ]


def _tombstones(state: TimelineState, done: list[Row]) -> list[FarRecord]:
    far = state.progress.far
    if not far:
        return []
    offsets = [offset for _, offset, _ in done if offset < far]
    offsets += [offset for _, offset in state.overlay.dropped if offset < far]
    return [far_records.tombstone(state.topic, state.partition, offset) for offset in offsets]


# ---- moving to the far topic --------------------------------------------------------------------


def far_target(state: TimelineState, now_ms: int) -> int:
    """Below this offset, all pending records are known to be long: they could be moved now.

    A record that is not long was due within `far_after_ms` of its append time. If it were before a
    sample so old, it would be due before the first row of the store.
    """
    old_ms = min(now_ms, state.first_stored_ms) - state.limits.far_after_ms
    target = state.progress.far
    for time_ms, offset in state.samples:
        if time_ms > old_ms or offset > state.progress.position:
            break
        target = max(target, offset)
    return target


def _far(
    state: TimelineState, now_ms: int, watermark: DueKey, moved: dict[int, Row]
) -> tuple[int, list[FarRecord]]:
    before, limit = state.progress.far, state.limits.far_records
    target = far_target(state, now_ms)
    if target == before:
        return before, []
    keys = state.pending.long_rows(before, target, limit)
    if len(keys) == limit:
        target = keys[-1][OFFSET] + 1
    records = []
    room = state.limits.transaction_bytes
    for key in keys:
        row = moved.get(key[OFFSET])
        if row is None and key > watermark and key not in state.overlay.dropped:
            row = state.pending.get(key)
            assert row is not None, "a long row is there until it is done or dropped"
        if row is not None:
            records.append(far_records.write(state.topic, state.partition, row, state.topic_id))
            room -= weight_of(row[KEPT])
            if room <= 0:
                return key[OFFSET] + 1, records
    return target, records


def with_sample(samples: list[Sample], sample: Sample, every_ms: int) -> None:
    """The last sample is always the newest state; the one before it is fixed."""
    if len(samples) >= 2 and sample[0] < samples[-2][0] + every_ms:
        samples[-1] = sample
    else:
        samples.append(sample)
    if len(samples) > MOST_SAMPLES:
        del samples[1:-1:2]


def _trimmed(samples: list[Sample], far: int) -> list[Sample]:
    """Samples that can still move the far mark, and the newest, which says how old all is."""
    return [sample for sample in samples[:-1] if sample[1] > far] + samples[-1:]
