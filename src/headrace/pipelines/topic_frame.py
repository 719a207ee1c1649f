"""A topic as a DataFrame, for notebooks: the rows that are there now, bad records aside."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.java_names import as_java
from headrace.pipelines.declaration import Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import ahead, record_rows
from headrace.pipelines.spark import session
from headrace.pipelines.stream import span as spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BOOTSTRAP = "localhost:9092"


def read(
    topic: str | Topic,
    *,
    schema: type | str | None = None,
    history: str = "..",
    bad: bool = False,
    bootstrap: str = BOOTSTRAP,
    settings: dict[str, str] | None = None,
    spark: SparkSession | None = None,
    **source: Any,
) -> DataFrame:
    """The rows of a topic by its schema; with `bad` the records that are none, each with its reason
    in the column `why`.

    `history` is FROM..TO as for `--history`; `settings` are of the connection, such as a login;
    what else is given goes to `Topic`. Spark is started where none is given and none runs.
    """
    asked = topic if isinstance(topic, Topic) else Topic(topic, schema=schema, **source)
    connection = ClientSettings({**(settings or {}), "bootstrap.servers": bootstrap})
    try:
        if not any(asked.matches(name) for name in Topics(connection).cluster.topics):
            raise PipelineError(f"There is no topic {asked.name} at {bootstrap}.")
    except ClientError as failure:
        raise PipelineError(str(failure)) from failure
    there = spark or session.start("read", master="local[*]", given={})
    options = {f"kafka.{name}": value for name, value in as_java(connection.settings).items()}
    options |= record_rows.source_options(asked, bootstrap)
    if asked.infers:
        asked = replace(asked, schema=record_rows.inferred(there, asked, options))
    for name in record_rows.STARTING:
        options.pop(name, None)
    options |= spans.parse(history).options()
    records = there.read.format("kafka").options(**options).load()
    if asked.schema is None:
        return records.where("false") if bad else records
    now = ahead.clock_at(time.time_ns() // 1_000_000)
    found = record_rows.parsed(records, asked, now)
    if not bad:
        return record_rows.good(found, asked)
    wrong = found.where(f"{record_rows.WHY} IS NOT NULL")
    return wrong.select(
        "topic", "partition", "offset", "value", record_rows.reason(found).alias("why")
    )
