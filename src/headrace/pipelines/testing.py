"""A pipeline on plain rows, for tests and notebooks: no broker, no checkpoint, no table.

`run(revenue, [{"id": 1, "time": "2026-01-01T10:00:00Z", "amount": 5}]).rows` is what the function
makes of them, as dictionaries. Rows go the way of records: as JSON through the schema of the topic,
so what a topic would refuse is in `bad`, with the reason. All rows are one batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.pipelines import reading, session
from headrace.pipelines.declaration import Pipeline, Topic
from headrace.pipelines.failure import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# As Spark's Kafka source gives them.
RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
MASTER = "local[2]"


@dataclass(slots=True)
class Outcome:
    """`bad` are the rows that cannot be records of the topic, each with its reason."""

    rows: list[dict[str, Any]]
    bad: list[tuple[Any, str]] = field(default_factory=list)


def run(pipeline: Pipeline, rows: Iterable[Any], spark: SparkSession | None = None) -> Outcome:
    """What the pipeline makes of rows: dictionaries, pydantic models, or values as text or bytes.
    Spark is started where none is given and none runs; that takes seconds."""
    given = list(rows)
    there = spark or session.start(
        "test", master=MASTER, given={session.ZONE: pipeline.zone}, note=None
    )
    session.ship(there, pipeline.function, ())
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
        found = reading.parsed(_records(there, source, given), source).persist()
        frame = reading.good(found, source)
        wrong = found.where(f"{reading.WHY} IS NOT NULL")
        told = wrong.select("offset", reading.reason(found).alias("why")).collect()
        bad = [(given[row["offset"]], row["why"]) for row in sorted(told)]
    made = pipeline(frame)
    return Outcome([row.asDict(recursive=True) for row in made.collect()], bad)


def _records(spark: SparkSession, source: Topic, given: list[Any]) -> DataFrame:
    """One after the other in partition 0, written now."""
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
        raise PipelineError(f"{one!r} is no row: give dictionaries, pydantic models or text.")
    return dict(one)


def _text(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise PipelineError(f"{value!r} ({type(value).__name__}) is nothing that JSON can hold.")
