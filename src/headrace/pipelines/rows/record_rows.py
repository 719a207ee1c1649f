"""From records to rows: JSON or Avro by a schema, and what cannot be a row, with the reason.

Bad is: a null value, a value that is broken, not UTF-8, of another shape or more than one, what
`strict` finds in it, an event time that is too far ahead (see `ahead`) or before 1970 (it would
count or be too late, depending on what came before it).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Pipeline, Topic
from headrace.pipelines.expectation import Expectation
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import (
    ahead,
    exact,
    kept_numbers,
    letter_size,
    model_checks,
    strict,
)
from headrace.pipelines.rows.model_rules import rules_of
from headrace.pipelines.rows.schema import VARIANT, enveloped, from_seen
from headrace.pipelines.rows.watermark import watermarked
from headrace.pipelines.spark.spark_errors import innermost
from headrace.wire.contract import headers as names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

WHY = "_headrace_why"
LATE = "_headrace_late"
PARSED = "_headrace_parsed"
CORRUPT = "_headrace_corrupt"
READ = "_headrace_read"  # as Spark read it; PARSED has times, dates and decimals in their types
WHOLE, BROKEN = "_headrace_whole", "_headrace_broken"
MISFIT = "the value does not fit the schema"
NO_TEXT, MORE = "the value is not UTF-8", "the value has something after the JSON"
# NaN and Infinity are not JSON, and one of them would spoil each sum that includes it.
JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}
RECORD = ("key", "topic", "partition", "offset", "timestamp")
# Options that say where a stream begins, and how much it takes; a batch says it otherwise.
STARTING = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
)

# How many records of each partition are looked at to infer a schema.
LOOKED_AT = 10_000
# Confluent's header: a zero byte and the id of a schema.
WIRE_HEADER_BYTES = 5


def source_options(topic: Topic, bootstrap: str) -> dict[str, str]:
    """Returns options for Spark's Kafka source; the pipeline's own settings win."""
    options = {"kafka.bootstrap.servers": bootstrap}
    options["subscribePattern" if topic.pattern else "subscribe"] = topic.name
    options |= _starting(topic)
    options["includeHeaders"] = "true"
    # Records of aborted transactions are not read.
    options["kafka.isolation.level"] = "read_committed"
    # A topic that was deleted must not be created again, empty, by a request for it.
    options["kafka.allow.auto.create.topics"] = "false"
    if topic.per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(topic.per_batch)
    return options | topic.options


def _starting(topic: Topic) -> dict[str, str]:
    if isinstance(topic.starting, dict):
        offsets = {str(partition): offset for partition, offset in topic.starting.items()}
        return {"startingOffsets": json.dumps({topic.name: offsets})}
    if (when := topic.starting_ms) is not None:
        return {
            "startingTimestamp": str(when),
            "startingOffsetsByTimestampStrategy": "latest",  # nothing so new yet: what comes
        }
    return {"startingOffsets": str(topic.starting)}


def security(options: dict[str, str]) -> dict[str, str]:
    """The options of a reader that a writer needs; those of a consumer only stay there."""
    named = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
    return {name: value for name, value in options.items() if name.startswith(named)}


def inferred(spark: SparkSession, topic: Topic, options: dict[str, str]) -> str:
    """DDL from the first records of each partition."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    asked = {name: value for name, value in options.items() if name not in STARTING}
    asked |= {"startingOffsets": "earliest", "endingOffsets": "latest"}
    records = spark.read.format("kafka").options(**asked).load().limit(LOOKED_AT)
    value = F.try_parse_json(F.col("value").cast("string"))
    [(seen,)] = records.select(F.schema_of_variant_agg(value)).collect()
    if seen is None or seen == "VOID":
        raise PipelineError(
            f"{topic.name} holds no JSON yet to infer a schema from: give one, or run again when "
            "there are records."
        )
    ddl = from_seen(seen, topic.event_time)
    shape = StructType.fromDDL(ddl)
    chosen = kept_numbers.columns_for(records, shape, JSON)
    return ddl if chosen == shape else str(chosen.toDDL())


