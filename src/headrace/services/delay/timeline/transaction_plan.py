"""The work of one transaction for one partition of the intake, decided and not yet committed.

The writer uses one Kafka transaction: deliveries to the target in this order, outcomes, rejections,
far records, and the group's offset with `progress` as its metadata. It may write a delivery to the
rejected topic instead (too large for the target, no such partition): it counts as done either way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.services.delay.timeline.pending import Changes
from headrace.services.delay.timeline.progress import DueKey, IntakeProgress
from headrace.services.delay.timeline.rows import Delivery as Delivery
from headrace.wire.contract.delay_instructions import RecordFields


@dataclass(slots=True)
class Outcome:
    """The outcome of one cancel. `outcome` is one of `contract.headers.OUTCOMES`."""

    offset: int  # of the cancel in the intake
    key: bytes | None  # of the cancel
    id: str
    outcome: str
    target: DueKey | None  # (due_ms, intake offset) of the schedule, unless it is unknown


@dataclass(slots=True)
class Rejection:
    """The record as it came, and why.

    One that the target refused has the headers of a delivery instead of its instructions.
    """

    record: RecordFields
    reason: str


@dataclass(slots=True)
class FarRecord:
    """A record for `headrace.delay.far`; value None is a tombstone."""

    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Misfit:
    """A record of the far topic that is not a pending message: it leaves that topic."""

    record: RecordFields
    reason: str | None  # for the rejected topic; None: no report is needed


@dataclass(slots=True)
class TransactionPlan:
    before: IntakeProgress
    progress: IntakeProgress  # to commit: position as offset, the rest as metadata
    deliveries: list[Delivery] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    far: list[FarRecord] = field(default_factory=list)
    refused_offsets: list[int] = field(default_factory=list)  # of rejections by the target
    # Offsets of the records that leave the far topic.
    misfits: list[int] = field(default_factory=list)
    changes: Changes | None = None  # for the store, once it is committed

    @property
    def trim_to(self) -> int | None:
        """After the commit, intake records below this offset may be deleted; None: nothing new."""
        return self.progress.far if self.progress.far > self.before.far else None
