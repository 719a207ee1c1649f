"""A topic as a DataFrame, for notebooks: the rows that are there now, bad records aside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.java_names import as_java
from headrace.client.topics import Topics
from headrace.pipelines import reading, session
from headrace.pipelines import span as spans
from headrace.pipelines.declaration import Topic
from headrace.pipelines.failure import PipelineError

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
    connection = Connection({**(settings or {}), "bootstrap.servers": bootstrap})
    try:
        if not any(asked.matches(name) for name in Topics(connection).cluster.topics):
            raise PipelineError(f"There is no topic {asked.name} at {bootstrap}.")
    except ClientError as failure:
        raise PipelineError(str(failure)) from failure
    there = spark or session.start("read", master="local[*]", given={})
    options = {f"kafka.{name}": value for name, value in as_java(connection.settings).items()}
    options |= reading.source_options(asked, bootstrap)
    if asked.infers:
        asked = replace(asked, schema=reading.inferred(there, asked, options))
    for name in reading.STARTING:
        options.pop(name, None)
    options |= spans.parse(history).options()
    records = there.read.format("kafka").options(**options).load()
    if asked.schema is None:
        return records.where("false") if bad else records
    found = reading.parsed(records, asked)
    if not bad:
        return reading.good(found, asked)
    wrong = found.where(f"{reading.WHY} IS NOT NULL")
    return wrong.select("topic", "partition", "offset", "value", reading.reason(found).alias("why"))
