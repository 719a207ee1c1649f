"""Reads the headers of a retry: its attempts, its first place, id and times.

A copy in a retry topic carries them from attempt to attempt, and so does a dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.app import headers as names
from headrace.client.records import HeaderList


@dataclass(slots=True)
class Carried:
    """The contents of the headers of a retry."""

    made: int = 0
    first_failed_ms: int = 0  # 0: it has not failed yet
    origin: tuple[str, int, int] | None = None
    origin_at_ms: int | None = None
    message_id: str | None = None
    due_ms: int = 0
    redrives: int = 0


def carried_by(given: HeaderList) -> Carried:
    """Read the headers; values that make no sense, because another program wrote them, are
    ignored."""
    found = {name: value.decode("utf-8", "replace") for name, value in given if value is not None}
    return Carried(
        made=_number(found.get(names.ATTEMPT)) or 0,
        first_failed_ms=_number(found.get(names.FIRST_FAILED_AT)) or 0,
        origin=_record_id(found.get(names.ORIGIN)),
        origin_at_ms=_number(found.get(names.ORIGIN_AT)),
        message_id=found.get(names.CARRIED_ID),
        due_ms=_number(found.get(names.DUE)) or 0,
        redrives=_number(found.get(names.REDRIVES)) or 0,
    )


def is_ours(name: str) -> bool:
    return (
        name in names.RETRY
        or name in names.ON_THE_WAY
        or name == names.REDRIVES
        or name.startswith(names.DEAD_PREFIX)
    )


def is_replaced(name: str) -> bool:
    return name in names.RETRY or name in names.ON_THE_WAY or name.startswith(names.DEAD_PREFIX)


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text)


def _record_id(text: str | None) -> tuple[str, int, int] | None:
    parts = (text or "").rsplit("/", 2)
    if len(parts) != 3:
        return None
    partition, offset = _number(parts[1]), _number(parts[2])
    if not parts[0] or partition is None or offset is None:
        return None
    return parts[0], partition, offset
