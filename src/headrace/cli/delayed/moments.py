"""Moments and waits as people write and read them at a terminal.

A moment is `2026-01-31T10:00` (where the person is, unless it names a zone), epoch milliseconds,
`now`, or `+10m` and `-10m` from now.
"""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from headrace.wire.contract import durations

# Beyond what Python's datetime can show; nothing is due then.
LAST_SHOWN_MS = 253_402_300_799_999


def moment_ms(text: str, *, now_ms: int, option: str) -> int:
    """Milliseconds since 1970."""
    text = text.strip()
    if text == "now":
        return now_ms
    try:
        if text[:1] in ("+", "-"):
            away_ms = durations.parse(text[1:])
            return now_ms + away_ms if text[0] == "+" else now_ms - away_ms
        if text.isdigit():
            return int(text)
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.astimezone()
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is not a time: write 2026-01-31T10:00, 2026-01-31T10:00Z, epoch "
            "milliseconds, or +10m for ten minutes from now.",
            param_hint=option,
        ) from None


def clock(wall_ms: int) -> str:
    """`2026-01-31 10:00:00.123`, where the person is."""
    if wall_ms > LAST_SHOWN_MS:
        return str(wall_ms)
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")[:23]


def away(due_ms: int, now_ms: int) -> str:
    """`in 29m58s`, `in 3d4h`, `0.2 s late`: no finer than it matters."""
    left_ms = due_ms - now_ms
    if left_ms < 0:
        return f"{-left_ms / 1000:.1f} s late"
    if left_ms < 10_000:
        return f"in {left_ms / 1000:.1f} s"
    for unit, fine in (("d", "h"), ("h", "m"), ("m", "s")):
        if left_ms >= durations.UNITS_MS[unit]:
            step_ms = durations.UNITS_MS[fine]
            return f"in {durations.write(left_ms // step_ms * step_ms)}"
    return f"in {durations.write(left_ms // 1000 * 1000)}"
