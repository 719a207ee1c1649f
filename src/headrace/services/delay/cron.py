"""Repeating schedules: five cron fields in a time zone, until a moment or for a number of runs.

Runs are a pure function of the expression and the append time. `count` counts planned runs, whether
or not they were missed, so no state is needed beside the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Cron:
    expression: str
    zone: str
    until_ms: int | None
    count: int | None
