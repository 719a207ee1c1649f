"""The shipped pipelines of web tracking: as streams and over history, against plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.client.connection import Connection
from headrace.contract.tracking import KINDS
from headrace.pipelines.folder import Folder
from headrace.pipelines.running import Runner
from headrace.pipelines.shipped import SHIPPED
from headrace.pipelines.shipped.generator import generate
from headrace.pipelines.span import parse
from headrace.services.tracking.topics import make_topics
from headrace.testing import Broker
from tests.pipelines import plain_tracking as plain
from tests.pipelines.conftest import MASTER, QUICK

pytestmark = pytest.mark.timeout(600)

BEGIN_MS = 1_767_225_600_000  # 2026-01-01
APPENDED = ("top-pages", "sessions", "funnel")
# These see the events in two goes and must go on with their state; the others see them in one.
GO_ON = ("page-views", "sessions", "funnel")


@dataclass
class Site:
    """A broker with the topics of web tracking, and a folder for tables."""

    connection: Connection
    data: Path
    spark: SparkSession
    written: dict[str, list[plain.Event]] = field(default_factory=dict)

    def write(self, topic: str, value: bytes, key: bytes, arrives_ms: int) -> None:
        self.written.setdefault(topic, []).append(json.loads(value))
        self.producer.produce(topic, value, key, timestamp=arrives_ms)
        self.producer.poll(0)

    def __post_init__(self) -> None:
        make_topics(self.connection, partitions=2, settings={"retention.ms": "-1"})
        self.producer = Producer({"bootstrap.servers": self.connection.bootstrap})

    def runner(self, name: str) -> Runner:
        return Runner(
            pipeline=SHIPPED[name],
            connection=self.connection,
            data=self.data,
            say=lambda line: None,
            note=lambda line: None,
            master=MASTER,
            spark_settings=QUICK,
        )

    def stream(self, *names: str) -> None:
        assert self.producer.flush(30) == 0
        for name in names:
            self.runner(name).stream(once=True)

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """Of a pipeline, or another one."""
        name = SHIPPED[name].sink.name if name in SHIPPED else name
        rows = self.spark.read.format("delta").load(str(self.data / "tables" / name)).collect()
        return sorted(tuple(_plain(cell) for cell in row) for row in rows)


def _plain(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return round(cell.timestamp() * 1000)
    return cell.isoformat() if isinstance(cell, date) else cell


@pytest.fixture(scope="module")
def site(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three days of a shop: all pipelines ran as streams, and offline over it all."""
    with Broker() as broker:
        connection = Connection({"bootstrap.servers": broker.bootstrap})
        one = Site(connection, tmp_path_factory.mktemp("site"), spark)
        events = list(generate(visitors=40, seed=7, begin_ms=BEGIN_MS, days=3, late_percent=0))
        half = len(events) // 2
        for event in events[:half]:
            one.write(event.topic, event.value(), event.key, event.arrives_ms)
        one.stream(*GO_ON)
        for event in events[half:]:
            one.write(event.topic, event.value(), event.key, event.arrives_ms)
        # Two days later somebody comes again: nothing before can change any more.
        view = {"id": "last", "visitor": "last", "page": "/", "time": "2026-01-06T00:00:00.000Z"}
        body = json.dumps(view | {"since": "2026-01-06"}).encode()
        one.write("page-views", body, b"last", BEGIN_MS + 5 * plain.DAY_MS)
        one.stream(*SHIPPED)
        for name in SHIPPED:
            one.runner(name).history(parse(".."), into=f"{name}-offline")
        yield one


def views_of(site: Site) -> list[plain.Event]:
    return site.written["page-views"]


def earlier(site: Site) -> list[plain.Event]:
    """All views but the last one, whose windows are still open."""
    return views_of(site)[:-1]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_stream_and_the_offline_run_make_the_same_table(name: str, site: Site) -> None:
    streamed, offline = site.table(name), site.table(f"{name}-offline")
    if name in APPENDED:  # what is still open is in no table of the stream
        since = BEGIN_MS + 5 * plain.DAY_MS
        offline = [
            row for row in offline if not any(cell == "last" or _after(cell, since) for cell in row)
        ]
    assert streamed
    assert streamed == offline


