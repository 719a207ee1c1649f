"""The shipped pipelines of logs and host metrics: as streams and offline, against plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.client.connection import Connection
from headrace.client.reading import RecordReader
from headrace.client.topics import Topics
from headrace.pipelines.running import Runner
from headrace.pipelines.shipped import SHIPPED
from headrace.pipelines.span import parse
from headrace.testing import Broker
from tests.pipelines import plain_logs as plain
from tests.pipelines.orders import MASTER, QUICK
from tests.pipelines.plain_tracking import HOUR_MS, MINUTE_MS
from tests.pipelines.site import BEGIN_MS, Unattended, in_plain_python
from tests.pipelines.watched_hosts import log_lines, samples, time_text, told

pytestmark = pytest.mark.timeout(1200)

# One more record of a day later closes all windows before it.
LAST_MS = BEGIN_MS + 24 * HOUR_MS


class Watched:
    """A broker with logs and metrics, and the pipelines over it."""

    def __init__(self, bootstrap: str, data: Path, spark: SparkSession) -> None:
        self.connection = Connection({"bootstrap.servers": bootstrap})
        self.data, self.spark = data, spark
        for topic in ("logs", "metrics", "log-alerts", "metric-alerts"):
            settings = {"retention.ms": "-1"}
            Topics(self.connection).create(topic, partitions=1, settings=settings)
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self.lines, self.samples = log_lines(3), samples(4)
        self.notes: list[str] = []

    def write(self, topic: str, records: list[plain.Record]) -> None:
        for one in records:
            self.producer.produce(topic, json.dumps(one).encode(), one["id"].encode())
        assert self.producer.flush(120) == 0

    def runner(self, name: str) -> Runner:
        return Unattended(
            pipeline=SHIPPED[name],
            connection=self.connection,
            data=self.data,
            say=lambda line: None,
            note=self.notes.append,
            master=MASTER,
            spark_settings=QUICK,
        )

    def stream(self, name: str) -> None:
        self.runner(name).stream(once=True)

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        frame = self.spark.read.format("delta").load(str(self.data / "tables" / name))
        return in_plain_python(frame.select(*(columns or frame.columns)).collect())

    def topic(self, name: str) -> list[plain.Record]:
        reader = RecordReader(self.connection, name)
        found = [json.loads(one.value or b"") for one in reader.records()]
        reader.close()
        return found


@pytest.fixture(scope="module")
def watched(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Each stream goes on with its state after the first half."""
    with Broker() as broker:
        one = Watched(broker.bootstrap, tmp_path_factory.mktemp("watched"), spark)
        last = {"id": "last", "time": time_text(LAST_MS), "service": "x", "message": "m"}
        half = len(one.lines) // 2
        one.write("logs", one.lines[:half])
        for name in ("log-alerts", "logs"):
            one.stream(name)
        one.write("logs", [*one.lines[half:], last])
        one.producer.produce("logs", b"no JSON", b"bad")
        half = len(one.samples) // 2
        one.write("metrics", one.samples[:half])
        one.stream("metric-alerts")
        one.write(
            "metrics",
            [*one.samples[half:], {**one.samples[0], "id": "last", "host": "z"}
             | {"time": time_text(LAST_MS)}],
        )  # fmt: skip
        for name in ("logs", "log-rates", "log-errors", "log-alerts", "host-metrics"):
            one.stream(name)
        for name in ("host-metrics-by-hour", "metric-alerts"):
            one.stream(name)
        yield one


def test_each_line_is_once_in_the_table_of_its_day_and_service(watched: Watched) -> None:
    found = watched.table("logs", "id", "time", "service", "message", "day")
    expected = [
        (
            one["id"],
            plain.at_ms(one),
            one["service"],
            one["message"],
            plain.day_of(plain.at_ms(one)),
        )
        for one in plain.once(watched.lines)
    ]
    assert [row for row in found if row[0] != "last"] == sorted(expected)
    folders = {one.name for one in (watched.data / "tables" / "logs").iterdir()}
    assert {"day=2026-01-01", "day=2026-01-02"} <= folders
    assert any("1 bad record" in line for line in watched.notes)


def test_how_many_lines_by_minute_service_and_level(watched: Watched) -> None:
    found = watched.table("log-rates", "minute", "service", "level", "lines")
    assert [row for row in found if row[1] != "x"] == plain.rates(watched.lines)


def test_what_failed_by_template(watched: Watched) -> None:
    columns = ("day", "service", "template", "lines", "first_seen", "last_seen", "sample")
    found = watched.table("log-errors", *columns)
    assert found == plain.errors(watched.lines)
    assert "order <n> of <text> took <n> ms from <ip>" in {row[2] for row in found}


def test_alerts_on_logs_are_raised_once_and_cleared_once(watched: Watched) -> None:
    found = told(watched.topic("log-alerts"), "rule", "service", "state", "time", "lines")
    expected = plain.log_alerts(watched.lines)
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert {"raised", "cleared"} == {row[2] for row in found}
    assert {"many-errors", "fatal"} == {row[0] for row in found}


def test_metrics_are_rolled_up_by_minute_and_hour(watched: Watched) -> None:
    for name, width_ms in (("host-metrics", MINUTE_MS), ("host-metrics-by-hour", HOUR_MS)):
        found = {row[:3]: list(row[3:]) for row in watched.table(name) if row[1] != "z"}
        expected = plain.roll_ups(watched.samples, width_ms)
        assert found.keys() == expected.keys()
        for key, numbers in found.items():
            assert numbers == pytest.approx(expected[key]), key


def test_alerts_on_metrics_are_raised_once_and_cleared_once(watched: Watched) -> None:
    names = ("rule", "host", "metric", "state", "time", "average")
    found = [row for row in told(watched.topic("metric-alerts"), *names) if row[1] != "z"]
    expected = plain.metric_alerts(watched.samples)
    assert sorted(found, key=str) == expected
    assert {"cpu-high", "load-changed", "silent"} == {row[0] for row in found}


def test_a_run_over_history_finds_the_same(watched: Watched) -> None:
    for name in ("logs", "log-rates", "log-errors", "host-metrics"):
        watched.runner(name).history(parse(".."), into=f"{name}-offline")
        sink = SHIPPED[name].sink.name
        mine = [one for one in watched.spark.read.format("delta").load(
            str(watched.data / "tables" / sink)).columns if not one.startswith("_")
            and one != "fields"]  # fmt: skip
        assert watched.table(f"{name}-offline", *mine) == watched.table(sink, *mine)
    for name, key in (("log-alerts", "service"), ("metric-alerts", "host")):
        Topics(watched.connection).create(f"{name}-offline", partitions=1)
        watched.runner(name).history(parse(".."), into=f"{name}-offline")
        found, streamed = watched.topic(f"{name}-offline"), watched.topic(name)
        last = time_text(LAST_MS)
        early = [one for one in found if one["time"] < last]
        assert {one["id"] for one in early} == {one["id"] for one in streamed}
        assert len(early) == len(streamed)
        assert key in found[0]
