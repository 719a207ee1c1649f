"""Repeating schedules: five cron fields in a time zone, until a moment or for a number of runs.

Runs are a pure function of the expression and the append time, so that a run is done when the
watermark has passed it and needs no record of its own. The number of runs counts planned ones,
missed ones too. Daylight saving is cronsim's, which does as Debian's cron: a run at a fixed hour
that falls into the missing hour is made when it is over, one in the doubled hour is made once.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

# Counted runs are walked one by one, about 10 µs each, when a schedule is read again.
MOST_RUNS = 10_000
LONGEST_EXPRESSION = 200
_FIELDS = 5
# To find the last run before a moment: how far to go back at first, and then how much further.
_FIRST_LOOK_BACK_MS = 3_600_000
_LOOK_BACK_FACTOR = 24


class Cron(NamedTuple):
    """A repeating schedule, and in `number` which run is meant, when their number is limited."""

    expression: str
    zone: str
    until_ms: int | None
    runs: int | None
    number: int = 0


class Run(NamedTuple):
    due_ms: int
    cron: Cron


def read(expression: str, zone: str, until_ms: int | None, runs: int | None) -> Cron:
    """Raises ValueError with a sentence."""
    if len(expression) > LONGEST_EXPRESSION:
        raise ValueError(f"a cron expression has at most {LONGEST_EXPRESSION} characters")
    if len(expression.split()) != _FIELDS:
        raise ValueError(
            f"'{expression}' does not have the five fields minute, hour, day of month, month, "
            "day of week"
        )
    try:
        in_zone = _zone_named(zone)
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"'{zone[:100]}' is not a known time zone") from error
    try:
        CronSim(expression, datetime.fromtimestamp(0, in_zone))
    except (CronSimError, ValueError) as error:
        raise ValueError(f"'{expression}' is not a cron expression: {error}") from error
    if runs is not None and not 1 <= runs <= MOST_RUNS:
        raise ValueError(f"a cron schedule has 1 to {MOST_RUNS} runs, not {runs}")
    return Cron(" ".join(expression.split()), zone, until_ms, runs)


def first_run(cron: Cron, appended_ms: int) -> Run | None:
    due_ms = _next(cron, appended_ms)
    return None if due_ms is None else Run(due_ms, cron._replace(number=1))


def run_after(run: Run, after_ms: int) -> Run | None:
    """Returns the first run later than `after_ms`, which may be `run` itself; None if there are no
    more."""
    if run.due_ms > after_ms:
        return run
    if run.cron.runs is None:
        due_ms = _next(run.cron, after_ms)
        return None if due_ms is None else Run(due_ms, run.cron)
    following: Run | None = run
    while following is not None and following.due_ms <= after_ms:
        following = _following(following)
    return following


def last_run_by(run: Run, now_ms: int) -> Run:
    """The latest run that is due at `now_ms`, starting with one that is."""
    assert run.due_ms <= now_ms
    if run.cron.runs is None:
        look_back_ms = _FIRST_LOOK_BACK_MS
        while now_ms - look_back_ms > run.due_ms:
            later = run_after(run, now_ms - look_back_ms)
            if later is not None and later.due_ms <= now_ms:
                run = later
                break
            look_back_ms *= _LOOK_BACK_FACTOR
    while (later := _following(run)) is not None and later.due_ms <= now_ms:
        run = later
    return run


def _following(run: Run) -> Run | None:
    cron = run.cron
    if cron.runs is not None and cron.number >= cron.runs:
        return None
    due_ms = _next(cron, run.due_ms)
    return None if due_ms is None else Run(due_ms, cron._replace(number=cron.number + 1))


def _zone_named(zone: str) -> tzinfo:
    # UTC needs no files of time zones, which small containers lack, and cronsim is quicker with it.
    return UTC if zone == "UTC" else ZoneInfo(zone)


@lru_cache(maxsize=1_024)
def _next(cron: Cron, after_ms: int) -> int | None:
    try:
        after = datetime.fromtimestamp(after_ms // 1000, _zone_named(cron.zone))
        runs = CronSim(cron.expression, after)
    except (OverflowError, ValueError, OSError):
        return None  # calendars end with the year 9999, in some zones a few hours earlier
    # In the second of two equal hours it would answer with a time in the first.
    while True:
        try:
            due_ms = round(next(runs).timestamp()) * 1000
        except (StopIteration, OverflowError, ValueError):
            return None
        if due_ms > after_ms:
            break
    return due_ms if cron.until_ms is None or due_ms <= cron.until_ms else None
