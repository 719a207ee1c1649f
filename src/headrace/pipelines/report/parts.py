"""Parts of a page: what is asked of a table for a chart, and the chart with its numbers. Pure.

A query is SQL over the table `lake`, made of our own names and numbers, never of user input or
contents of records. Its answer is small: grouped and cut by the table's reader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Protocol

from headrace.foreign_text import escaped
from headrace.pipelines.report import charts
from headrace.pipelines.report.day import Day

Answer = Sequence[Mapping[str, Any]]
QUARTER_S, HOUR_S = 900, 3600
MOST_RANKED = 15
DAYS_BACK = 30
LONGEST_LABEL = 300
# At most so many groups are asked for: the largest are drawn, and the page states how many are not.
MOST_POINTS = 20_000


@dataclass(slots=True)
class Section:
    """A chart as HTML, and its numbers: cells are text, not yet escaped."""

    title: str
    said: str
    chart: str
    headings: list[str]
    rows: list[list[str]]
    open: bool = False  # the numbers are a part of the drawing


class Part(Protocol):
    @property
    def title(self) -> str: ...

    def question(self, where: str, time: str, day: Day) -> str: ...

    def section(self, answer: Answer, day: Day) -> Section | None:
        """Returns the section, or None if there is nothing to draw."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Over:
    """Numbers over the day: a line for each measure, or for each of the largest groups of `by`."""

    title: str = field(kw_only=False)
    measures: Mapping[str, str]
    by: str | None = None
    where: str | None = None
    slot_s: int = 60
    said: str = ""
    columns: bool = False

    def question(self, where: str, time: str, day: Day) -> str:
        asked = where if self.where is None else f"{where} AND ({self.where})"
        origin = moment_literal(day.begin_s)
        slot = f"date_bin(INTERVAL '{self.slot_s} seconds', {time}, {origin})"
        group = "" if self.by is None else f", {self.by} AS grouped"
        numbers = ", ".join(f"{sql} AS m{n}" for n, sql in enumerate(self.measures.values()))
        grouped = "1" if self.by is None else "1, 2"
        select = f"SELECT {slot} AS at{group}, {numbers} FROM lake WHERE {asked} GROUP BY {grouped}"
        if self.by is None:
            return f"{select} ORDER BY at"
        return f"SELECT * FROM ({select}) ORDER BY m0 DESC, at, grouped LIMIT {MOST_POINTS}"

    def section(self, answer: Answer, day: Day) -> Section | None:
        if not answer:
            return None
        found, said = self._series(answer, day), self.said
        shown = sorted(found, key=_total, reverse=True) if self.by is not None else found
        if len(shown) > charts.COLOURS:
            left = len(shown) - charts.COLOURS
            said = f"{said} The {charts.COLOURS} largest are drawn, {left:,} more are not.".strip()
            shown = shown[: charts.COLOURS]
        if len(answer) >= MOST_POINTS:
            said = f"{said} The table has more than {MOST_POINTS:,} numbers for this.".strip()
        draw = charts.columns if self.columns else charts.lines
        chart = draw(shown, to=day.seconds, slot=self.slot_s, label=self.title)
        chart += charts.axis(day.labels()) + "</div>"
        headings = ["Time", *(one.name for one in shown)]
        return Section(self.title, said, chart, headings, _numbers(shown, day))

    def _series(self, answer: Answer, day: Day) -> list[charts.Series]:
        found: dict[Any, charts.Series] = {}  # by what the table has: two may be shown alike
        for row in sorted(answer, key=lambda one: one["at"]):
            moment = day.since_midnight(row["at"])
            for n, name in enumerate(self.measures):
                grouped = name if self.by is None else row["grouped"]
                if is_drawn(row[f"m{n}"]):
                    shown = name if self.by is None else text(grouped)
                    series = found.setdefault(grouped, charts.Series(shown))
                    series.points.append((moment, float(row[f"m{n}"])))
        return list(found.values())


