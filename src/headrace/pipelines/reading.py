"""From records to rows: JSON by a schema, and what cannot be a row, with the reason.

Bad is: a null value, JSON that is broken or of another shape, a field that is NOT NULL and missing,
an event time more than a day after the record's own time (it would push the watermark into the
future, and everything after it would be too late).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.contract.headers import MESSAGE_ID
from headrace.pipelines.declaration import Pipeline, Topic
from headrace.pipelines.failure import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

WHY = "_headrace_why"
PARSED = "_headrace_parsed"
CORRUPT = "_headrace_corrupt"
AHEAD = "1 day"
RECORD = ("key", "topic", "partition", "offset", "timestamp")


def source_options(topic: Topic, bootstrap: str) -> dict[str, str]:
    """For Spark's Kafka source; what the pipeline says wins."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name}
    options["startingOffsets"] = topic.starting
    options["includeHeaders"] = "true"
    # Transactions that were aborted never happened.
    options["kafka.isolation.level"] = "read_committed"
    if topic.per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(topic.per_batch)
    return options | topic.options


def schema_of(topic: Topic) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    assert topic.ddl is not None
    try:
        schema = StructType.fromDDL(topic.ddl)
    except PySparkException as failure:
        raise PipelineError(
            f"Topic {topic.name}: Spark cannot read the schema: {failure}"
        ) from None
    if topic.event_time is not None and topic.event_time not in schema.names:
        raise PipelineError(f"Topic {topic.name}: the schema has no column {topic.event_time}.")
    return schema


def parsed(records: DataFrame, topic: Topic) -> DataFrame:
    """The records, with their columns in PARSED, and WHY they cannot be rows, or null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    schema = schema_of(topic)
    wanted = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    row = F.from_json(F.col("value").cast("string"), wanted, options)
    found = records.withColumn(PARSED, row)
    return found.withColumn(WHY, F.coalesce(*_reasons(topic, schema)))


def _reasons(topic: Topic, schema: StructType) -> list[Column]:
    from pyspark.sql import functions as F

    field = F.col(PARSED)
    reasons = [
        F.when(F.col("value").isNull(), F.lit("the value is null")),
        F.when(
            field.isNull() | field[CORRUPT].isNotNull(),
            F.lit(f"the value is not JSON of the schema {schema.simpleString()}"[:1000]),
        ),
    ]
    reasons += [
        F.when(field[one.name].isNull(), F.lit(f"the field {one.name} is missing"))
        for one in schema.fields
        if not one.nullable
    ]
    if topic.event_time is not None:
        time = field[topic.event_time].cast("timestamp")
        late = f"{topic.event_time} is more than {AHEAD} after the time of the record"
        reasons.append(F.when(time > F.col("timestamp") + F.expr(f"INTERVAL {AHEAD}"), F.lit(late)))
    return reasons


def good(found: DataFrame, topic: Topic) -> DataFrame:
    """The rows that the function gets."""
    from pyspark.sql import functions as F

    names = schema_of(topic).names
    columns = [F.col(PARSED)[name].alias(name) for name in names]
    if topic.record:
        columns.append(F.struct(*RECORD).alias("record"))
    rows = found.where(F.col(WHY).isNull()).select(*columns)
    if topic.event_time is not None and topic.late is not None:
        rows = rows.withWatermark(topic.event_time, topic.late)
    return rows


def bad(found: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Dead letters as Spark's Kafka sink takes them: the whole record, and why and from where."""
    from pyspark.sql import functions as F

    place = F.concat_ws("/", "topic", "partition", "offset")
    said = {
        "headrace-dead-error": F.lit("headrace.pipelines.BadRecord"),
        "headrace-dead-message": F.col(WHY),
        "headrace-dead-attempts": F.lit("1"),
        "headrace-dead-topic": F.col("topic"),
        "headrace-dead-partition": F.col("partition").cast("string"),
        "headrace-dead-offset": F.col("offset").cast("string"),
        "headrace-dead-group": F.lit(f"pipeline.{pipeline.name}"),
        MESSAGE_ID: place,
    }
    ours = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in said.items()
        )
    )
    headers = F.concat(_own_headers(), ours)
    return found.where(F.col(WHY).isNotNull()).select(
        F.lit(pipeline.dead_topic).alias("topic"), "key", "value", headers.alias("headers")
    )


def _own_headers() -> Column:
    from pyspark.sql import functions as F

    none = F.expr("CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)")
    return F.coalesce(F.col("headers"), none)
