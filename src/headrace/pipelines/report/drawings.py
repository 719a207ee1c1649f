"""The charts of each shipped pipeline's table. Pure: it says what to ask and makes the page.

A table of minutes, hours or moments is asked for those between two midnights of the zone; a table
of days is asked for one date, in the pipeline's own zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.pipelines.report.day import Day
from headrace.pipelines.report.parts import (
    HOUR_S,
    QUARTER_S,
    Answer,
    Days,
    Over,
    Part,
    Rank,
    Section,
    date_literal,
    moment_literal,
)
from headrace.pipelines.shipped.web_tracking import STEPS, TOP
from headrace.wire.contract.logs import ERROR, FATAL


@dataclass(slots=True, frozen=True, kw_only=True)
class Drawing:
    """`time` is the column by which a row belongs to a day; `facts` are numbers of the day."""

    title: str
    time: str
    parts: tuple[Part, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    of_days: bool = False  # `time` is a date

    def where(self, day: Day) -> str:
        if self.of_days:
            return f"{self.time} = {date_literal(day.date)}"
        first, end = moment_literal(day.begin_s), moment_literal(day.end_s)
        return f"{self.time} >= {first} AND {self.time} < {end}"

    def questions(self, day: Day) -> list[str]:
        """Returns the SQL for the facts, then for each part."""
        where = self.where(day)
        asked = ", ".join(f"{sql} AS f{n}" for n, sql in enumerate(self.facts.values()))
        facts = f"SELECT count(*) AS rows{', ' if asked else ''}{asked} FROM lake WHERE {where}"
        return [facts, *(one.question(where, self.time, day) for one in self.parts)]

    def sections(self, answers: Sequence[Answer], day: Day) -> list[Section]:
        found = zip(self.parts, answers, strict=True)
        drawn = (part.section(answer, day) for part, answer in found)
        return [section for section in drawn if section is not None]

    def newest(self) -> str:
        return f"SELECT max({self.time}) AS newest FROM lake"


def _of_steps() -> str:
    names = " ".join(f"WHEN {n} THEN '{name}'" for n, (name, _) in enumerate(STEPS, start=1))
    return f"CASE steps {names} ELSE 'no step' END"


LEVELS_OF_ERRORS = f"level IN ('{ERROR}', '{FATAL}')"

PAGE_VIEWS = Drawing(
    title="Page views",
    time="minute",
    facts={
        "views": "sum(views)",
        "most views in a minute": "max(views)",
        "most visitors in a minute": "max(visitors)",
    },
    parts=(
        Over(
            "Views and visitors by the minute",
            measures={
                "views": "sum(views)",
                "visitors": "sum(visitors)",
                "new visitors": "sum(new_visitors)",
            },
        ),
        Over("Different pages seen in each minute", measures={"pages": "sum(pages)"}),
    ),
)

TOP_PAGES = Drawing(
    title="Top pages",
    time="minute",
    parts=(
        Rank(
            "Most seen pages",
            label="page",
            heading="Page",
            measures={"views": "sum(views)", "minutes among the first": "count(*)"},
            said=f"A page counts in the minutes in which it was among the first {TOP}.",
        ),
        Over(
            "The most seen pages over the day",
            by="page",
            measures={"views": "sum(views)"},
            slot_s=QUARTER_S,
            said="By the quarter of an hour.",
        ),
    ),
)

SESSIONS = Drawing(
    title="Sessions",
    time="began",
    facts={
        "sessions": "count(*)",
        "views of a session, average": "avg(views)",
        "minutes of a session, average": (
            "avg((CAST(ended AS BIGINT) - CAST(began AS BIGINT)) / 60000000.0)"
        ),
        f"came to {STEPS[-1][0]}": f"sum(CASE WHEN steps >= {len(STEPS)} THEN 1 ELSE 0 END)",
    },
    parts=(
        Over(
            "Sessions that began",
            measures={"sessions": "count(*)"},
            slot_s=HOUR_S,
            columns=True,
            said="By the hour.",
        ),
        Rank(
            "How far they came",
            label=_of_steps(),
            heading="Step",
            measures={"sessions": "count(*)"},
            order="min(steps)",
        ),
        Rank("Where they began", label="entry", heading="Page", measures={"sessions": "count(*)"}),
        Rank("Where they ended", label="exit", heading="Page", measures={"sessions": "count(*)"}),
    ),
)

FUNNEL = Drawing(
    title="Funnel",
    time="hour",
    parts=(
        Rank(
            "Visits that came to each step",
            label="name",
            heading="Step",
            measures={"visits": "sum(visits)"},
            order="min(step)",
        ),
        Over(
            "Visits that came to each step, by the hour in which they were over",
            by="name",
            measures={"visits": "sum(visits)"},
            slot_s=HOUR_S,
        ),
    ),
)

RETENTION = Drawing(
    title="Retention",
    time="day",
    of_days=True,
    facts={"visitors known since some day": "sum(visitors)"},
    parts=(
        Rank(
            "Visitors of the day by when they came first",
            label="days_later",
            heading="Days later",
            measures={"visitors": "sum(visitors)"},
            more={"came first on": "max(since)"},
            order="min(days_later)",
        ),
    ),
)

DAILY = Drawing(
    title="Daily statistics",
    time="day",
    of_days=True,
    facts={
        "views": "sum(views)",
        "visitors": "sum(visitors)",
        "new visitors": "sum(new_visitors)",
        "pages": "sum(pages)",
    },
    parts=(
        Days(
            "Views of each day",
            measures={"views": "sum(views)"},
        ),
        Days(
            "Visitors of each day",
            measures={"visitors": "sum(visitors)", "new visitors": "sum(new_visitors)"},
        ),
    ),
)

SEARCHES = Drawing(
    title="Searches",
    time="hour",
    facts={"searches": "sum(searches)", "in vain": "sum(in_vain)"},
    parts=(
        Over(
            "Searches by the hour",
            measures={"searches": "sum(searches)", "in vain": "sum(in_vain)"},
            slot_s=HOUR_S,
            columns=True,
        ),
        Rank(
            "What was looked for",
            label="query",
            heading="Query",
            measures={"searches": "sum(searches)", "in vain": "sum(in_vain)"},
        ),
        Rank(
            "What was looked for in vain",
            label="query",
            heading="Query",
            measures={"in vain": "sum(in_vain)", "searches": "sum(searches)"},
            having="sum(in_vain) > 0",
        ),
    ),
)

CLICKS = Drawing(
    title="Clicks",
    time="hour",
    facts={"clicks": "sum(clicks)"},
    parts=(
        Over("Clicks by the hour", measures={"clicks": "sum(clicks)"}, slot_s=HOUR_S, columns=True),
        Rank(
            "What was clicked",
            label="page || ' \u2192 ' || target",
            heading="Page and target",
            measures={"clicks": "sum(clicks)"},
        ),
    ),
)

LOGS = Drawing(
    title="Logs",
    time="time",
    facts={
        "lines": "count(*)",
        "errors": f"sum(CASE WHEN {LEVELS_OF_ERRORS} THEN 1 ELSE 0 END)",
        "lines with a problem": "count(problem)",
    },
    parts=(
        Over(
            "Lines by level",
            by="coalesce(level, 'NONE')",
            measures={"lines": "count(*)"},
            slot_s=QUARTER_S,
            said="By the quarter of an hour.",
        ),
        Rank("Lines of each service", label="service", heading="Service",
             measures={"lines": "count(*)"}),
        Rank(
            "Errors of each service",
            label="service",
            heading="Service",
            measures={"errors": "count(*)"},
            more={"last": "max(time)"},
            where=LEVELS_OF_ERRORS,
        ),
    ),
)  # fmt: skip

LOG_RATES = Drawing(
    title="Log rates",
    time="minute",
    facts={
        "lines": "sum(lines)",
        "errors": f"sum(CASE WHEN {LEVELS_OF_ERRORS} THEN lines ELSE 0 END)",
    },
    parts=(
        Over("Lines by level", by="level", measures={"lines": "sum(lines)"}, said="By the minute."),
        Over(
            "Errors by service",
            by="service",
            measures={"lines": "sum(lines)"},
            where=LEVELS_OF_ERRORS,
            said="By the minute.",
        ),
        Rank(
            "Lines of each service",
            label="service",
            heading="Service",
            measures={"lines": "sum(lines)"},
        ),
    ),
)

LOG_ERRORS = Drawing(
    title="Log errors",
    time="day",
    of_days=True,
    facts={"lines": "sum(lines)", "templates": "count(*)"},
    parts=(
        Rank(
            "What failed",
            label="service || ': ' || template",
            heading="Service and template",
            measures={"lines": "sum(lines)"},
            more={"first": "min(first_seen)", "last": "max(last_seen)", "sample": "min(sample)"},
        ),
        Rank(
            "Services that failed",
            label="service",
            heading="Service",
            measures={"lines": "sum(lines)", "templates": "count(*)"},
        ),
    ),
)

# Series of the agent, by the beginning of their names, and what they are.
SERIES = {
    "cpu_percent": "CPU, percent",
    "memory_percent": "Memory, percent",
    "disk_used_percent": "Disks, percent used",
    "load_1m": "Load of a minute",
    "network_received_bytes_per_s": "Network, bytes received per second",
    "network_sent_bytes_per_s": "Network, bytes sent per second",
    "disk_read_bytes_per_s": "Disks, bytes read per second",
    "disk_written_bytes_per_s": "Disks, bytes written per second",
    "process_cpu_percent": "Processes, percent of a core",
    "process_memory_bytes": "Processes, bytes of memory",
}


def _hosts(title: str, time: str, slot_s: int) -> Drawing:
    return Drawing(
        title=title,
        time=time,
        facts={
            "hosts": "count(DISTINCT host)",
            "series": "count(DISTINCT host || ' ' || metric)",
            "greatest CPU, percent": "max(CASE WHEN metric = 'cpu_percent' THEN greatest END)",
        },
        parts=(
            *(
                Over(
                    shown,
                    by=f"host || substr(metric, {len(name) + 1})",
                    measures={"average": "avg(average)"},
                    where=f"metric = '{name}' OR starts_with(metric, '{name}{{')",
                    slot_s=slot_s,
                )
                for name, shown in SERIES.items()
            ),
            Rank(
                "Series of each host",
                label="host",
                heading="Host",
                measures={"samples": "sum(samples)", "series": "count(DISTINCT metric)"},
                more={"last": f"max({time})"},
            ),
        ),
    )


DRAWINGS: dict[str, Drawing] = {
    "page-views": PAGE_VIEWS,
    "top-pages": TOP_PAGES,
    "sessions": SESSIONS,
    "funnel": FUNNEL,
    "retention": RETENTION,
    "daily-statistics": DAILY,
    "searches": SEARCHES,
    "clicks": CLICKS,
    "logs": LOGS,
    "log-rates": LOG_RATES,
    "log-errors": LOG_ERRORS,
    "host-metrics": _hosts("Host metrics by the minute", "minute", 60),
    "host-metrics-by-hour": _hosts("Host metrics by the hour", "hour", HOUR_S),
}
