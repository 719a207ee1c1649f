"""The shipped pipelines of web tracking: as streams and offline, against plain Python."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from headrace.pipelines.declaration import Topic
from headrace.pipelines.rows import record_rows
from headrace.pipelines.shipped import web_tracking
from headrace.pipelines.shipped.generator import generate
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.span import parse
from headrace.testing import Broker
from headrace.wire.contract.tracking import KINDS
from tests.interop.brokers import free_port
from tests.pipelines import plain_tracking as plain
from tests.pipelines.site import BEGIN_MS, Site, in_plain_python

pytestmark = pytest.mark.timeout(1200)

APPENDED = ("top-pages", "sessions", "funnel")
TRACKING = {one.name: one for one in web_tracking.PIPELINES}


class Shop(Site):
    """What was asked once is kept."""

    @functools.cached_property
    def frames(self) -> dict[str, Any]:
        """The rows of each topic as the functions get them, over all of it."""
        return {kind.topic: self._frame(kind.topic) for kind in KINDS.values()}

    def _frame(self, topic: str) -> Any:
        [source] = {
            id(one.source): one.source for one in TRACKING.values() if one.source.name == topic
        }.values()
        assert isinstance(source, Topic)
        options = record_rows.source_options(source, self.connection.bootstrap)
        records = self.spark.read.format("kafka").options(**options).load()
        return record_rows.good(record_rows.parsed(records, source), source).cache()

    @functools.cached_property
    def streamed(self) -> dict[str, list[tuple[Any, ...]]]:
        return {name: self.table(name) for name in TRACKING}

    def offline(self, name: str) -> list[tuple[Any, ...]]:
        """The same function over a table that ends."""
        pipeline = TRACKING[name]
        return in_plain_python(pipeline(self.frames[pipeline.source.name]).collect())


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Three days of a shop, and all pipelines over it as streams."""
    with Broker(port=free_port()) as broker:
        one = Shop(broker.bootstrap, tmp_path_factory.mktemp("shop"), spark)
        events = list(generate(visitors=40, seed=7, begin_ms=BEGIN_MS, days=3, late_percent=0))
        half = len(events) // 2
        one.write(events[:half])
        one.stream("sessions")  # it goes on with its state afterwards; the others see all at once
        one.write(events[half:])
        # Two days later somebody comes again: nothing before can change any more.
        view = {"id": "last", "visitor": "last", "page": "/", "time": "2026-01-06T00:00:00.000Z"}
        one.put("page-views", view | {"since": "2026-01-06"}, BEGIN_MS + 5 * plain.DAY_MS)
        one.stream(*TRACKING)
        yield one


def views_of(shop: Site) -> list[plain.Event]:
    return shop.written["page-views"]


def earlier(shop: Site) -> list[plain.Event]:
    """All views but the last one, whose windows are still open."""
    return views_of(shop)[:-1]


@pytest.mark.parametrize("name", TRACKING)
def test_the_stream_and_the_offline_run_make_the_same_table(name: str, shop: Shop) -> None:
    streamed, offline = shop.streamed[name], shop.offline(name)
    if name in APPENDED:  # what is still open is in no table of the stream
        since = BEGIN_MS + 5 * plain.DAY_MS
        offline = [
            row for row in offline if not any(cell == "last" or _after(cell, since) for cell in row)
        ]
    assert streamed
    assert streamed == offline


def _after(cell: Any, since_ms: int) -> bool:
    return isinstance(cell, int) and cell >= since_ms


def test_a_run_over_history_writes_that_table(shop: Shop) -> None:
    shop.runner("sessions").history(parse(".."), into="sessions-offline")
    assert shop.table("sessions-offline") == plain.sessions(views_of(shop))


def close(found: int, exact: int) -> bool:
    """HyperLogLog++ with a standard error of 2 %: three of those, and one for small numbers."""
    return abs(found - exact) <= max(1, 0.06 * exact)


@pytest.mark.parametrize(
    ("name", "width_ms"), [("page-views", plain.MINUTE_MS), ("daily-statistics", plain.DAY_MS)]
)
def test_views_and_visitors_of_each_minute_and_day(name: str, width_ms: int, shop: Shop) -> None:
    expected: dict[Any, Any] = plain.statistics(views_of(shop), width_ms)
    found = {row[0]: row[1:] for row in shop.streamed[name]}
    if name == "daily-statistics":
        expected = {plain.day_of(start): rest for start, rest in expected.items()}
    assert found.keys() == expected.keys()
    for key, (views, *approximate) in found.items():
        assert views == expected[key][0]
        assert all(map(close, approximate, expected[key][1:])), (key, approximate, expected[key])


def test_how_many_come_back(shop: Shop) -> None:
    found = {(since, day): visitors for since, day, _, visitors in shop.streamed["retention"]}
    expected = plain.retention(views_of(shop))
    assert found.keys() == expected.keys()
    assert all(close(found[key], expected[key]) for key in found)
    for since, day, later, _ in shop.streamed["retention"]:
        assert (date.fromisoformat(day) - date.fromisoformat(since)).days == later


