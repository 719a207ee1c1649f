"""The functions of the shipped pipelines of logs and metrics over rows, against plain Python."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipelines.shipped import SHIPPED
from headrace.pipelines.testing import run
from tests.pipelines import plain_logs as plain
from tests.pipelines.plain_tracking import HOUR_MS, MINUTE_MS
from tests.pipelines.site import in_plain_python
from tests.pipelines.watched_hosts import log_lines, samples

pytestmark = pytest.mark.timeout(1200)

LINES, SAMPLES = log_lines(3), samples(4)


def made(spark: SparkSession, name: str, rows: list[plain.Record]) -> list[tuple[Any, ...]]:
    outcome = run(SHIPPED[name], rows, spark)
    assert not outcome.bad
    return in_plain_python([tuple(one.values()) for one in outcome.rows])


def test_how_many_lines(spark: SparkSession) -> None:
    assert made(spark, "log-rates", LINES) == plain.rates(LINES)


def test_what_failed(spark: SparkSession) -> None:
    found = made(spark, "log-errors", LINES)
    assert found == plain.errors(LINES)
    assert "order <n> of <text> took <n> ms from <ip>" in {row[2] for row in found}


def by_text(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=str)


def test_alerts_on_logs(spark: SparkSession) -> None:
    rows = run(SHIPPED["log-alerts"], LINES, spark).rows
    found = in_plain([(o["rule"], o["service"], o["state"], o["time"], o["lines"]) for o in rows])
    assert by_text(found) == by_text(plain.log_alerts(LINES))
    assert {row[0] for row in found} == {"many-errors", "fatal"}


@pytest.mark.parametrize(
    ("name", "width_ms"), [("host-metrics", MINUTE_MS), ("host-metrics-by-hour", HOUR_MS)]
)
def test_roll_ups(spark: SparkSession, name: str, width_ms: int) -> None:
    found = {row[:3]: list(row[3:]) for row in made(spark, name, SAMPLES)}
    expected = plain.roll_ups(SAMPLES, width_ms)
    assert found.keys() == expected.keys()
    for key, numbers in found.items():
        assert numbers == pytest.approx(expected[key]), key


def test_alerts_on_metrics(spark: SparkSession) -> None:
    names = ("rule", "host", "metric", "state", "time", "average")
    rows = run(SHIPPED["metric-alerts"], SAMPLES, spark).rows
    found = in_plain([tuple(one[name] for name in names) for one in rows])
    assert by_text(found) == by_text(plain.metric_alerts(SAMPLES))
    assert {row[0] for row in found} == {"cpu-high", "load-changed", "silent"}


def in_plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [
        tuple(
            round(cell.timestamp() * 1000)
            if isinstance(cell, datetime)
            else cell.isoformat()
            if isinstance(cell, date)
            else cell
            for cell in row
        )
        for row in rows
    ]


def test_a_service_that_is_no_folders_name_gets_another_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A file system takes 255 bytes and no zero; Delta takes an empty one for none."""
    services = ["shop", "", "s" * 300, "\0zero\0", "\U0001f600" * 300, "a/b=c%d:e *'\"\\", "."]
    lines: list[dict[str, Any]] = [
        {"id": str(n), "time": "2026-01-01T00:00:00Z", "service": service, "message": "m"}
        for n, service in enumerate(services)
    ]
    lines[0]["fields"] = {"service": "kept", "n": "1"}
    rows = run(SHIPPED["logs"], lines, spark).rows
    frame = spark.createDataFrame(
        [(o["id"], o["service"], o["fields"], o["day"]) for o in rows],
        "id STRING, service STRING, fields MAP<STRING, STRING>, day DATE",
    )
    place = str(tmp_path / "logs")
    frame.write.format("delta").partitionBy("day", "service").save(place)
    found = {row.id: row for row in spark.read.format("delta").load(place).collect()}
    names = [found[str(n)].service for n in range(len(services))]
    assert names == [
        "shop", "unnamed", "s" * 60, "zero", "\U0001f600" * 60, services[5], ".",
    ]  # fmt: skip
    assert found["0"].fields == {"service": "kept", "n": "1"}
    for number in (1, 2, 3, 4):
        assert found[str(number)].fields == {"service": services[number]}
    assert found["5"].fields is None
