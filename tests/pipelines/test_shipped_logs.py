"""The shipped pipelines of logs and host metrics: as streams and offline, against plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.client.connection import Connection
from headrace.client.reading import RecordReader
from headrace.client.topics import Topics
from headrace.pipelines.declaration import Topic
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
# Records of a batch: the streams go on with their state two or three times.
PER_BATCH = 400


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
        self.streamed: set[str] = set()

    def write(self, topic: str, records: list[plain.Record]) -> None:
        for one in records:
            self.producer.produce(topic, json.dumps(one).encode(), one["id"].encode())
        assert self.producer.flush(120) == 0

    def runner(self, name: str) -> Runner:
        pipeline = SHIPPED[name]
        assert isinstance(pipeline.source, Topic)
        return Unattended(
            pipeline=replace(pipeline, source=replace(pipeline.source, per_batch=PER_BATCH)),
            connection=self.connection,
            data=self.data,
            say=lambda line: None,
            note=self.notes.append,
            master=MASTER,
            spark_settings=QUICK,
        )

    def stream(self, name: str) -> None:
        """Once, for all tests."""
        if name not in self.streamed:
            self.streamed.add(name)
            self.runner(name).stream(once=True)

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Of a pipeline, or another one."""
        if name in SHIPPED:
            self.stream(name)
        frame = self.spark.read.format("delta").load(str(self.data / "tables" / name))
        return in_plain_python(frame.select(*(columns or frame.columns)).collect())

    def topic(self, name: str) -> list[plain.Record]:
        if name in SHIPPED:
            self.stream(name)
        reader = RecordReader(self.connection, name)
        found = [json.loads(one.value or b"") for one in reader.records()]
        reader.close()
        return found


@pytest.fixture(scope="module")
def watched(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Streams run when they are asked for, in several batches."""
    with Broker() as broker:
        one = Watched(broker.bootstrap, tmp_path_factory.mktemp("watched"), spark)
        last = {"id": "last", "time": time_text(LAST_MS), "service": "x", "message": "m"}
        one.write("logs", [*one.lines, last])
        one.producer.produce("logs", b"no JSON", b"bad")
        last = {"id": "last", "time": time_text(LAST_MS), "host": "z", "metrics": {"load_1m": 1.0}}
        one.write("metrics", [*one.samples, last])
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


@pytest.mark.parametrize("name", ["logs", "log-rates", "log-errors", "host-metrics"])
def test_a_run_over_history_makes_the_same_table(watched: Watched, name: str) -> None:
    watched.stream(name)
    watched.runner(name).history(parse(".."), into=f"{name}-offline")
    frame = watched.spark.read.format("delta").load(str(watched.data / "tables" / name))
    own = [one for one in frame.columns if not one.startswith("_") and one != "fields"]
    assert watched.table(f"{name}-offline", *own) == watched.table(name, *own)


@pytest.mark.parametrize("name", ["log-alerts", "metric-alerts"])
def test_a_run_over_history_tells_the_same_alerts(watched: Watched, name: str) -> None:
    Topics(watched.connection).create(f"{name}-offline", partitions=1)
    watched.runner(name).history(parse(".."), into=f"{name}-offline")
    closed = [one for one in watched.topic(f"{name}-offline") if one["time"] < time_text(LAST_MS)]
    streamed = watched.topic(name)
    assert {one["id"] for one in closed} == {one["id"] for one in streamed}
    assert len(closed) == len(streamed)
