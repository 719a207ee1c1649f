"""Moments as logs write them, to milliseconds since 1970. Pure.

ISO 8601 with `T` or a space, with or without a zone; web servers' `10/Oct/2000:13:55:36 -0700`;
numbers that count seconds, milliseconds, microseconds or nanoseconds, distinguished by their size.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any

# Outside this range, 1990 to 2100, a number is not a moment of a log.
EARLIEST_MS, LATEST_MS = 631_152_000_000, 4_102_444_800_000
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
WEB = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)")
SECOND = re.compile(r"\d{4}-\d\d-\d\d[T ](?!24)\d\d:\d\d:\d\d", re.ASCII)
SECOND_SIZE = len("2026-01-31T12:00:00")
# Characters of a second in UTC with thousandths, millionths or billionths, up to the Z.
IN_UTC = tuple(SECOND_SIZE + len(".") + digits + len("Z") for digits in (3, 6, 9))
# Lines of one second come together; a few files are read in turn.
SECONDS_REMEMBERED = 256
UNITS_PER_MS = (0.001, 1, 1_000, 1_000_000)
LONGEST = 64
MOST_NUMBER = 10**20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def moment_ms(said: Any, zone: tzinfo = UTC) -> int | None:
    """Returns milliseconds since 1970, or None if it is not a moment. `zone` applies to times
    without a zone."""
    if type(said) is str and len(said) in IN_UTC and said[-1] == "Z" and said[SECOND_SIZE] == ".":
        # The usual one: its second was read before, and fractions are rounded down.
        fraction = said[SECOND_SIZE + 1 : -1]
        if fraction.isdecimal() and fraction.isascii():
            second_ms = _second_in_utc_ms(said[:SECOND_SIZE])
            if second_ms is not None:
                return second_ms + int(fraction[:3])
    if isinstance(said, bool):
        return None
    if isinstance(said, int | float):
        return _from_number(said)
    if not isinstance(said, str) or len(said) > LONGEST:
        return None
    text = said.strip()
    try:
        return _between(_ms(datetime.fromisoformat(text), zone))
    except ValueError:
        pass
    try:
        return _from_number(float(text))
    except ValueError:
        return web_ms(text)


@lru_cache(maxsize=SECONDS_REMEMBERED)
def _second_in_utc_ms(text: str) -> int | None:
    """Returns None also for what is not a plain second of the calendar."""
    return moment_ms(f"{text}Z") if SECOND.fullmatch(text) else None


@lru_cache(maxsize=SECONDS_REMEMBERED)
def web_ms(text: str) -> int | None:
    """As web servers write it."""
    found = WEB.fullmatch(text)
    if found is None or (month := MONTHS.find(found[2])) < 0:
        return None
    day, _, year, hour, minute, second, sign, hours, minutes = found.groups()
    away = timedelta(hours=int(hours), minutes=int(minutes))
    numbers = (int(year), month // 4 + 1, int(day), int(hour), int(minute), int(second))
    try:
        moment = datetime(*numbers, tzinfo=timezone(-away if sign == "-" else away))
    except ValueError:
        return None
    return _between(_ms(moment, UTC))


def _ms(moment: datetime, zone: tzinfo) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return (moment - _EPOCH) // _MS


def _from_number(number: float) -> int | None:
    # Whole numbers have no bound in JSON; beyond that of a float they are no moments.
    if not -MOST_NUMBER < number < MOST_NUMBER:
        return None
    for units in UNITS_PER_MS:
        if EARLIEST_MS <= number / units < LATEST_MS:
            return int(number / units)
    return None


def _between(ms: int) -> int | None:
    return ms if EARLIEST_MS <= ms < LATEST_MS else None