@dataclass(slots=True, frozen=True, kw_only=True)
class Rank:
    """Groups with a bar for the first measure, the largest first unless `order` says otherwise.
    `more` are columns beside them, of any type."""

    title: str = field(kw_only=False)
    label: str
    heading: str
    measures: Mapping[str, str]
    more: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    having: str | None = None
    order: str | None = None
    said: str = ""

    def question(self, where: str, time: str, day: Day) -> str:
        asked = where if self.where is None else f"{where} AND ({self.where})"
        numbers = ", ".join(f"{sql} AS m{n}" for n, sql in enumerate(self.measures.values()))
        beside = "".join(f", {sql} AS x{n}" for n, sql in enumerate(self.more.values()))
        group = f"{self.label} AS label, {numbers}{beside}"
        order = "m0 DESC, label" if self.order is None else "o"
        first = "" if self.order is None else f", {self.order} AS o"
        having = "" if self.having is None else f" HAVING {self.having}"
        return (
            f"SELECT {group}{first} FROM lake WHERE {asked} GROUP BY {self.label}{having} "
            f"ORDER BY {order} LIMIT {MOST_RANKED + 1}"
        )

    def section(self, answer: Answer, day: Day) -> Section | None:
        if not answer:
            return None
        said, shown = self.said, answer[:MOST_RANKED]
        if len(answer) > MOST_RANKED:
            said = f"{said} The first {MOST_RANKED}; there are more.".strip()
        most = max((float(row["m0"]) for row in shown if is_drawn(row["m0"])), default=0.0)
        rows = []
        for row in shown:
            numbers = [charts.number(row[f"m{n}"]) for n in range(len(self.measures))]
            beside = [cell(row[f"x{n}"], day) for n in range(len(self.more))]
            first = float(row["m0"]) if is_drawn(row["m0"]) else 0.0
            rows.append([text(row["label"]), charts.bar(first, most), *numbers, *beside])
        headings = [self.heading, "", *self.measures, *self.more]
        return Section(self.title, said, "", headings, rows, open=True)


@dataclass(slots=True, frozen=True, kw_only=True)
class Days:
    """Numbers of each day, up to the one that is asked for."""

    title: str = field(kw_only=False)
    measures: Mapping[str, str]
    said: str = ""

    def question(self, where: str, time: str, day: Day) -> str:
        first = day.date - timedelta(days=DAYS_BACK - 1)
        numbers = ", ".join(f"{sql} AS m{n}" for n, sql in enumerate(self.measures.values()))
        return (
            f"SELECT {time} AS at, {numbers} FROM lake WHERE {time} >= {date_literal(first)} "
            f"AND {time} <= {date_literal(day.date)} GROUP BY 1 ORDER BY at"
        )

    def section(self, answer: Answer, day: Day) -> Section | None:
        if not answer:
            return None
        first = day.date - timedelta(days=DAYS_BACK - 1)
        series = [
            charts.Series(
                name,
                [
                    (float((row["at"] - first).days), float(row[f"m{n}"]))
                    for row in answer
                    if is_drawn(row[f"m{n}"])
                ],
            )
            for n, name in enumerate(self.measures)
        ]
        chart = charts.columns(series, to=DAYS_BACK, slot=1, label=self.title)
        ends = (first, first + timedelta(days=DAYS_BACK // 2), day.date)
        chart += charts.axis([one.isoformat() for one in ends]) + "</div>"
        rows = [
            [row["at"].isoformat(), *(charts.number(row[f"m{n}"]) for n in range(len(series)))]
            for row in reversed(answer)
        ]
        return Section(self.title, self.said, chart, ["Day", *self.measures], rows)


def _total(series: charts.Series) -> float:
    return sum(value for _, value in series.points)


def _numbers(shown: Sequence[charts.Series], day: Day) -> list[list[str]]:
    """A row for each moment, the newest first."""
    by_moment = [dict(one.points) for one in shown]
    moments = sorted({moment for one in by_moment for moment in one}, reverse=True)
    return [
        [day.clock(moment), *(charts.number(one.get(moment)) for one in by_moment)]
        for moment in moments
    ]


# ---- cells and literals


def is_drawn(value: Any) -> bool:
    """A column that is younger than the table is null in older rows; a fraction may be NaN."""
    return value is not None and math.isfinite(value)


def text(value: Any) -> str:
    """Returns foreign text on one line, without characters that change the direction of writing."""
    shown = "-" if value is None else escaped(str(value)[: LONGEST_LABEL + 1])
    return shown if len(shown) <= LONGEST_LABEL else f"{shown[:LONGEST_LABEL]} ..."


def cell(value: Any, day: Day) -> str:
    return day.moment(value) if isinstance(value, datetime) else text(value)


def moment_literal(seconds: int) -> str:
    return f"arrow_cast({seconds * 1_000_000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def date_literal(day: date) -> str:
    return f"DATE '{day.isoformat()}'"