def schema_of(topic: Topic) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    assert topic.ddl is not None
    try:
        return StructType.fromDDL(topic.ddl)
    except PySparkException as failure:
        raise PipelineError(
            f"Topic {topic.name}: Spark cannot read the schema: {failure}"
        ) from None


def parsed(records: DataFrame, topic: Topic, clock: Column | None = None) -> DataFrame:
    """Returns the records, with their columns in PARSED, and in WHY the reason why they cannot be
    rows, or null. `clock` is the time that event times must not be far ahead of (`ahead`)."""
    from pyspark.sql import functions as F

    if topic.is_avro:
        found, reasons = _avro(records, topic)
    elif topic.ddl == VARIANT:
        found, reasons = _variant(records)
    else:
        found, reasons = _json(records, topic)
    null = F.when(F.col("value").isNull(), F.lit("the value is null"))
    why = F.coalesce(null, *reasons, *_time_reasons(found, topic, clock))
    return _expected(found.withColumn(WHY, why), topic)


def _expected(found: DataFrame, topic: Topic) -> DataFrame:
    """Applies the rules of the topic and adds broken ones to WHY; rules name the columns of the
    rows as they are."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    if not topic.expect:
        return found
    columns = [F.col(PARSED)[name].alias(name) for name in _columns(found)]
    rows = found.select(F.struct("*").alias(WHOLE), *columns)
    rules = [_broken(rows, one) for one in topic.expect]
    try:
        asked = rows.select(WHOLE, F.coalesce(*rules, F.lit(None)).alias(BROKEN))
    except AnalysisException as failure:
        raise PipelineError(
            f"Topic {topic.name}: expect= does not fit the schema: {innermost(str(failure))}."
        ) from None
    whole = asked.select(f"{WHOLE}.*", BROKEN)
    return whole.withColumn(WHY, F.coalesce(WHY, BROKEN)).drop(BROKEN)


def _broken(rows: DataFrame, one: Expectation) -> Column:
    """Returns the reason of a row that breaks a rule; null for the others."""
    from pyspark.sql import functions as F

    holds = F.coalesce(F.expr(f"({one.rule})").cast("boolean"), F.lit(False))
    tried = without_errors(rows, holds)
    raised = F.when(tried.isNull(), F.lit(one.why_raised))
    return F.coalesce(raised, F.when(~tried, F.lit(one.why)))


def without_errors(rows: DataFrame, value: Column) -> Column:
    """The value, or null where computing it raises an error: what Spark's `try_add` is made of."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = rows.sparkSession._jvm
    made = jvm.org.apache.spark.sql.classic.ExpressionUtils
    whole: Any = value
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(made.expression(whole._jc))
    return ClassicColumn(made.column(tried))


def _read_once(value: Column) -> Column:
    """The same value, which the optimizer leaves where it is: it would put the reading of it into
    each reason that looks at it, 17 times for a page view, and each would be done."""
    from pyspark.sql import functions as F

    return F.when(F.spark_partition_id() >= 0, value)  # always; but not to the optimizer


