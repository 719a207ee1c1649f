"""Into a topic: at least once, each record with an id by which a repeat can be recognized.

`headrace-message-id` is `<stream>/<batch>/<partition>/<number>`. The rows of a batch are spread
over a fixed number of partitions by their contents, and sorted before they are numbered. So a batch
that is repeated gives the same ids to the same records, in whatever order a shuffle brought them.

A row without a column `value` becomes a JSON object with all digits of its times, and with its
nulls unless `Topic(nulls=False)`; the key is the text that the object has for that column.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows.record_rows import with_headers
from headrace.pipelines.sinks.console_lines import Once
from headrace.pipelines.sinks.latest import Latest, quoted
from headrace.pipelines.sinks.table_memory import TableMemory
from headrace.wire.contract.headers import MESSAGE_ID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

RECORD = ("key", "value", "headers", "partition")
# By which rows are numbered; another number would give other ids to a batch that is repeated.
PARTITIONS = 4
# Spark's growing numbers hold the partition above these bits.
NUMBER_BITS = 33
# Spark's own formats end with milliseconds; its times have microseconds.
MOMENT, LOCAL_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
TIMES = {"timestampFormat": MOMENT, "timestampNTZFormat": LOCAL_TIME}


@dataclass(slots=True)
class TopicWriter:
    """Into `topic`; `options` are those of Spark's Kafka sink."""

    topic: Topic
    stream: str
    options: dict[str, str]

    @property
    def location(self) -> str:
        return self.topic.name

    def named(self, name: str) -> Topic:
        return replace(self.topic, name=name)

    def would_repeat(self, spark: SparkSession) -> bool:
        return False

    def memory(self, spark: SparkSession) -> TableMemory | None:
        return None

    def version(self, known: int) -> int:
        return -1

    def has_rows(self, spark: SparkSession) -> bool:
        return False

    def write(self, rows: DataFrame, once: Once | None, latest: Latest | None = None) -> None:
        """Writes rows. Rows of history do not belong to a batch of a stream: they get ids of their
        own."""
        batch = once or (f"{self.stream}.{uuid.uuid4().hex}", 0)
        write(rows, self.topic, self.options, batch)

    def stream_of(self, records: DataFrame) -> Any:
        """The writer of a stream of whole records, by Spark's own sink."""
        writer = records.writeStream.format("kafka").outputMode("update")
        return writer.options(**self.options).option("topic", self.topic.name)


def write(rows: DataFrame, topic: Topic, options: dict[str, str], once: Once) -> None:
    records = identified(outgoing(rows, topic), once)
    records.write.format("kafka").options(**options).option("topic", topic.name).save()


def outgoing(rows: DataFrame, topic: Topic, beside: tuple[str, ...] = ()) -> DataFrame:
    """The rows as key, value, headers and partition; columns `beside` them stay as they are."""
    from pyspark.sql import functions as F

    names = [name for name in rows.columns if name not in beside]
    if "value" in names:
        strange = [name for name in names if name not in RECORD]
        if strange:
            raise PipelineError(
                f"Rows for the topic {topic.name} have a column value, so {', '.join(strange)} "
                f"would be lost: leave them out, or name value otherwise to have JSON."
            )
        return rows
    if topic.key is not None and topic.key not in names:
        raise PipelineError(f"The rows for {topic.name} have no column {topic.key} for the key.")
    key = F.lit(None).cast("string")
    if topic.key is not None:
        key = _text(F.col(quoted(topic.key)), rows.schema[topic.key].dataType)
    options = TIMES | {"ignoreNullFields": str(not topic.nulls).lower()}
    whole = F.to_json(F.struct(*(F.col(quoted(name)) for name in names)), options)
    return rows.select(key.alias("key"), whole.alias("value"), *beside)


def _text(column: Column, kind: DataType) -> Column:
    """Returns a key as the value shows it, without the quotes of JSON."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.TimestampType):
        return F.date_format(column, MOMENT)
    if isinstance(kind, T.TimestampNTZType):
        return F.date_format(column, LOCAL_TIME)
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType | T.VariantType):
        return F.to_json(column, TIMES | {"ignoreNullFields": "false"})
    return column.cast("string")


def identified(records: DataFrame, once: Once) -> DataFrame:
    from pyspark.sql import functions as F

    has_headers = "headers" in records.columns
    spread = records.repartition(PARTITIONS, *records.columns)
    ordered = spread.sortWithinPartitions(*records.columns)
    number = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << NUMBER_BITS) - 1))
    record_id = F.concat_ws(
        "/",
        F.lit(once[0]),
        F.lit(str(once[1])),
        F.spark_partition_id().cast("string"),
        number.cast("string"),
    )
    own = F.col("headers") if has_headers else F.lit(None)
    numbered = ordered.withColumn("_headrace_id", record_id)
    headers = with_headers(own, {MESSAGE_ID: F.col("_headrace_id")})
    return numbered.withColumn("headers", headers).drop("_headrace_id")
