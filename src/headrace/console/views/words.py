"""Numbers, sizes, moments and foreign text as a page writes them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.foreign_text import escaped
from headrace.wire.contract import durations

NOTHING = "–"
LAST_SHOWN_MS = 253_402_300_799_999


def number(given: int | float | None) -> str:
    """`12 345`: digits in groups of three, with narrow spaces that do not break."""
    if given is None:
        return NOTHING
    return f"{given:,.0f}".replace(",", "\u202f")


def rate(per_s: float | None) -> str:
    """Returns `12.5/s` or `1 240/s`; a slow rate is given per minute or hour."""
    if per_s is None:
        return NOTHING
    for length, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if per_s * length >= 1 or unit == "h" or not per_s:
            break
    amount = per_s * length
    return f"{number(amount) if amount >= 100 or amount == 0 else f'{amount:.3g}'}/{unit}"


def size(given: int | None) -> str:
    if given is None:
        return NOTHING
    amount, unit = float(given), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if amount < 1024 or unit == "TB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def moment(wall_ms: int | None) -> str:
    """Returns `2026-01-31 10:00:00.123`, in the console's time zone."""
    if wall_ms is None:
        return NOTHING
    if not 0 <= wall_ms <= LAST_SHOWN_MS:  # a producer may write any timestamp
        return str(wall_ms)
    at = datetime.fromtimestamp(wall_ms / 1000, UTC).astimezone()
    return at.isoformat(sep=" ", timespec="milliseconds")[:23]


def zone() -> str:
    """Returns the console's time zone, such as `UTC+01:00`, which may not be the reader's."""
    offset = datetime.now().astimezone().isoformat()[-6:]
    return "UTC" if offset in ("+00:00", "-00:00") else f"UTC{offset}"


def iso(wall_ms: int | None) -> str:
    """For the `datetime` of a `<time>`."""
    if wall_ms is None or not 0 <= wall_ms <= LAST_SHOWN_MS:
        return ""
    at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(wall_ms: int | None, now_ms: int) -> str:
    """Returns how long since, such as `3m` or `2d4h`, rounded to what matters."""
    if wall_ms is None:
        return NOTHING
    return lasting(max(now_ms - wall_ms, 0))


def lasting(length_ms: int) -> str:
    """A length of time in its two largest units."""
    for unit, fine in (("d", "h"), ("h", "m"), ("m", "s")):
        if length_ms >= durations.UNITS_MS[unit]:
            step_ms = durations.UNITS_MS[fine]
            return str(durations.write(length_ms // step_ms * step_ms))
    return f"{length_ms / 1000:.1f} s" if length_ms < 10_000 else f"{length_ms // 1000} s"


def count(given: int, word: str) -> str:
    """`1 partition`, `12 partitions`."""
    return f"{number(given)} {word}" + ("" if given == 1 else "s")


def counted(given: int, word: str) -> str:
    """Returns `12,345 records`, for a sentence with foreign names, which is shown by `text`."""
    return f"{given:,} {word}" + ("" if given == 1 else "s")


def text(foreign: str | None) -> str:
    """Returns foreign text in one line: control characters and those that reverse the writing
    become escapes."""
    return NOTHING if foreign is None else escaped(foreign, keep="\t")
