"""A group's lag over time: the chart, how fast it reads, and when it will have caught up. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.console.history.lag_store import DAY_S, HOUR_S, TIERS, Sample, Tier
from headrace.console.history.pace import Pace, pace
from headrace.console.views import words
from headrace.console.views.chart import Chart, line_chart

LONGEST_SAID_S = 100 * DAY_S


@dataclass(slots=True, frozen=True)
class Range:
    name: str  # in the address
    words: str
    length_s: int
    tier: Tier


RANGES = (
    Range("15m", "15 minutes", HOUR_S // 4, TIERS[0]),
    Range("1h", "hour", HOUR_S, TIERS[0]),
    Range("6h", "6 hours", 6 * HOUR_S, TIERS[1]),
    Range("1d", "day", DAY_S, TIERS[1]),
    Range("7d", "week", 7 * DAY_S, TIERS[2]),
    Range("14d", "2 weeks", 14 * DAY_S, TIERS[2]),
)


def range_named(name: str) -> Range:
    return next((each for each in RANGES if each.name == name), RANGES[1])


@dataclass(slots=True)
class LagHistory:
    chosen: Range
    chart: Chart | None
    pace: Pace | None
    catching_up: str  # in words
    topics: list[str]  # that there are samples of
    topic: str  # the one that is shown; "" is all
    problem: str  # why there are no newer samples
    is_kept: bool  # in a file, so that it outlives the console
    ranges: tuple[Range, ...] = RANGES


def lag_history(
    samples: Sequence[Sample],
    recent: Sequence[Sample],
    *,
    chosen: Range,
    topics: list[str],
    topic: str,
    now_s: int,
    problem: str,
    is_kept: bool,
) -> LagHistory:
    """`recent` are the fine samples of the last minutes."""
    from_s = now_s - chosen.length_s
    points = [(max(one.at_s, from_s), one.lag) for one in samples]
    known = pace(recent)
    return LagHistory(
        chosen,
        line_chart(points, from_s=from_s, to_s=now_s, slot_s=chosen.tier.slot_s),
        known,
        catching_up(known),
        topics,
        topic,
        problem,
        is_kept,
    )


def catching_up(known: Pace | None) -> str:
    if known is None:
        return "not known yet"
    if known.lag == 0:
        return "it has read everything"
    left_s = known.left_s
    if left_s is None:
        return "it does not read" if known.read_per_s == 0 else "it falls further behind"
    if left_s > LONGEST_SAID_S:
        return "in more than 100 days at this pace"
    return f"in {words.lasting(max(int(left_s * 1000), 1000))} at this pace"
