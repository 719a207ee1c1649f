"""A day of a shipped pipeline: its table is asked by deltalake, without Spark, and drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from headrace.installation import how_to_add
from headrace.pipelines.declaration import Table, must_be_zone
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.report import charts
from headrace.pipelines.report import day as days
from headrace.pipelines.report.day import Day
from headrace.pipelines.report.drawings import DRAWINGS, Drawing
from headrace.pipelines.report.page import Page
from headrace.pipelines.report.parts import Answer
from headrace.pipelines.stream.folder import Folder, table_location

Ask = Callable[[str], Answer]


@dataclass(slots=True)
class Report:
    """The drawn table, and its day."""

    html: str
    table: str
    day: Day
    rows: int
    charts: int


def report(data: Path, name: str, *, day: str | None = None, zone: str | None = None) -> Report:
    """Makes a report of the requested day, otherwise of the newest that the table has."""
    drawing, table = _drawn(name)
    where = zone or str(Folder(data, name).described().get("zone") or "UTC")
    must_be_zone(where)
    ask = _asker(name, table_location(data, table))
    chosen = days.parsed(day) if day is not None else _newest(ask, drawing, where)
    days.must_be_drawable(chosen)
    return drawn(name, table, drawing, Day(chosen, where), ask)


def drawn(name: str, table: str, drawing: Drawing, day: Day, ask: Ask) -> Report:
    """`ask` answers SQL over the table `lake`."""
    facts, *answers = (ask(question) for question in drawing.questions(day))
    rows = int(facts[0]["rows"])
    if not rows:
        raise PipelineError(
            f"The table {table} has no rows of {day.date} ({day.zone}): give another --day."
        )
    numbers = [(shown, charts.number(facts[0][f"f{n}"])) for n, shown in enumerate(drawing.facts)]
    sections = drawing.sections(answers, day)
    page = Page(
        title=f"{drawing.title}, {day.date}",
        said=f"Pipeline {name}, table {table}; rows of the day: {rows:,}; times in {day.zone}.",
        facts=numbers,
        sections=sections,
        foot=f"Drawn by headrace pipeline report {name} --day {day.date} --zone {day.zone}",
    )
    return Report(page.html(), table, day, rows, len(sections))


def _drawn(name: str) -> tuple[Drawing, str]:
    from headrace.pipelines.shipped import SHIPPED

    shipped = SHIPPED.get(name)
    if shipped is not None and not isinstance(shipped.sink, Table):
        raise PipelineError(
            f"{name} writes to the topic {shipped.sink.name}, not to a table: look at it with "
            f"`headrace consume {shipped.sink.name}`."
        )
    if shipped is None or name not in DRAWINGS:
        raise PipelineError(
            f"There is no drawing of {name!r}; there is one of {', '.join(sorted(DRAWINGS))}."
        )
    assert isinstance(shipped.sink, Table)
    return DRAWINGS[name], shipped.sink.name


def _asker(name: str, location: str) -> Ask:
    from headrace.pipelines.shipped import delta_without_spark
    from headrace.pipelines.sinks.tables import has_delta_log

    if not has_delta_log(location):
        raise PipelineError(
            f"There is no table {location} yet: `headrace pipeline run {name}` makes it."
        )
    if not delta_without_spark.is_installed():
        raise PipelineError(how_to_add("A report of a table needs", "deltalake", "spark"))
    files = delta_without_spark.found(location)
    if files is None:
        raise PipelineError(
            f"The table {location} has features of Delta that deltalake does not read: look at it "
            "with `headrace lake show`, which then asks Spark."
        )
    return files.ask


def _newest(ask: Ask, drawing: Drawing, zone: str) -> date:
    newest = ask(drawing.newest())[0]["newest"]
    if newest is None:
        raise PipelineError("The table is empty: there is no day to draw yet.")
    if isinstance(newest, datetime):
        from zoneinfo import ZoneInfo

        return days.utc(newest).astimezone(ZoneInfo(zone)).date()
    assert isinstance(newest, date)
    return newest