def test_what_was_searched_and_clicked(shop: Shop) -> None:
    found = {(hour, query): (n, vain) for hour, query, n, vain, _ in shop.streamed["searches"]}
    assert found == plain.searches(shop.written["searches"])
    clicked = {(hour, page, target): n for hour, page, target, n, _ in shop.streamed["clicks"]}
    assert clicked == plain.clicks(shop.written["clicks"])


def test_top_pages_sessions_and_funnels(shop: Shop) -> None:
    assert shop.streamed["top-pages"] == plain.top_pages(earlier(shop))
    assert shop.streamed["sessions"] == plain.sessions(earlier(shop))
    assert shop.streamed["funnel"] == plain.funnel(earlier(shop))
    assert {row[-1] for row in shop.streamed["sessions"]} == {0, 1, 2, 3, 4}


# ---- the functions alone, on small frames


def test_visitors_are_counted_within_the_error_that_is_promised(spark: SparkSession) -> None:
    """Everybody sees two pages in the minute."""
    sizes = (1_000, 10_000, 40_000)

    def minute(number: int, visitors: int) -> DataFrame:
        numbers = spark.range(2 * visitors)
        return numbers.select(
            F.timestamp_seconds(F.lit(BEGIN_MS // 1000 + 60 * number)).alias("time"),
            F.concat(F.lit("v"), F.floor(F.col("id") / 2)).alias("visitor"),
            F.concat(F.lit("/"), F.col("id") % 2).alias("page"),
            F.lit(date(2026, 1, 1)).alias("since"),
        )

    views = functools.reduce(DataFrame.union, [minute(n, size) for n, size in enumerate(sizes)])
    minutes = web_tracking.page_views(views)
    found = in_plain_python(minutes.collect())
    assert [row[0] for row in found] == [BEGIN_MS + n * plain.MINUTE_MS for n in range(3)]
    for (_, seen, visitors, new, pages), exact in zip(found, sizes, strict=True):
        assert (seen, pages) == (2 * exact, 2)
        assert close(visitors, exact)
        assert close(new, exact)
    assert any(row[2] != exact for row, exact in zip(found, sizes, strict=True))  # no full list


def test_how_far_a_visit_comes(spark: SparkSession) -> None:
    visits = {
        ("/",): 0,
        ("/cart", "/checkout"): 0,  # not from a product
        ("/products/lamp", "/thanks"): 1,
        ("/products/lamp", "/cart", "/products/rug", "/checkout"): 3,
        ("/checkout", "/products/lamp", "/cart", "/cart"): 2,
    }
    views = [
        Row(
            id=f"e{n}", visitor=",".join(pages), page=page, time=datetime.fromtimestamp(60 * n, UTC)
        )
        for pages in visits
        for n, page in enumerate(pages)
    ]
    found = web_tracking.sessions(spark.createDataFrame(views)).collect()
    assert {tuple(row["visitor"].split(",")): row["steps"] for row in found} == visits


# ---- too late


def test_what_comes_too_late_is_counted_and_the_offline_run_puts_it_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Broker(port=free_port()) as broker:
        site = Site(broker.bootstrap, tmp_path, spark)

        def view(number: int, minute: int, arrives: int) -> None:
            at = BEGIN_MS + minute * plain.MINUTE_MS
            time = datetime.fromtimestamp(at / 1000, UTC).isoformat()
            value = {"id": f"e{number}", "visitor": f"v{number}", "page": "/", "time": time}
            site.put("page-views", value, BEGIN_MS + arrives * plain.MINUTE_MS)

        for number in range(10):
            view(number, number, number)
        view(10, 120, 120)  # the watermark goes to minute 110
        site.stream("page-views")
        before = site.table("page-views")
        view(11, 115, 121)  # late, but within ten minutes
        view(12, 5, 122)
        view(13, 6, 122)
        site.stream("page-views")
        progress = Folder(tmp_path, "page-views").progress()
        assert progress is not None
        assert (progress["dropped_late"], progress["late_total"]) == (2, 2)
        assert any("2 too late" in line for line in site.notes)
        assert site.table("page-views") == as_rows(plain.statistics(views_of(site)[:-2], 60_000))
        assert len(site.table("page-views")) == len(before) + 1

        site.runner("page-views").history(parse(".."))
        assert site.table("page-views") == as_rows(plain.statistics(views_of(site), 60_000))


def as_rows(numbers: Mapping[int, tuple[int, ...]]) -> list[tuple[int, ...]]:
    return sorted((start, *rest) for start, rest in numbers.items())


def test_every_kind_has_a_pipeline_that_reads_it() -> None:
    read = {one.source.name for one in TRACKING.values()}
    assert read == {kind.topic for kind in KINDS.values()}
