"""What a record of the intake asks for: a schedule, a cancel, or nothing that can be understood.

A pure function of the record: the delay counts from the append time the broker stamped, never from
a clock, so that a record read again after a crash is due at the same moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.services.delay.cron import Cron

Headers = Sequence[tuple[str, bytes | None]]
# (offset, timestamp_ms, key, value, headers): an IntakeRecord, or the same as a plain tuple, which
# is built in a fifth of the time.
RecordFields = tuple[int, int, bytes | None, bytes | None, Headers | None]


class IntakeRecord(NamedTuple):
    """One record of `<topic>.delay`. `timestamp_ms` is the broker's append time."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


@dataclass(slots=True)
class Schedule:
    """Deliver at `due_ms`. `headers` are those that are handed on."""

    due_ms: int
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None
    id: str | None = None
    cron: Cron | None = None


@dataclass(slots=True)
class Cancel:
    id: str


@dataclass(slots=True)
class Rejected:
    """`reason` is a sentence for the person who sent the record."""

    reason: str


def read_instruction(record: RecordFields) -> Schedule | Cancel | Rejected:
    raise NotImplementedError
