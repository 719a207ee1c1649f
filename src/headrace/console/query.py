"""The parameters of an address or a form, read strictly: an invalid value is reported, never
guessed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

MOST_PARTITIONS_NAMED = 10_000


class Unreadable(ValueError):
    """A part of the address or form is invalid; the text is one sentence for the user."""


def text_in(given: Mapping[str, Any], name: str, default: str = "") -> str:
    found = given.get(name)
    return found if isinstance(found, str) else default


def needed(given: Mapping[str, Any], name: str, what: str) -> str:
    if not (found := text_in(given, name)).strip():
        raise Unreadable(f"{what} is missing.")
    return found


def whole(
    given: Mapping[str, Any], name: str, *, default: int, least: int = 0, most: int = 2**63 - 1
) -> int:
    said = text_in(given, name).strip()
    if not said:
        return default
    number = _whole(said)
    if number is None or not least <= number <= most:
        raise Unreadable(f"{name} must be a whole number from {least} to {most}, not {said!r}.")
    return number


def whole_or_none(given: Mapping[str, Any], name: str) -> int | None:
    return whole(given, name, default=-1, least=0) if text_in(given, name).strip() else None


def _whole(said: str) -> int | None:
    digits = said.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 19:
        return None
    return int(said)


def offsets_in(said: str) -> dict[int, int] | None:
    """`0:12,1:40` is an offset for each of two partitions; "" is None."""
    if not said:
        return None
    found: dict[int, int] = {}
    words = said.split(",")
    for word in words[: MOST_PARTITIONS_NAMED + 1]:
        partition, _, offset = word.partition(":")
        number, at = _whole(partition), _whole(offset)
        if number is None or at is None or len(words) > MOST_PARTITIONS_NAMED:
            raise Unreadable("The position in the address is invalid; start at the newest.")
        found[number] = at
    return found


def offsets_text(offsets: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def moment_ms(said: str) -> int:
    """`2026-01-31T10:00`, where the console runs unless it names a zone; or epoch milliseconds."""
    said = said.strip()
    if said.isascii() and said.isdecimal() and len(said) >= 12:
        return min(int(said), 253_402_300_799_999)
    try:
        return int(datetime.fromisoformat(said).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise Unreadable(
            f"{said!r} is not a time; write 2026-01-31T10:00, or milliseconds since 1970."
        ) from None
