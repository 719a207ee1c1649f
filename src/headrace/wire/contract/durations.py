"""Durations as text: `1h30m`, `500ms`, `2d` or plain milliseconds, in whole numbers.

Units are w, d, h, m, s and ms. No fractions, no months or years (their length is not fixed), no
sign. `parse` is strict, because a delay that was misread is noticed too late.
"""

from __future__ import annotations

import re

UNITS_MS = {
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
# Ten years with three leap days, the most that ten years can have: any "ten years" is accepted.
LONGEST_DELAY_MS = 3_653 * UNITS_MS["d"]

_PARTS = re.compile(r"(?:(\d{1,18})w)?(?:(\d{1,18})d)?(?:(\d{1,18})h)?(?:(\d{1,18})m(?!s))?"
                    r"(?:(\d{1,18})s)?(?:(\d{1,18})ms)?", re.ASCII)  # fmt: skip
_PLAIN = re.compile(r"\d{1,18}", re.ASCII)


def parse(text: str) -> int:
    """Returns milliseconds. Raises ValueError with a sentence about the fault."""
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return int(text)
    parts = _PARTS.fullmatch(text)
    if not text or parts is None:
        raise ValueError(
            f"'{text[:100]}' is not a duration: write it like 500ms, 30m, 1h30m or 2d, or as plain "
            "milliseconds"
        )
    return sum(
        int(number) * unit_ms
        for number, unit_ms in zip(parts.groups(), UNITS_MS.values(), strict=True)
        if number is not None
    )


def write(duration_ms: int) -> str:
    """The shortest text that `parse` reads as the same number: 5_400_000 is `1h30m`."""
    if duration_ms < 0:
        raise ValueError(f"a duration is not negative: {duration_ms}")
    text = ""
    for unit, unit_ms in UNITS_MS.items():
        number, duration_ms = divmod(duration_ms, unit_ms)
        if number:
            text += f"{number}{unit}"
    return text or "0ms"