def _json(records: DataFrame, topic: Topic) -> tuple[DataFrame, list[Column]]:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    schema, model = schema_of(topic), rules_of(topic.schema)
    read = exact.read_as(schema)
    assert isinstance(read, StructType)
    corrupt = StructField(CORRUPT, StringType())
    wanted = StructType([*model_checks.fields_in_json(read, model), corrupt])
    text = F.col("value").cast("string")
    found = records.withColumn(READ, _read_once(F.from_json(text, wanted, JSON)))
    if model.names:
        renamed = model_checks.renamed(F.col(READ), read, model, CORRUPT)
        found = found.withColumn(READ, _read_once(renamed))
    value = F.col(READ)
    if exact.is_plain(schema):
        found = found.withColumn(PARSED, value).drop(READ)
        value = F.col(PARSED)
    else:
        typed = F.struct(*exact.columns(value, schema, topic.unit))
        found = found.withColumn(PARSED, _read_once(typed))
    reasons = [
        F.when(~F.is_valid_utf8(text), F.lit(NO_TEXT)),
        # Spark would take the first of a list of objects and drop the others.
        F.when(strict.is_list(text), F.lit("the value is a list, not an object")),
        F.when(value.isNull() | value[CORRUPT].isNotNull(), F.lit(MISFIT)),
        F.when(~strict.is_one_object(text), F.lit(MORE)),
        strict.half_pair(text),
    ]
    reasons += strict.reasons(value, F.col(PARSED), schema, topic.unit)
    if exact.uses_variant(schema):
        reasons.append(kept_numbers.lost(text))
    reasons += model_checks.reasons(F.col(PARSED), text, model)
    if not model.defaults:
        return found, reasons
    # A default need not keep the rules of its field, so these look at what was read.
    why = F.coalesce(*reasons)
    whole = model_checks.with_defaults(F.col(PARSED), text, schema, model, topic.unit)
    return found.withColumns({WHY: why, PARSED: whole}), [F.col(WHY)]


def _variant(records: DataFrame) -> tuple[DataFrame, list[Column]]:
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    value = F.try_parse_json(text)
    found = records.withColumn(PARSED, _read_once(F.struct(value.alias("value"))))
    return found, [
        F.when(~F.is_valid_utf8(text), F.lit(NO_TEXT)),
        F.when(F.col(PARSED)["value"].isNull(), F.lit("the value is not JSON")),
        F.when(~strict.is_one_value(text), F.lit(MORE)),
        strict.half_pair(text),
        kept_numbers.lost(text),
    ]


def _avro(records: DataFrame, topic: Topic) -> tuple[DataFrame, list[Column]]:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    assert topic.ddl is not None
    value, reasons = F.col("value"), []
    if topic.format == "confluent-avro":
        size = F.length("value")
        header = F.hex(F.substring("value", 1, 1)) == "00"
        reasons.append(
            F.when(
                ~header | (size < WIRE_HEADER_BYTES),
                F.lit('the value does not begin with Confluent\'s header; is it format="avro"?'),
            )
        )
        value = F.substring(value, WIRE_HEADER_BYTES + 1, 2**31 - 1)
    try:
        read = from_avro(value, enveloped(topic.ddl), {"mode": "PERMISSIVE"})["value"]
        found = records.withColumn(PARSED, _read_once(read))
    except PySparkException as failure:
        raise PipelineError(
            f"Topic {topic.name}: Spark cannot read the Avro schema: {failure}"
        ) from None
    unread = F.lit("the value is not Avro of the schema")
    return found, [*reasons, F.when(F.col(PARSED).isNull(), unread)]


def _time_reasons(found: DataFrame, topic: Topic, clock: Column | None) -> list[Column]:
    from pyspark.sql import functions as F

    name = topic.event_time
    if name is None:
        return []
    if name not in _columns(found):
        raise PipelineError(f"Topic {topic.name}: the schema has no column {name}.")
    time = F.col(PARSED)[name].cast("timestamp")
    limit = topic.ahead
    return [
        *([] if limit is None else [ahead.reason(name, time, limit, clock)]),
        # Spark's windows would silently leave it out.
        F.when(time.isNull(), F.lit(f"the event time {name} is missing")),
        F.when(time < F.timestamp_millis(F.lit(0)), F.lit(f"{name} is before 1970")),
    ]


def _columns(found: DataFrame) -> list[str]:
    names: list[str] = found.schema[PARSED].dataType.names
    return [name for name in names if name != CORRUPT]


