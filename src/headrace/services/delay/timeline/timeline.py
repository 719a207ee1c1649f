"""One partition of the intake as a pure state machine: records and a clock in, plans out.

    resumed = resume(pending, progress, log_start)
    timeline = Timeline(topic, partition, progress, pending, read_from=resumed.read_from,
                        ready_at=end_offset, limits=Limits())
    timeline.take(records, now_ms)                 # in order of offset, from timeline.position on
    plan = timeline.plan(now_ms, limit)    # None: nothing to do before next_wake_ms()
    ... one Kafka transaction writes it ...
    timeline.committed(plan)                 # only now the store learns of it

After an abort, or when the outcome of a commit is unknown, throw the object away and start from the
committed progress and the store. Not thread-safe. Reads no clock. `progress` has the rule by which
a record is done; docs/decisions/0007 says why it holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.services.delay.timeline import far_records
from headrace.services.delay.timeline.decision import decide, far_target, with_sample
from headrace.services.delay.timeline.limits import DelayLimits as DelayLimits
from headrace.services.delay.timeline.overlay import NEVER_MS, Overlay
from headrace.services.delay.timeline.pending import Changes, Pending
from headrace.services.delay.timeline.progress import IntakeProgress
from headrace.services.delay.timeline.rows import (
    CRON,
    DUE_MS,
    ID,
    KEPT,
    Row,
    at_run,
    key_of,
    long_keys,
    next_run,
    row_of,
    run_of,
    weight_of,
)
from headrace.services.delay.timeline.transaction_plan import Misfit, TransactionPlan
from headrace.wire.contract import headers as names
from headrace.wire.contract.cron import last_run_by
from headrace.wire.contract.delay_instructions import (
    Cancel,
    RecordFields,
    Schedule,
    read_instruction,
)

_RECOVERED_AT_ONCE = 10_000
# Invalid records of the far topic that are remembered until a plan rejects them. Further ones
# are found the next time the store is lost.
MOST_MISFITS = 100


@dataclass(slots=True)
class Resumed:
    """Where a partition starts, and what to do before."""

    read_from: int  # the intake offset to seek to
    far: bool  # far records below `read_from` are to be loaded first
    gone: int = 0  # intake records that were deleted before they were done or moved: report them


def resume(pending: Pending, progress: IntakeProgress, log_start: int) -> Resumed:
    """Brings the store in line with the committed progress, or empties it if it is ahead of it.

    When `far` is True: read the far topic up to its end offset as seen with read_uncommitted AFTER
    the committed offset was fetched (the markers of one transaction arrive at different moments),
    give each record of this partition, tombstones too, to `Timeline.load_far` in their order, then
    call `Timeline.far_loaded()`, and only then `take`.
    """
    if (
        log_start <= pending.position <= progress.position
        and pending.watermark <= progress.watermark
        and pending.far <= progress.far
    ):
        _catch_up(pending, progress)
        return Resumed(pending.position, far=False)
    pending.clear()
    gone = max(0, min(log_start, progress.position) - progress.far)
    # If nothing is committed, missing intake records may have moved to the far topic before the
    # group's offsets were lost.
    moved = progress.far > 0 or progress.position == 0
    return Resumed(log_start, far=log_start > 0 and moved, gone=gone)


def _catch_up(pending: Pending, progress: IntakeProgress) -> None:
    """Apply a commit that the store missed: remove done rows, move crons to their next run."""
    watermark = progress.watermark
    if (pending.watermark, pending.far) == (watermark, progress.far):
        return
    changes = Changes(pending.position, watermark, progress.far, pending.samples)
    after, complete = pending.watermark, False
    while not complete:
        rows, complete = pending.scan(after, watermark[DUE_MS], _RECOVERED_AT_ONCE)
        for row in rows:
            after = key_of(row)
            if after > watermark:
                complete = True
                break
            changes.count_by -= 1
            _leave(row, progress, changes)
    changes.long = long_keys(changes.puts, 0, progress.far)
    pending.apply(changes)


def _leave(row: Row, progress: IntakeProgress, changes: Changes) -> None:
    id_, cron = row[KEPT][ID], row[KEPT][CRON]
    moved = next_run(row, progress.watermark) if cron is not None else None
    if moved is None:
        if id_ is not None:
            changes.done_ids.append((key_of(row), id_))
        return
    changes.puts.append(moved)
    changes.count_by += 1
    if id_ is not None:
        changes.ids[id_] = key_of(moved)


class Timeline:
    def __init__(
        self,
        topic: str,  # the companion's name
        partition: int,
        progress: IntakeProgress,  # committed
        pending: Pending,
        *,
        read_from: int,  # from `resume`
        ready_at: int,  # the intake's end when the partition was assigned
        limits: DelayLimits,
        topic_id: str = "",
        refused: dict[int, str] | None = None,  # intake offset -> reason, see `refuse`
    ) -> None:
        # Invariants. `progress` is what is committed in Kafka; `pending` (the store) never knows
        # more than that. `overlay` holds what was taken since, and is dropped with this object
        # after an abort. Offsets below `_position` are taken; `_held` are the next ones, in order.
        # A record is done if its offset is below `progress.position` and its key is at or before
        # `progress.watermark`.
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.progress = progress
        self.limits = limits
        self.pending = pending
        self.refused = {} if refused is None else refused
        self.misfits: dict[int, Misfit] = {}  # of the far topic, by intake offset
        self.overlay = Overlay()
        self.samples = list(pending.samples)
        self._newest_ms = self.samples[-1][0] if self.samples else 0
        self._position = read_from
        self._ready_at = ready_at
        self._held: deque[RecordFields] = deque()
        self._held_until_ms = 0
        self._is_held = False  # because of the clock: the first held record is not due yet
        self._late_is_held = False  # because of the clock: late rows that are not due any more
        # Below the committed position: records are read again, for the store alone.
        self._reading_again = read_from < progress.position
        self._stored_ms: int | None = None  # the store has nothing due before; None: not known

    @property
    def position(self) -> int:
        """The next intake offset to take. (Records given and held back are taken already.)"""
        return self._held[-1][0] + 1 if self._held else self._position

    @property
    def taken_to(self) -> int:
        """Intake offsets below it are taken and not held back: the position to commit."""
        return self._position

    @property
    def ready(self) -> bool:
        """Its state is complete: the position has reached the committed one and `ready_at`."""
        return self._position >= self._ready_at and not self._reading_again

    @property
    def held_until_ms(self) -> int | None:
        """The clock is behind the last delivery: nothing more is taken before this time."""
        if self._late_is_held:
            return self.overlay.late_until_ms
        return self._held_until_ms if self._is_held else None

    def wants_more(self) -> bool:
        """False: pause the intake of this partition until a plan is committed."""
        if self._reading_again:
            return True
        return not self._held and not self._full()

    @property
    def waits_for_the_clock(self) -> bool:
        """Whether records are held back because the clock was set back, not for lack of room."""
        return bool(self._held) and self.overlay.must < self.limits.transaction_records

    def take(self, records: Sequence[RecordFields], now_ms: int) -> None:
        """Take records in order of offset. Records beyond the limits are held back in memory."""
        self._held.extend(records)
        self._take_held(now_ms)

    def skip_to(self, offset: int) -> None:
        """The consumer's position: offsets before it without a record will never have one."""
        if not self._held and offset > self._position:
            self._position = offset
            self._end_of_reading_again()

    def plan(
        self, now_ms: int, limit: int | None = None, *, clock_ms: int | None = None
    ) -> TransactionPlan | None:
        """The plan of the transaction to write now; None if there is nothing to do.

        `limit` lowers the number of deliveries below that of Limits. `clock_ms` is the clock if
        `now_ms` is behind it because more is unread. Decides only: the last plan before
        `committed` counts, with no `take` in between.
        """
        self._take_held(now_ms)
        if self._reading_again:
            return None
        overlay = self.overlay
        # Rows that the watermark has passed go with the next plan, or they would count as done. If
        # the clock was set back since they were taken, they would be early: the plan waits.
        self._late_is_held = (now_ms if clock_ms is None else clock_ms) < overlay.late_until_ms
        if self._late_is_held:
            return None
        if self._position > self.progress.position and (
            overlay.opened_ms is None or now_ms < overlay.opened_ms
        ):
            overlay.opened_ms = now_ms
        # Until the state is complete nothing may be delivered: a message that is due earlier, or a
        # cancel, may still be unread. Only a full overlay is settled, without deliveries.
        if not self.ready:
            return decide(self, now_ms, room=0) if self._full() else None
        # This runs for every partition in every round of the loop, so it answers from numbers in
        # memory: `first_stored_ms` is cached until the store changes.
        if not (
            overlay.must
            or self.misfits
            or now_ms >= min(overlay.earliest_ms, self.first_stored_ms)
            or self._is_time_to_move_on(now_ms)
            or far_target(self, now_ms) > self.progress.far
        ):
            return None
        most = self.limits.transaction_records
        room = most if limit is None else min(limit, most)
        return decide(self, now_ms, room=max(0, room - overlay.must))

    def committed(self, plan: TransactionPlan) -> None:
        """The transaction of the last plan is committed: the store follows."""
        assert plan.before is self.progress, "a plan is committed once, in order"
        assert plan.progress.position == self._position, "nothing is taken in between"
        assert plan.changes is not None
        self.pending.apply(plan.changes)
        self.progress = plan.progress
        self.samples = list(plan.changes.samples)
        self.overlay = Overlay()
        self._stored_ms = None
        for offset in plan.misfits:
            self.misfits.pop(offset, None)
        if self.refused:
            for delivered in plan.refused_offsets:
                self.refused.pop(delivered, None)

    def refuse(self, offset: int, reason: str) -> None:
        """The target does not take this record: plans reject it instead of delivering it.

        The dict given to the constructor remembers it for the next timeline of this partition,
        until that is committed.
        """
        self.refused[offset] = reason

    def hurry(self) -> None:
        """Make a plan due now, so that everything taken goes to the store."""
        if self._position > self.progress.position:
            self.overlay.opened_ms = 0

    def next_wake_ms(self) -> int | None:
        """When `plan` has something to do unless records arrive; None: never. May be past."""
        if self._reading_again:
            return None
        if not self.ready:
            return self.overlay.late_until_ms if self._full() else self._held_wake_ms()
        overlay = self.overlay
        if overlay.must or self.misfits:
            return overlay.late_until_ms
        at_ms = min(overlay.earliest_ms, self.first_stored_ms)
        if (held_ms := self._held_wake_ms()) is not None:
            at_ms = min(at_ms, held_ms)
        if self._position > self.progress.position:
            opened_ms = overlay.opened_ms
            wait_ms = self.limits.overlay_age_ms
            at_ms = min(at_ms, 0 if opened_ms is None or self._full() else opened_ms + wait_ms)
        for time_ms, offset in self.samples:
            if self.progress.far < offset <= self.progress.position:
                at_ms = min(at_ms, time_ms + self.limits.far_after_ms)
                break
        return None if at_ms == NEVER_MS else at_ms

    def _held_wake_ms(self) -> int | None:
        """When held records may be taken: at their due time, or at once if only room was
        missing."""
        if not self._held:
            return None
        return self._held_until_ms if self._is_held else 0

    # ---- the far topic, when the store was lost -------------------------------------------------

    def load_far(
        self, key: bytes, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> str | None:
        """Load one record of the far topic of this partition; a null value removes it.

        Returns the error if the record is invalid; a plan then rejects it. Rows go to the
        store in portions, so only few are in memory.
        """
        _, _, offset = far_records.record_id_of(key)
        if self._full() or len(self.overlay.dropped) >= self.limits.overlay_records:
            self._absorb(position=0, loading=True)
        self._unload(offset)
        if value is None or offset >= self._position:
            return None  # it is done, or the intake still has it
        if far_records.is_of_another_topic(headers, self.topic_id):
            return self._misfit((offset, 0, None, None, None), None)
        try:
            row: Row | None = far_records.read(key, value, headers)
        except ValueError as fault:
            own_key = next((said for name, said in headers if name == names.FAR_KEY), None)
            return self._misfit((offset, 0, own_key, value, headers), str(fault))
        assert row is not None
        if key_of(row) <= self.progress.watermark:
            row = next_run(row, self.progress.watermark) if row[KEPT][CRON] is not None else None
        if row is not None:
            self._load(row)
        return None

    def far_loaded(self) -> None:
        self._absorb(position=self._position)

    def _load(self, row: Row) -> None:
        key = key_of(row)
        if key in self.overlay.dropped:
            self._absorb(position=0, loading=True)  # or it would be put and deleted at once
        if (id_ := row[KEPT][ID]) is not None:
            self.overlay.ids[id_] = key
        self.overlay.add(row, late=False)

    def _unload(self, offset: int) -> None:
        """Remove an earlier far record with the same intake offset."""
        self.misfits.pop(offset, None)
        overlay, pending = self.overlay, self.pending
        row = overlay.rows.pop(offset, None)
        if row is not None:
            overlay.weight -= weight_of(row[KEPT])
        else:
            key = pending.find_loaded(offset)
            if key is None or key in overlay.dropped or (row := pending.get(key)) is None:
                return
            overlay.dropped.add(key)
        id_ = row[KEPT][ID]
        if id_ is not None:
            last = overlay.ids[id_] if id_ in overlay.ids else pending.find_id(id_)
            if last == key_of(row):
                overlay.ids[id_] = None

    def _misfit(self, record: RecordFields, reason: str | None) -> str | None:
        kept_bytes = sum(len(known.record[3] or b"") for known in self.misfits.values())
        if len(self.misfits) < MOST_MISFITS and kept_bytes < self.limits.overlay_bytes:
            self.misfits[record[0]] = Misfit(record, reason)
        return reason

    # ---- taking ---------------------------------------------------------------------------------

    def _take_held(self, now_ms: int) -> None:
        held = self._held
        newest_ms = self._newest_ms
        start = self._position
        self._is_held = False
        committed, most = self.progress.position, self.limits.transaction_records
        while held:
            record = held[0]
            offset, appended_ms, _, _, _ = record
            if offset >= self._position:
                if offset >= committed:
                    if self._reading_again:
                        self._end_of_reading_again(offset)
                    if self.overlay.must >= most:
                        break
                elif self._full():
                    self._absorb(position=self._position)
                if not self._take_one(record, now_ms):
                    self._is_held = True
                    break
                if appended_ms > newest_ms:
                    newest_ms = appended_ms
                self._position = offset + 1
            held.popleft()
        if self._position > start:
            self._newest_ms = newest_ms
            with_sample(self.samples, (newest_ms, self._position), self.limits.sample_ms)
        self._end_of_reading_again()

    def _take_one(self, record: RecordFields, now_ms: int) -> bool:
        """False: it is held, because it is not due yet and the watermark is already beyond it."""
        instruction = read_instruction(record)
        again = record[0] < self.progress.position
        if type(instruction) is Schedule:
            row = row_of(record, instruction)
            if (
                # Fast path: due after the watermark and without an id, so `_take_schedule` would
                # find it neither late nor named and would only add it.
                # tests/unit/services/delay/test_timeline_against_a_list.py compares both with a
                # plain list.
                row[DUE_MS] > self.progress.watermark[DUE_MS] and instruction.id is None
            ):  # nearly all records
                self.overlay.add(row, late=False)
                return True
            return self._take_schedule(row, now_ms, again)
        if type(instruction) is Cancel:
            watermark = self.progress.watermark
            self.overlay.cancel(record, instruction.id, self.pending, watermark, told=again)
        elif not again:
            self.overlay.reject(record, instruction.reason)  # type: ignore[union-attr]
        return True

    def _take_schedule(self, row: Row, now_ms: int, again: bool) -> bool:
        watermark = self.progress.watermark
        overlay = self.overlay
        late = key_of(row) <= watermark
        placed: Row | None = row
        if late:
            if not again and row[DUE_MS] > now_ms:
                # The clock was set back. Moving the position past this record would mark it as
                # done, and delivering it would be early.
                self._held_until_ms = row[DUE_MS]
                return False
            if row[KEPT][CRON] is not None:
                placed, late = self._place_late_cron(row, now_ms, again)
            elif again:
                placed = None
        if (id_ := row[KEPT][ID]) is not None:
            key = key_of(row if placed is None else placed)
            overlay.name(id_, key, self.pending, watermark)
            if placed is None:
                overlay.done_ids.append((key, id_))
        if placed is not None:
            overlay.add(placed, late=late)
        return True

    def _place_late_cron(self, row: Row, now_ms: int, again: bool) -> tuple[Row | None, bool]:
        """Runs up to the watermark were missed: deliver the latest now, or wait for the next
        run."""
        watermark = self.progress.watermark
        if not again:
            last = at_run(row, last_run_by(run_of(row), now_ms))
            if key_of(last) <= watermark:
                return last, True
        return next_run(row, watermark), False

    def _end_of_reading_again(self, reached: int = -1) -> None:
        if self._reading_again and max(reached, self._position) >= self.progress.position:
            self._position = max(self._position, self.progress.position)
            self._absorb(position=self._position)
            self._reading_again = False

    def _absorb(self, position: int, *, loading: bool = False) -> None:
        """Write the overlay to the store without a plan: all of it is already committed."""
        overlay = self.overlay
        puts = list(overlay.rows.values())
        progress = self.progress
        self.pending.apply(
            Changes(
                position,
                progress.watermark,
                progress.far,
                list(self.samples),
                count_by=len(puts) - len(overlay.dropped),
                puts=puts,
                long=long_keys(puts, self.limits.far_after_ms, progress.far),
                deletes=list(overlay.dropped),
                ids=overlay.ids,
                done_ids=overlay.done_ids,
                loading=loading,
            )
        )
        self.overlay = Overlay()
        self._stored_ms = None

    # ---- when -----------------------------------------------------------------------------------

    def _full(self) -> bool:
        overlay, limits = self.overlay, self.limits
        return (
            len(overlay.rows) >= limits.overlay_records
            or overlay.must >= limits.transaction_records
            or overlay.weight >= limits.overlay_bytes
            or len(overlay.ids) + len(overlay.done_ids) >= limits.overlay_records
        )

    def _is_time_to_move_on(self, now_ms: int) -> bool:
        if self._position <= self.progress.position:
            return False
        opened_ms = self.overlay.opened_ms
        assert opened_ms is not None
        return self._full() or now_ms - opened_ms >= self.limits.overlay_age_ms

    @property
    def first_stored_ms(self) -> int:
        """The earliest due time in the store."""
        if self._stored_ms is None:
            first = self.pending.first_after(self.progress.watermark)
            self._stored_ms = NEVER_MS if first is None else first[0]
        return self._stored_ms
