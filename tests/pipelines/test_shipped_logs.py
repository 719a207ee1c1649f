"""The shipped pipelines of logs and host metrics: as streams and offline, against plain Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.pipelines.declaration import Topic
from headrace.pipelines.shipped import SHIPPED, log_search
from headrace.pipelines.stream.runner import Runner
from headrace.pipelines.stream.span import parse
from headrace.testing import Broker
from tests.interop.brokers import free_port
from tests.pipelines import plain_logs as plain
from tests.pipelines.orders import MASTER, QUICK
from tests.pipelines.plain_tracking import HOUR_MS, MINUTE_MS, at_ms, day_of
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
        self.connection = ClientSettings({"bootstrap.servers": bootstrap})
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
    with Broker(port=free_port()) as broker:
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
            at_ms(one),
            one["service"],
            one["message"],
            day_of(at_ms(one)),
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


SEARCHES: list[list[str]] = [
    [],
    ["--limit", "3"],
    ["--level", "error"],
    ["--service", "shop"],
    ["--from", "2026-01-01T00:02Z", "--to", "2026-01-01T00:05Z"],
    ["took", "--level", "warn", "--service", "pay"],
    ["nobody wrote this"],
]


def searched(watched: Watched, *words: str, data: Path | None = None) -> Any:
    """What the command says, as JSON; `data` is where tables lie."""
    command = [sys.executable, "-m", "headrace", "logs", "search", *words, "--json"]
    command += ["--bootstrap", watched.connection.bootstrap]
    environment = dict(os.environ, HEADRACE_PIPELINES=str(data or watched.data))
    done = subprocess.run(command, capture_output=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("words", SEARCHES, ids=" ".join)
def test_a_search_over_the_table_finds_what_one_over_the_topic_does(
    watched: Watched, words: list[str]
) -> None:
    watched.stream("logs")
    in_topic = searched(watched, *words)
    in_table = searched(watched, *words, "--table", "logs")
    assert in_table == in_topic
    assert bool(in_topic["records"]) == (words != ["nobody wrote this"])


def test_a_search_over_the_table_by_spark_finds_the_same(watched: Watched) -> None:
    watched.stream("logs")
    files = log_search.without_spark(watched.data, "logs")
    assert files is not None
    about: dict[str, Any] = {
        "from_ms": BEGIN_MS + MINUTE_MS, "to_ms": BEGIN_MS + HOUR_MS, "levels": ("ERROR", "FATAL"),
    }  # fmt: skip
    rows = [{**row, "time": at_ms} for row, at_ms in log_search.scanned(files, **about)]
    matched, newest = log_search.newest(watched.data, "logs", most=10_000, **about)
    assert matched == len(rows) > 0
    assert sorted(rows, key=lambda one: one["id"]) == sorted(newest, key=lambda one: one["id"])


def test_a_search_opens_only_files_of_the_service_and_days_that_are_asked_for(
    watched: Watched, tmp_path: Path
) -> None:
    watched.stream("logs")
    copy = tmp_path / "tables" / "logs"
    shutil.copytree(watched.data / "tables" / "logs", copy)
    for file in copy.rglob("*.parquet"):
        if "_delta_log" not in file.parts and "service=shop" not in file.parts:
            file.unlink()
    found = searched(watched, "--service", "shop", "--table", "logs", data=tmp_path)
    assert found == searched(watched, "--service", "shop")


@pytest.mark.parametrize(
    "name", ["logs", "log-rates", "log-errors", "host-metrics", "host-metrics-by-hour"]
)
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
    assert sorted(map(str, closed)) == sorted(map(str, streamed))
