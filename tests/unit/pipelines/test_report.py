"""A day of a pipeline as a page: what is drawn, what is said, and that foreign text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from headrace.pipelines.declaration import Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.report import charts
from headrace.pipelines.report.day import Day, must_be_drawable, parsed
from headrace.pipelines.report.day_report import drawn
from headrace.pipelines.report.drawings import DRAWINGS
from headrace.pipelines.report.parts import MOST_RANKED, Over, Rank
from headrace.pipelines.shipped import SHIPPED

DAY = Day(date(2026, 11, 16), "UTC")
MIDNIGHT = datetime(2026, 11, 16, tzinfo=UTC)
HOSTILE = '"><script>alert(1)</script><img src=x onerror=y>'


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def read(html: str) -> Elements:
    found = Elements()
    found.feed(html)
    return found


def answers(drawing_name: str, label: str) -> Iterator[list[dict[str, Any]]]:
    """Of every question one row whose text is foreign."""
    drawing = DRAWINGS[drawing_name]
    yield [{"rows": 1, **{f"f{n}": 7 for n in range(len(drawing.facts))}}]
    for part in drawing.parts:
        numbers: dict[str, Any] = {f"m{n}": 3 for n in range(9)}
        at = DAY.date if drawing.of_days else MIDNIGHT + timedelta(hours=3)
        beside = {f"x{n}": label for n in range(9)}
        assert part.title
        yield [{"at": at, "grouped": label, "label": label, **numbers, **beside}]


@pytest.mark.parametrize("name", DRAWINGS)
def test_foreign_text_stays_text_on_every_page(name: str) -> None:
    given = answers(name, HOSTILE)
    html = drawn(name, "table", DRAWINGS[name], DAY, lambda _: next(given)).html
    seen = read(html)
    assert not seen.names & {"script", "img", "iframe", "object", "link"}
    assert not seen.addresses
    assert "default-src 'none'" in html
    assert "<script>alert" not in html


NOT_TO_BE_DRAWN = [None, float("nan"), float("inf")]


@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.parametrize("value", NOT_TO_BE_DRAWN)
def test_what_is_no_number_is_not_drawn(name: str, value: float | None) -> None:
    """A column that came later is null in older rows; a metric may be NaN."""
    given = [
        [{key: value if key[0] in "fm" else cell for key, cell in row.items()} for row in answer]
        for answer in answers(name, "a")
    ]
    of_each = iter(given)
    html = drawn(name, "table", DRAWINGS[name], DAY, lambda _: next(of_each)).html
    assert not re.search(r'="[^"]*\b(nan|inf)\b', html)
    assert ">nan<" not in html and ">None<" not in html


def test_signs_that_steer_are_shown_and_not_obeyed() -> None:
    part = Rank("Pages", label="page", heading="Page", measures={"views": "sum(views)"})
    section = part.section([{"label": "\u202egpj.exe\x00\x1b[31m\n", "m0": 1}], DAY)
    assert section is not None
    assert section.rows[0][0] == "\\u202egpj.exe\\x00\\x1b[31m\\n"


def test_groups_that_are_shown_alike_are_two_lines() -> None:
    part = Over("CPU", by="host", measures={"average": "avg(average)"})
    rows = [{"at": MIDNIGHT, "grouped": one, "m0": n} for n, one in enumerate((None, "-"))]
    section = part.section(rows, DAY)
    assert section is not None and section.rows == [["00:00", "1", "0"]]


@pytest.mark.parametrize("year", [1, 1677, 2263, 9999])
def test_a_day_that_is_too_far_away_is_refused(year: int) -> None:
    with pytest.raises(PipelineError, match="give another --day"):
        must_be_drawable(date(year, 12, 31))


def test_every_shipped_pipeline_with_a_table_has_a_drawing() -> None:
    assert {name for name, one in SHIPPED.items() if isinstance(one.sink, Table)} == set(DRAWINGS)


def test_a_line_is_broken_where_numbers_are_missing() -> None:
    hour = 3600.0
    points = [(0.0, 1.0), (hour, 2.0), (10 * hour, 3.0)]
    assert charts.pieces(points, 3 * hour) == [points[:2], points[2:]]
    svg = charts.lines([charts.Series("x", points)], to=24 * hour, slot=hour, label="x")
    assert svg.count("<polyline") == 2


@pytest.mark.parametrize(
    ("highest", "top"),
    [
        (0, 2),
        (1, 1),
        (1.5, 2),
        (3, 4),
        (7, 10),
        (123, 200),
        (0.03, 0.04),
        (5e-324, 5e-324),
        (1.7e308, 1.7e308),
    ],
)
def test_the_scale_ends_with_a_number_for_people(highest: float, top: float) -> None:
    assert charts.nice_top(highest) == pytest.approx(top)


def test_numbers_have_no_digits_that_say_nothing() -> None:
    assert [charts.number(one) for one in (1234567, 0.5, 12.345, 99999.4, None, float("nan"))] == [
        "1,234,567", "0.5", "12.35", "99,999", "-", "-",
    ]  # fmt: skip


def test_a_day_has_as_many_hours_as_its_zone_gives_it() -> None:
    spring, autumn = date(2026, 3, 29), date(2026, 10, 25)
    hours = [Day(one, "Europe/Berlin").seconds // 3600 for one in (spring, autumn, DAY.date)]
    assert hours == [23, 25, 24]
    assert Day(autumn, "Europe/Berlin").clock(25 * 3600) == "00:00"
    with pytest.raises(PipelineError, match="not a day such as"):
        parsed("yesterday")


def test_the_largest_groups_are_drawn_and_the_others_are_counted() -> None:
    part = Over("Lines", by="service", measures={"lines": "sum(lines)"})
    rows = [{"at": MIDNIGHT, "grouped": f"s{n}", "m0": n} for n in range(10)]
    section = part.section(rows, DAY)
    assert section is not None
    assert section.headings == ["Time", "s9", "s8", "s7", "s6", "s5", "s4"]
    assert "4 more are not" in section.said
    assert section.rows == [["00:00", "9", "8", "7", "6", "5", "4"]]


def test_a_ranking_says_that_it_is_cut() -> None:
    part = Rank("Pages", label="page", heading="Page", measures={"views": "sum(views)"})
    rows = [{"label": f"p{n}", "m0": 100 - n} for n in range(MOST_RANKED + 1)]
    section = part.section(rows, DAY)
    assert section is not None and len(section.rows) == MOST_RANKED
    assert "there are more" in section.said
    assert part.section([], DAY) is None


def test_a_day_without_rows_is_said() -> None:
    drawing = DRAWINGS["page-views"]
    with pytest.raises(PipelineError, match="has no rows of 2026-11-16"):
        drawn("page-views", "views-by-minute", drawing, DAY, lambda _: [{"rows": 0}])


def test_the_numbers_of_a_page_are_those_of_the_table() -> None:
    facts = [{"rows": 2, "f0": 1500, "f1": 900, "f2": 70}]
    minutes = [
        {"at": MIDNIGHT + timedelta(minutes=n), "m0": 600 + 300 * n, "m1": 5, "m2": 1}
        for n in range(2)
    ]
    given: Iterator[Any] = iter([facts, minutes, []])
    html = drawn(
        "page-views", "views-by-minute", DRAWINGS["page-views"], DAY, lambda _: next(given)
    ).html
    table = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td>", html)
    assert table == [("00:01", "900"), ("00:00", "600")]
    assert "<dd>1,500</dd>" in html
    assert html.count("<section>") == 1  # of the other part there is nothing to draw
