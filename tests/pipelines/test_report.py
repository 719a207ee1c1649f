"""`headrace pipeline report`: tables as Spark makes them, drawn without Spark."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.cli.applications.pipeline import app
from headrace.pipelines.declaration import Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.report.day_report import report
from headrace.pipelines.report.drawings import DRAWINGS
from headrace.pipelines.shipped import SHIPPED
from headrace.pipelines.stream.folder import table_location

pytestmark = pytest.mark.timeout(1200)
BEGIN = datetime(2026, 11, 16, tzinfo=UTC)


def place_of(data: Path, name: str) -> str:
    sink = SHIPPED[name].sink
    assert isinstance(sink, Table)
    return table_location(data, sink.name)


def empty_table(spark: SparkSession, data: Path, name: str) -> None:
    """With the columns that the pipeline itself gives it."""
    source = SHIPPED[name].source
    assert isinstance(source, Topic) and source.ddl is not None
    rows = SHIPPED[name](spark.createDataFrame([], source.ddl))
    rows.write.format("delta").save(place_of(data, name))


def minutes_of_views(spark: SparkSession, data: Path) -> None:
    """Ten a minute for two days from BEGIN on, in UTC."""
    rows = [(BEGIN + timedelta(minutes=n), 10, 4, 1, 3) for n in range(2 * 1440)]
    names = "minute TIMESTAMP, views LONG, visitors LONG, new_visitors LONG, pages LONG"
    frame = spark.createDataFrame(rows, names)
    frame.coalesce(1).write.format("delta").save(place_of(data, "page-views"))


def test_every_drawing_asks_for_columns_that_its_table_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in DRAWINGS:
        empty_table(spark, tmp_path, name)
        with pytest.raises(PipelineError, match="is empty"):
            report(tmp_path, name)
        with pytest.raises(PipelineError, match="no rows of 2026-11-16"):
            report(tmp_path, name, day="2026-11-16")


def test_a_day_is_that_of_the_zone(spark: SparkSession, tmp_path: Path) -> None:
    minutes_of_views(spark, tmp_path)
    newest = report(tmp_path, "page-views")
    assert (newest.day.date, newest.rows) == (date(2026, 11, 17), 1440)
    assert "<dd>14,400</dd>" in newest.html
    berlin = report(tmp_path, "page-views", day="2026-11-16", zone="Europe/Berlin")
    assert berlin.rows == 1440 - 60  # its first hour lies before the table begins
    assert report(tmp_path, "page-views", zone="Europe/Berlin").rows == 60


def test_the_command_writes_a_page_or_says_why_not(spark: SparkSession, tmp_path: Path) -> None:
    asked, file = CliRunner(), tmp_path / "day.html"
    where = ["--html", str(file), "--data", str(tmp_path)]
    refused = asked.invoke(app, ["report", "page-views", *where])
    assert "There is no table" in str(refused.exception)
    assert "writes to the topic" in str(
        asked.invoke(app, ["report", "log-alerts", *where]).exception
    )
    minutes_of_views(spark, tmp_path)
    done = asked.invoke(app, ["report", "page-views", *where, "--day", "2026-11-16", "--json"])
    assert json.loads(done.stdout)["rows"] == 1440
    assert file.read_text("utf-8").startswith("<!doctype html>")