def good(
    found: DataFrame,
    topic: Topic,
    beside: Mapping[str, str] | None = None,
    *,
    counted: str | None = None,
    watermark: bool = True,
    late: Column | None = None,
) -> DataFrame:
    """The rows that the function gets; `beside` names columns of the record to have beside them.
    How many records are bad, how many there were, and how many of the good ones are `late` and
    left out, can be asked of a batch that is done by the name `counted`."""
    from pyspark.sql import functions as F

    columns = [F.col(PARSED)[name].alias(name) for name in _columns(found)]
    if topic.record:
        columns.append(F.struct(*RECORD).alias("record"))
    columns += [F.col(source).alias(name) for name, source in (beside or {}).items()]
    if counted is None:
        rows = found.where(F.col(WHY).isNull()).select(*columns)
    else:
        # Only what is needed goes past the counting, which copies it.
        is_late = F.lit(False) if late is None else F.col(WHY).isNull() & late
        counts = (
            F.count(WHY).alias("bad"),
            F.count(F.lit(1)).alias("seen"),
            F.count(F.when(F.col(LATE), 1)).alias("late"),
        )
        chosen = found.select(WHY, is_late.alias(LATE), *columns).observe(counted, *counts)
        rows = chosen.where(F.col(WHY).isNull() & ~F.col(LATE)).drop(WHY, LATE)
    if watermark and topic.event_time is not None and topic.late is not None:
        rows = watermarked(rows, topic.event_time, topic.late)
    return rows


def reason(found: DataFrame) -> Column:
    """WHY, for people: which field of a value does not fit is looked for only here, where the rows
    are few, as it takes a reading of each field."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    kind = found.schema[PARSED].dataType
    assert isinstance(kind, StructType)
    fields = StructType([one for one in kind.fields if one.name != CORRUPT])
    named = strict.misfit(F.col("value").cast("string"), fields, JSON, CORRUPT)
    return F.when(F.col(WHY) == MISFIT, named).otherwise(F.col(WHY))


def bad(
    found: DataFrame, pipeline: Pipeline, topic_ids: Mapping[str, str], limit: int
) -> DataFrame:
    """Dead letters as Spark's Kafka sink takes them: the whole record, and why and from where. One
    of more than `limit` bytes is cut (`letter_size`)."""
    from pyspark.sql import functions as F

    said = {
        names.DEAD_ERROR: F.lit("headrace.pipelines.BadRecord"),
        names.DEAD_MESSAGE: letter_size.shortened(reason(found)),
        names.DEAD_ATTEMPTS: F.lit("1"),
        names.DEAD_TOPIC: F.col("topic"),
        names.DEAD_PARTITION: F.col("partition").cast("string"),
        names.DEAD_OFFSET: F.col("offset").cast("string"),
        names.DEAD_GROUP: F.lit(f"pipeline.{pipeline.name}"),
        names.MESSAGE_ID: message_id(topic_ids),
    }
    none = F.lit(None).cast("array<struct<key: string, value: binary>>")
    own = with_headers(F.col("headers"), {})
    letter = letter_size.fitted(own, with_headers(none, said), limit)
    # The new topic comes last: Spark takes some mentions of a column behind it for the new one.
    return found.where(F.col(WHY).isNotNull()).select(
        *(column.alias(name) for name, column in letter.items()),
        F.lit(pipeline.dead_topic).alias("topic"),
    )


def message_id(
    topic_ids: Mapping[str, str], columns: tuple[str, ...] = ("topic", "partition", "offset")
) -> Column:
    """The id of a record by its place, as apps make it (`app/once/message_ids.py`): a topic that is
    created again counts its offsets from 0, so the id of the topic is a part of it. `columns`
    names the columns that have the place.
    """
    from pyspark.sql import functions as F

    record_id = F.concat_ws("/", *columns)
    if not topic_ids:
        return record_id
    by_name = F.create_map(*(F.lit(text) for pair in topic_ids.items() for text in pair))
    behind = F.concat(F.lit("@"), by_name[F.col(columns[0])])
    return F.concat(record_id, F.coalesce(behind, F.lit("")))  # a topic may come while it runs


def with_headers(own: Column, added: dict[str, Column]) -> Column:
    """A record's headers, and more behind them."""
    from pyspark.sql import functions as F

    none = F.expr("CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)")
    if not added:
        return F.coalesce(own, none)
    more = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in added.items()
        )
    )
    return F.concat(F.coalesce(own, none), more)
