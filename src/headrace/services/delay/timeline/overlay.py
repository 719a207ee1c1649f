"""The records taken from a partition of the intake since its last commit, in order, with their
effects.

A newer record of the same id and a cancel take effect here at once: an older row that is still here
leaves, one that is in the store is noted as dropped. Nothing here is true before a commit.
"""

from __future__ import annotations

from headrace.services.delay.timeline.pending import Pending
from headrace.services.delay.timeline.progress import DueKey
from headrace.services.delay.timeline.rows import DUE_MS, KEPT, OFFSET, Row, weight_of
from headrace.services.delay.timeline.transaction_plan import Outcome, Rejection
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_instructions import RecordFields

NEVER_MS = 2**62


class Overlay:
    __slots__ = (
        "dropped",
        "done_ids",
        "earliest_ms",
        "ids",
        "late",
        "late_until_ms",
        "opened_ms",
        "outcomes",
        "rejections",
        "rows",
        "weight",
    )

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}  # by offset
        self.late: set[int] = set()  # offsets of rows that the watermark has passed already
        self.late_until_ms = 0  # every row of `late` is due by then
        self.ids: dict[str, DueKey | None] = {}  # None: cancelled
        self.dropped: set[DueKey] = set()  # rows of the store that are replaced or cancelled
        self.outcomes: list[Outcome] = []
        self.rejections: list[Rejection] = []
        self.done_ids: list[tuple[DueKey, str]] = []  # only while reading again
        self.earliest_ms = NEVER_MS  # no row is due before
        self.weight = 0
        self.opened_ms: int | None = None

    @property
    def must(self) -> int:
        """How many records the next plan has to write, whatever its limit."""
        return len(self.late) + len(self.outcomes) + len(self.rejections)

    def add(self, row: Row, *, late: bool) -> None:
        due_ms, offset, kept = row
        self.rows[offset] = row
        self.weight += weight_of(kept)
        if late:
            self.late.add(offset)
            self.late_until_ms = max(self.late_until_ms, due_ms)
        elif due_ms < self.earliest_ms:
            self.earliest_ms = due_ms

    def name(self, id_: str, key: DueKey | None, pending: Pending, watermark: DueKey) -> None:
        """Makes this one the last schedule of that id: a pending earlier one is removed."""
        self._drop(self._last_of(id_, pending), watermark)
        self.ids[id_] = key

    def cancel(
        self, record: RecordFields, id_: str, pending: Pending, watermark: DueKey, *, told: bool
    ) -> None:
        """Cancels the schedule of an id. `told`: the outcome was written when the record was read
        before.

        The id is forgotten either way: when records are read again, the watermark has passed a
        cancelled one as well, and a second cancel must not get the outcome that it was delivered.
        """
        target = self._last_of(id_, pending)
        if target is None:
            outcome = names.UNKNOWN
        elif self._drop(target, watermark):
            outcome = names.CANCELLED
        else:
            outcome = names.TOO_LATE
        if target is not None:
            self.ids[id_] = None
        if not told:
            offset, _, key, *_ = record
            self.outcomes.append(Outcome(offset, key, id_, outcome, target))

    def reject(self, record: RecordFields, reason: str) -> None:
        self.rejections.append(Rejection(record, reason))
        _, _, _, value, _ = record
        self.weight += len(value or b"")

    def due(self, now_ms: int) -> list[Row]:
        """Rows whose time has come, beside the late ones, in no order."""
        if now_ms < self.earliest_ms:
            return []
        late = self.late
        return [
            row for row in self.rows.values() if row[DUE_MS] <= now_ms and row[OFFSET] not in late
        ]

    def _last_of(self, id_: str, pending: Pending) -> DueKey | None:
        return self.ids[id_] if id_ in self.ids else pending.find_id(id_)

    def _drop(self, key: DueKey | None, watermark: DueKey) -> bool:
        """Drops a row. Returns whether it was pending."""
        if key is None:
            return False
        _, offset = key
        row = self.rows.pop(offset, None)
        if row is not None:
            self.late.discard(offset)
            self.weight -= weight_of(row[KEPT])
            return True
        if key > watermark:
            self.dropped.add(key)
            return True
        return False
