"""Pipelines in tests and notebooks: on plain rows, or as a stream of a real broker.

`run(revenue, [{"id": 1, "time": "2026-01-01T10:00:00Z", "amount": 5}]).rows` is what the function
makes of them, as dictionaries: no broker, no checkpoint, no table. Rows go the way of records: as
JSON through the schema of the topic, so what a topic would refuse is in `bad`, with the reason. All
rows are one batch. `run_stream(revenue, "localhost:9092", folder)` reads a topic as
`headrace pipeline run --once` does and returns the rows of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.connection import ClientSettings, connected
from headrace.pipelines.declaration import Pipeline, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import record_rows
from headrace.pipelines.sinks import tables
from headrace.pipelines.spark import session
from headrace.pipelines.stream.folder import table_location
from headrace.pipelines.stream.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# As Spark's Kafka source gives them.
RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
MASTER = "local[2]"
# Settings for few rows, where thorough compilation costs more than it saves.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(slots=True)
class Outcome:
    """`bad` are the rows that cannot be records of the topic, each with its reason."""

    rows: list[dict[str, Any]]
    bad: list[tuple[Any, str]] = field(default_factory=list)


def run(pipeline: Pipeline, rows: Iterable[Any], spark: SparkSession | None = None) -> Outcome:
    """The result of the pipeline for rows: dictionaries, pydantic models, or values as text or
    bytes. Spark is started where none is given and none runs; that takes seconds."""
    given = list(rows)
    there = spark or session.start(
        "test", master=MASTER, given={session.ZONE: pipeline.zone}, note=None
    )
    session.ship(there, pipeline.function, ())
    with _in_zone(there, pipeline.zone):
        return _outcome(pipeline, given, there)


@contextmanager
def _in_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """Applies the days of the pipeline's zone, also in a given session with another zone."""
    before = spark.conf.get(session.ZONE)
    spark.conf.set(session.ZONE, zone)
    try:
        yield
    finally:
        spark.conf.set(session.ZONE, before)


def _outcome(pipeline: Pipeline, given: list[Any], there: SparkSession) -> Outcome:
    source, bad = pipeline.source, []
    if not isinstance(source, Topic):
        if not given:
            raise PipelineError(f"{pipeline.name} reads a table: give at least one row of it.")
        frame = there.createDataFrame([_fields(one) for one in given])
    elif source.schema is None:
        frame = _records(there, source, given)
    else:
        if source.infers:
            raise PipelineError(f"{pipeline.name} infers its schema: give it one to test it.")
        found = record_rows.parsed(_records(there, source, given), source).persist()
        frame = record_rows.good(found, source)
        wrong = found.where(f"{record_rows.WHY} IS NOT NULL")
        told = wrong.select("offset", record_rows.reason(found).alias("why")).collect()
        bad = [(given[row["offset"]], row["why"]) for row in sorted(told)]
    made = pipeline(frame)
    return Outcome([row.asDict(recursive=True) for row in made.collect()], bad)


def run_stream(
    pipeline: Pipeline, bootstrap: str | ClientSettings, data: Path
) -> list[dict[str, Any]]:
    """The rows of the pipeline's table after a run over everything that its topic holds now.

    `data` is the folder of checkpoints and tables: a second call with the same folder goes on
    where the first one ended. Spark is started where none runs, and goes on running.
    """
    if not isinstance(pipeline.sink, Table):
        raise PipelineError(
            f"{pipeline.name} writes no table: run_stream() returns a table's rows."
        )
    runner = Runner(
        pipeline=pipeline,
        connection=connected(bootstrap, None),
        data=data,
        say=_quiet,
        note=_quiet,
        master=MASTER,
        spark_settings=QUICK,
    )
    runner.stream(once=True)
    spark = session.start(pipeline.name, master=MASTER, given=QUICK)
    location = table_location(data, pipeline.sink.name)
    rows = tables.whole(spark, pipeline.sink, location).collect()
    return [row.asDict(recursive=True) for row in rows]


def _quiet(line: str) -> None:
    pass


def _records(spark: SparkSession, source: Topic, given: list[Any]) -> DataFrame:
    """Returns records one after the other, in partition 0, with the present time."""
    now = datetime.now(UTC)
    rows = [(None, _value(one), source.name, 0, n, now, 0, None) for n, one in enumerate(given)]
    return spark.createDataFrame(rows, RECORDS)


def _value(one: Any) -> bytes | None:
    if one is None or isinstance(one, bytes):
        return one
    return (
        one.encode() if isinstance(one, str) else json.dumps(_fields(one), default=_text).encode()
    )


def _fields(one: Any) -> dict[str, Any]:
    if hasattr(one, "model_dump"):
        found: dict[str, Any] = one.model_dump(by_alias=True)
        return found
    if not isinstance(one, Mapping):
        raise PipelineError(f"{one!r} is not a row: give dictionaries, pydantic models or text.")
    return dict(one)


def _text(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise PipelineError(f"{value!r} ({type(value).__name__}) is nothing that JSON can hold.")
