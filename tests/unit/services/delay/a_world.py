"""A small world around one timeline: an intake, a clock, commits that may get lost, and a model.

The model is a dictionary of what is pending, changed only when a plan is committed, and it is
asked each time whether what was decided is what a sorted list would have given. It knows nothing of
overlays, stores and limits: only the contract.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.services.delay.timeline.limits import DelayLimits
from headrace.services.delay.timeline.pending import Pending
from headrace.services.delay.timeline.progress import (
    DueKey,
    IntakeProgress,
    from_commit,
    to_metadata,
)
from headrace.services.delay.timeline.store import KEEP_IDS_MS
from headrace.services.delay.timeline.timeline import Timeline, resume
from headrace.services.delay.timeline.transaction_plan import FarRecord, TransactionPlan
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_instructions import IntakeRecord

MINUTE_MS = 60_000
TOPIC, PARTITION = "orders.delay", 3
START_MS = 1_800_000_000_000


@dataclass
class Asked:
    """What the test meant when it sent a record: the model never reads headers."""

    offset: int
    appended_ms: int
    due_ms: int = 0
    id: str | None = None
    cancel: str | None = None
    nonsense: bool = False
    partition: int | None = None
    every_minutes: int | None = None  # runs at each multiple of it
    runs: int | None = None

    def run_after(self, key: DueKey) -> int | None:
        """The first run above a key; of a record that does not repeat, its due time."""
        if self.every_minutes is None:
            return self.due_ms if (self.due_ms, self.offset) > key else None
        every_ms = self.every_minutes * MINUTE_MS
        first_ms = (self.appended_ms // every_ms + 1) * every_ms
        from_ms = key[0] if key[1] < self.offset else key[0] + 1
        due_ms = max(first_ms, -(-from_ms // every_ms) * every_ms)
        if self.runs is not None and due_ms >= first_ms + self.runs * every_ms:
            return None
        return due_ms

    def last_run_by(self, now_ms: int) -> int:
        if self.every_minutes is None:
            return self.due_ms
        every_ms = self.every_minutes * MINUTE_MS
        first_ms = (self.appended_ms // every_ms + 1) * every_ms
        last_ms = now_ms // every_ms * every_ms
        if self.runs is not None:
            last_ms = min(last_ms, first_ms + (self.runs - 1) * every_ms)
        return last_ms


@dataclass
class Model:
    """What is pending and done, by the contract."""

    position: int = 0
    watermark: DueKey = (-1, -1)
    pending: dict[int, int] = field(default_factory=dict)  # offset -> due
    done: dict[str, DueKey] = field(default_factory=dict)  # of ids, the last delivered
    delivered: dict[DueKey, int] = field(default_factory=dict)  # how often
    cancelled: set[int] = field(default_factory=set)


class World:
    def __init__(self, pending: Pending, limits: DelayLimits) -> None:
        self.pending = pending
        self.limits = limits
        self.now_ms = START_MS
        self.latest_ms = START_MS
        self.broker_ahead_ms = 0
        self.intake: dict[int, IntakeRecord] = {}
        self.asked: dict[int, Asked] = {}
        self.end = 0
        self.log_start = 0
        self.commit: tuple[int, str] | None = None
        self.far: dict[bytes, tuple[bytes, list[tuple[str, bytes | None]]]] = {}
        self.far_log: list[FarRecord] = []  # as it was written, tombstones too
        self.refused: dict[int, str] = {}
        self.taken_at: dict[int, int] = {}
        self.model = Model()
        self.timeline = self.start()

    # ---- what happens around it -----------------------------------------------------------------

    def append(self, asked: Asked, given: list[tuple[str, bytes | None]]) -> None:
        value = None if asked.cancel is not None else b"body %d" % self.end
        headers = [("trace", b"%d" % self.end), *given]
        record = IntakeRecord(self.end, asked.appended_ms, b"key", value, headers)
        self.intake[self.end] = record
        self.asked[self.end] = asked
        self.end += 1

    def next_asked(self) -> Asked:
        return Asked(self.end, self.now_ms + self.broker_ahead_ms)

    def feed(self, most: int) -> None:
        timeline = self.timeline
        if not timeline.wants_more():
            return
        offsets = [o for o in sorted(self.intake) if o >= timeline.position][:most]
        before = timeline.taken_to
        timeline.take([self.intake[offset] for offset in offsets], self.now_ms)
        if not any(offset >= timeline.position for offset in self.intake):
            timeline.skip_to(self.end)
        self._note_taken(before)

    def _note_taken(self, before: int) -> None:
        for offset in range(before, self.timeline.taken_to):
            self.taken_at[offset] = self.now_ms

    def start(self) -> Timeline:
        progress = from_commit(*self.commit)[0] if self.commit is not None else IntakeProgress()
        resumed = resume(self.pending, progress, self.log_start)
        assert resumed.gone == 0
        if self.pending.position == 0:  # it starts anew, and the intake has not all of it any more
            done = self.model.done.items()
            self.model.done = {id_: key for id_, key in done if key[1] >= self.log_start}
        timeline = Timeline(
            TOPIC,
            PARTITION,
            progress,
            self.pending,
            read_from=resumed.read_from,
            ready_at=self.end,
            limits=self.limits,
            refused=self.refused,
        )
        if resumed.far:
            for record in self.far_log:
                assert timeline.load_far(record.key, record.value, record.headers) is None
            timeline.far_loaded()
        self.timeline = timeline
        return timeline

    # ---- settling -------------------------------------------------------------------------------

    def decide(self) -> TransactionPlan | None:
        before = self.timeline.taken_to
        self.latest_ms = max(self.latest_ms, self.now_ms)
        wake_ms = self.timeline.next_wake_ms()
        plan = self.timeline.plan(self.now_ms)
        self._note_taken(before)
        if plan is not None or self.timeline.taken_to > before:
            assert wake_ms is not None and wake_ms <= self.now_ms, "it would oversleep this"
        if plan is None:
            wake_ms = self.timeline.next_wake_ms()
            assert wake_ms is None or wake_ms > self.now_ms, "it would be asked again and again"
        return plan

    def make_true(self, plan: TransactionPlan) -> None:
        """The transaction commits; the store hears of it or not."""
        self._check(plan)
        progress = plan.progress
        self.commit = progress.position, to_metadata(progress, "somebody")
        for record in plan.far:
            self.far_log.append(record)
            if record.value is None:
                assert self.far.pop(record.key, None) is not None, "a tombstone for nothing"
            else:
                self.far[record.key] = record.value, record.headers
        if plan.trim_to is not None:
            self.log_start = plan.trim_to
            self.intake = {o: r for o, r in self.intake.items() if o >= self.log_start}
        self._check_far(progress.far)

    def transact(self) -> bool:
        plan = self.decide()
        if plan is not None:
            self.make_true(plan)
            self.timeline.committed(plan)
            self.check_store()
        return plan is not None

    def run_until_idle(self) -> None:
        """As the service would: take what is there, transact what there is to do."""
        for _ in range(10_000):
            self.feed(100)
            at_end = self.timeline.position >= self.end
            # It wants no more and has nothing to do when the clock was stepped back.
            if not self.transact() and (at_end or not self.timeline.wants_more()):
                return
        raise AssertionError("it never comes to rest")

    # ---- the model ------------------------------------------------------------------------------

    def _check(self, plan: TransactionPlan) -> None:
        model, now_ms = self.model, self.now_ms
        self._look_where_repeating_rows_stand()
        position = plan.progress.position
        assert position >= model.position
        late: list[DueKey] = []
        outcomes, rejected = [], []
        for offset in range(model.position, position):
            asked = self.asked.get(offset)
            if asked is None:
                continue
            if asked.nonsense:
                rejected.append(offset)
            elif asked.cancel is not None:
                outcomes.append((offset, asked.cancel, self._cancel(asked.cancel, late)))
            else:
                self._schedule(asked, late)
        assert [(o.offset, o.id, o.outcome) for o in plan.outcomes] == outcomes

        due = sorted(
            (self.asked[offset].last_run_by(now_ms), offset)
            for offset, due_ms in model.pending.items()
            if due_ms <= now_ms and (due_ms, offset) > model.watermark
        )
        given = self._given(plan)
        assert given[: len(late)] == sorted(late), "what the watermark has passed comes first"
        given = given[len(late) :]
        assert given == due[: len(given)], "the rest in order of due time, nothing left out"
        if not self.timeline.ready:
            assert not given, "nothing is delivered before the state is complete"
        refused = [r.record[0] for r in plan.rejections if r.record[0] not in rejected]
        assert [r.record[0] for r in plan.rejections[: len(rejected)]] == rejected
        assert all(self.asked[offset].due_ms <= now_ms for offset in refused)
        assert len(late) + len(given) + len(outcomes) + len(rejected) <= max(
            self.limits.transaction_records, len(late) + len(outcomes) + len(rejected)
        )
        assert len(late) + len(outcomes) + len(rejected) <= self.limits.transaction_records
        self._move_on(plan, late, given, due)

    def _given(self, plan: TransactionPlan) -> list[DueKey]:
        """Keys of what is delivered, with what the target refused in its place."""
        refused = {}
        for rejection in plan.rejections:
            offset, _, _, _, headers = rejection.record
            if dict(headers or []).get(names.DUE_AT) is not None:
                refused[offset] = int(dict(headers or [])[names.DUE_AT] or b"")
                assert rejection.reason == self.refused[offset]
        given = []
        for key, value, headers, partition, due_ms, offset, _ in plan.deliveries:
            asked, due = self.asked[offset], b"%d" % due_ms
            source = f"{TOPIC}/{PARTITION}/{offset}".encode()
            expected = [("trace", b"%d" % offset), (names.DUE_AT, due), (names.SOURCE, source)]
            if asked.id is not None:
                expected.append((names.MESSAGE_ID, asked.id.encode() + b"@" + due))
            elif asked.every_minutes is not None:
                expected.append((names.MESSAGE_ID, source + b"@" + due))
            assert (key, value, headers) == (b"key", b"body %d" % offset, expected)
            assert partition == (PARTITION if asked.partition is None else asked.partition)
            assert due_ms <= self.now_ms, "never early"
            given.append((due_ms, offset))
        if refused:
            model_order = sorted((due_ms, offset) for offset, due_ms in refused.items())
            late = [key for key in given + model_order if key <= self.model.watermark]
            rest = [key for key in given + model_order if key > self.model.watermark]
            return sorted(late) + sorted(rest)
        return given

    def _schedule(self, asked: Asked, late: list[DueKey]) -> None:
        model, offset = self.model, asked.offset
        if asked.id is not None:
            self._drop(asked.id, late)
        due_ms = asked.run_after((-1, -1))
        assert due_ms is not None
        if (due_ms, offset) <= model.watermark:
            last = asked.last_run_by(self.taken_at[offset]), offset
            if last <= model.watermark:
                late.append(last)
            following = asked.run_after(model.watermark) if asked.every_minutes else None
            if following is None:
                if asked.id is not None:
                    model.done[asked.id] = last
                return
            due_ms = following
        model.pending[offset] = due_ms

    def _cancel(self, id_: str, late: list[DueKey]) -> str:
        if self._drop(id_, late):
            return names.CANCELLED
        delivered = self.model.done.get(id_)
        known = self.pending.find_id(id_) is not None
        if delivered is not None and not known and delivered[1] < self.pending.position:
            assert delivered[0] <= self.pending.watermark[0] - KEEP_IDS_MS, "it is known for a day"
            delivered = None
        self.model.done.pop(id_, None)
        return names.UNKNOWN if delivered is None else names.TOO_LATE

    def _drop(self, id_: str, late: list[DueKey]) -> bool:
        model = self.model
        dropped = [o for o in model.pending if self.asked[o].id == id_]
        dropped += [key[1] for key in late if self.asked[key[1]].id == id_]
        for offset in dropped:
            model.pending.pop(offset, None)
            model.cancelled.add(offset)
        late[:] = [key for key in late if key[1] not in dropped]
        if dropped:
            model.done.pop(id_, None)
        return bool(dropped)

    def _move_on(
        self, plan: TransactionPlan, late: list[DueKey], given: list[DueKey], due: list[DueKey]
    ) -> None:
        model, watermark = self.model, plan.progress.watermark
        for key in late + given:
            model.delivered[key] = model.delivered.get(key, 0) + 1
            assert model.delivered[key] == 1, "once"
            assert key[1] not in model.cancelled, "what was cancelled or replaced is never seen"
        assert watermark >= max([model.watermark, *given])
        if len(given) < len(due):
            assert watermark < due[len(given)]
        else:
            assert watermark == max([model.watermark, *given]) or not due or watermark <= due[-1]
        model.watermark, model.position = watermark, plan.progress.position
        for offset, due_ms in list(model.pending.items()):
            if (due_ms, offset) <= watermark:
                asked = self.asked[offset]
                following = asked.run_after(watermark) if asked.every_minutes else None
                if following is None:
                    del model.pending[offset]
                    if asked.id is not None:
                        model.done[asked.id] = due_ms, offset
                else:
                    model.pending[offset] = following

    def _check_far(self, far: int) -> None:
        expected = {
            f"{TOPIC}/{PARTITION}/{offset}".encode()
            for offset in self.model.pending
            if offset < far
        }
        assert set(self.far) == expected, "the far topic holds what the intake may forget"

    def _look_where_repeating_rows_stand(self) -> None:
        """At their next run; or, if that was due once and not reached, at a later one of those.

        It makes no difference but when the clock is stepped back.
        """
        rows, _ = self.pending.scan(self.pending.watermark, 2**62, 1_000_000)
        for due_ms, offset, _ in rows:
            asked = self.asked[offset]
            if asked.every_minutes is not None and offset in self.model.pending:
                next_ms = asked.run_after(self.model.watermark)
                assert next_ms is not None
                assert next_ms == due_ms or next_ms < due_ms <= asked.last_run_by(self.latest_ms)
                self.model.pending[offset] = due_ms

    def check_store(self) -> None:
        self._look_where_repeating_rows_stand()
        rows, complete = self.pending.scan(self.pending.watermark, 2**62, 1_000_000)
        assert complete
        pending = sorted((due_ms, offset) for offset, due_ms in self.model.pending.items())
        assert [(row[0], row[1]) for row in rows] == pending
        assert self.pending.count == len(pending)
        assert self.pending.position == self.model.position
        assert self.pending.watermark == self.model.watermark