def _after(cell: Any, since_ms: int) -> bool:
    return isinstance(cell, int) and cell >= since_ms


def close(found: int, exact: int) -> bool:
    """HyperLogLog++ with a standard error of 2 %: three of those, and one for small numbers."""
    return abs(found - exact) <= max(1, 0.06 * exact)


@pytest.mark.parametrize(
    ("name", "width_ms"), [("page-views", plain.MINUTE_MS), ("daily-statistics", plain.DAY_MS)]
)
def test_views_and_visitors_of_each_minute_and_day(name: str, width_ms: int, site: Site) -> None:
    expected = plain.statistics(views_of(site), width_ms)
    found = {row[0]: row[1:] for row in site.table(name)}
    if name == "daily-statistics":
        expected = {plain.day_of(start): rest for start, rest in expected.items()}  # type: ignore[misc]
    assert found.keys() == expected.keys()
    for key, (views, *approximate) in found.items():
        assert views == expected[key][0]
        assert all(map(close, approximate, expected[key][1:])), (key, approximate, expected[key])


def test_how_many_come_back(site: Site) -> None:
    found = {(since, day): visitors for since, day, _, visitors in site.table("retention")}
    expected = plain.retention(views_of(site))
    assert found.keys() == expected.keys()
    assert all(close(found[key], expected[key]) for key in found)
    for since, day, later, _ in site.table("retention"):
        assert (date.fromisoformat(day) - date.fromisoformat(since)).days == later


def test_what_was_searched_and_clicked(site: Site) -> None:
    found = {(hour, query): (n, vain) for hour, query, n, vain, _ in site.table("searches")}
    assert found == plain.searches(site.written["searches"])
    clicked = {(hour, page, target): n for hour, page, target, n, _ in site.table("clicks")}
    assert clicked == plain.clicks(site.written["clicks"])


def test_top_pages_sessions_and_funnels(site: Site) -> None:
    assert site.table("top-pages") == plain.top_pages(earlier(site))
    assert site.table("sessions") == plain.sessions(earlier(site))
    assert site.table("funnel") == plain.funnel(earlier(site))
    assert {row[-1] for row in site.table("sessions")} == {0, 1, 2, 3, 4}


def test_what_comes_too_late_is_counted_and_the_offline_run_puts_it_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Broker() as broker:
        site = Site(Connection({"bootstrap.servers": broker.bootstrap}), tmp_path, spark)

        def view(number: int, minute: int, arrives: int) -> None:
            at = BEGIN_MS + minute * plain.MINUTE_MS
            time = datetime.fromtimestamp(at / 1000).astimezone().isoformat()
            value = {"id": f"e{number}", "visitor": f"v{number % 3}", "page": "/", "time": time}
            body = json.dumps(value).encode()
            site.write("page-views", body, b"k", BEGIN_MS + arrives * plain.MINUTE_MS)

        for number in range(10):
            view(number, number, number)
        view(10, 120, 120)  # the watermark goes to minute 110
        site.stream("page-views")
        before = site.table("page-views")
        view(11, 115, 121)  # late, but within ten minutes
        view(12, 5, 122)
        view(13, 6, 122)
        site.stream("page-views")
        assert Folder(tmp_path, "page-views").progress()["dropped_late"] == 2  # type: ignore[index]
        counts = {start: row[0] for start, *row in site.table("page-views")}
        expected = plain.statistics(views_of(site)[:-2], plain.MINUTE_MS)
        assert counts == {start: row[0] for start, row in expected.items()}
        assert len(counts) == len(before) + 1

        site.runner("page-views").history(parse(".."))
        counts = {start: row[0] for start, *row in site.table("page-views")}
        expected = plain.statistics(views_of(site), plain.MINUTE_MS)
        assert counts == {start: row[0] for start, row in expected.items()}


def test_every_kind_has_a_pipeline_that_reads_it() -> None:
    read = {one.source.name for one in SHIPPED.values()}
    assert read == {kind.topic for kind in KINDS.values()}
