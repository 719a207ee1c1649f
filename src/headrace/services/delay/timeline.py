"""One partition of the intake as a pure state machine: records and a clock in, settlements out.

    timeline = Timeline(place, progress, pending, ready_at=end_offset)
    timeline.take(records, now_ms)                 # in order of offset, from timeline.position on
    settlement = timeline.settle(now_ms, limit)    # None: nothing to do before next_wake_ms()
    ... one Kafka transaction writes it ...
    timeline.committed(settlement)                 # only now the store learns of it

After an abort, or when it is not known how a commit ended, throw the object away and start from the
committed progress and the store: `resume` says where to read. Not thread-safe. Reads no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.services.delay.instructions import RecordFields
from headrace.services.delay.progress import Progress
from headrace.services.delay.settlement import Settlement
from headrace.services.delay.store import Pending


@dataclass(slots=True)
class Limits:
    settlement_records: int = 20_000  # bounds one settlement, with what it must do at once
    settlement_bytes: int = 32 * 1024 * 1024
    overlay_records: int = 20_000  # taken and not settled: then a settlement moves the position
    overlay_bytes: int = 32 * 1024 * 1024
    overlay_age_ms: int = 1_000
    far_records: int = 2_000  # moved to the far topic by one settlement
    far_after_ms: int = 3_600_000  # a record pending for so long is moved to the far topic


@dataclass(slots=True)
class Resumed:
    """Where a partition starts: `far` says that far records below `read_from` are loaded first."""

    read_from: int
    far: bool


def resume(pending: Pending, progress: Progress, log_start: int, limits: Limits) -> Resumed:
    """Brings the store in line with what is committed, or empties it if it is of no use.

    When `far` is True: read the far topic up to its end offset as seen with read_uncommitted AFTER
    the committed offset was fetched (markers of one transaction arrive at different moments), give
    each live record of this partition to `Timeline.load_far`, then call `Timeline.far_loaded()`.
    """
    raise NotImplementedError


class Timeline:
    def __init__(
        self,
        topic: str,  # the companion's name
        partition: int,
        progress: Progress,
        pending: Pending,
        *,
        read_from: int,  # from `resume`
        ready_at: int,  # nothing is delivered before the position has reached it: the end at assignment
        limits: Limits,
        refused: dict[int, str] | None = None,  # intake offset -> reason, see `refuse`
    ) -> None: ...

    @property
    def position(self) -> int:
        """The next intake offset to take."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Its state is complete: the position has reached the committed one and `ready_at`."""
        raise NotImplementedError

    def wants_more(self) -> bool:
        """False: pause the intake of this partition until a settlement is committed."""
        raise NotImplementedError

    def take(self, records: Sequence[RecordFields], now_ms: int) -> None:
        """Records in order of offset. Takes more than it wants without harm, but memory."""
        raise NotImplementedError

    def skip_to(self, offset: int) -> None:
        """The consumer's position: offsets before it without a record (markers, aborted) are empty."""
        raise NotImplementedError

    def settle(self, now_ms: int, limit: int | None = None) -> Settlement | None:
        """What to do now; `limit` bounds the deliveries that can wait, below Limits.

        Decides only: the same call again gives the same. None when there is nothing to do.
        """
        raise NotImplementedError

    def committed(self, settlement: Settlement) -> None:
        """The transaction of the last settlement is committed: the store follows."""
        raise NotImplementedError

    def refuse(self, offset: int, reason: str) -> None:
        """The target does not take this record: settlements reject it instead of delivering it.

        Tell it before the timeline settles again; the dict given to the constructor remembers it for
        the next timeline of this partition until it is settled.
        """
        raise NotImplementedError

    def next_wake_ms(self) -> int | None:
        """When `settle` has something to do unless records arrive; None: never."""
        raise NotImplementedError

    def load_far(
        self, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes | None]]
    ) -> None:
        """One record of the far topic with this partition's prefix (see `far_records`)."""
        raise NotImplementedError

    def far_loaded(self) -> None:
        raise NotImplementedError
