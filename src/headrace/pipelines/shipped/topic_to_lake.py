"""Any topic into a lake table, Delta or Iceberg, whose columns grow with the values.

Each row has the record's key, place and time beside its columns (`_record_key` and its kin).
Appended, each record is one row, once. Upserted (Delta), the table is what a compacted topic means:
the last value of each key; a null value deletes. What cannot be a row goes to the topic of dead
letters. The columns are those of the table, and what a batch brings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.client.errors import ClientError
from headrace.client.topics import Topics
from headrace.pipelines import reading, tables, writing
from headrace.pipelines.declaration import NAME, VALUES, Pipeline, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.folder import Folder
from headrace.pipelines.running import Runner
from headrace.pipelines.shipped.evolution import (
    KIND,
    RECORD,
    RESERVED,
    conflicts,
    fields_in,
    grew,
    kinds,
    merged,
    seen_in,
)
from headrace.pipelines.shipped.lake_tables import is_delta
from headrace.pipelines.sinks import Writer
from headrace.pipelines.streaming import Streaming
from headrace.pipelines.tables import iceberg_name, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS = ("delta", "iceberg")
VIEW = "headrace_lake_batch"
DELETED = "_headrace_deleted"
NOTHING = "_headrace_nothing"  # a schema needs a column, and `{}` has none
# Fields of a table, those within columns too: values whose fields are made of names or numbers of
# things would make one of each.
MOST_FIELDS = 2000
# Iceberg gives a column the wider type and reads older files; Delta, as we make it, does not.
WIDENED_BY_ICEBERG = (("int", "bigint"), ("float", "double"))


@dataclass(slots=True, kw_only=True)
class Lake:
    """What goes where. `schema` pins the types of columns (DDL), or is the values' Avro schema."""

    topic: str
    table: str | None = None
    format: str = "delta"
    upsert: bool = False
    values: str = "json"
    schema: str | None = None
    per_batch: int | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise PipelineError(f"A lake table is one of {', '.join(FORMATS)}.")
        if self.upsert and self.format != "delta":
            raise PipelineError("Rows are replaced and deleted in Delta tables only.")
        if self.values not in VALUES:
            raise PipelineError(f"Values are one of {', '.join(VALUES)}.")
        if self.values != "json" and self.schema is None:
            raise PipelineError(f"Values in {self.values} need their Avro schema.")

    def pipeline(self) -> Pipeline:
        name = self.topic.replace(".", "-") + "-to-lake"
        if not NAME.fullmatch(name):
            raise PipelineError(f"{self.topic!r} is too long for the name of a pipeline.")
        table = self.table or self.topic.replace(".", "-")
        keyed: dict[str, Any] = {"mode": "upsert", "key": "_record_key"} if self.upsert else {}
        sink = Table(table, format=self.format, **keyed)
        source = Topic(self.topic, per_batch=self.per_batch)
        return Pipeline(name=name, source=source, sink=sink, function=lambda rows: rows)


@dataclass(slots=True, kw_only=True)
class LakeRunner(Runner):
    """Runs the pipeline of a lake; its batches are written by `LakeWriter`."""

    lake: Lake

    def _writer(self, stream: str) -> LakeWriter:
        return LakeWriter(
            sink=self.pipeline.sink,
            data=self.data,
            stream=stream,
            bootstrap=self.connection.bootstrap,
            source_options={**self._secured(), **self.pipeline.source.options},
            say=self.say,
            lake=self.lake,
        )

    def _streaming(self, spark: SparkSession, folder: Folder, identity: str) -> Streaming:
        streaming = Runner._streaming(self, spark, folder, identity)
        assert isinstance(streaming.writer, LakeWriter)
        streaming.writer.bury, streaming.writer.note = streaming.bury, self.note
        return streaming

    def _prepare_topics(self) -> None:
        Runner._prepare_topics(self)
        try:
            topics = Topics(self.connection)
            if self.pipeline.dead_topic not in topics.cluster.topics:
                topics.create(self.pipeline.dead_topic)
        except ClientError as failure:
            raise PipelineError(str(failure)) from failure


def _ignore(given: Any) -> None:
    """Until a stream says what is to be done."""


@dataclass(slots=True, kw_only=True)
class LakeWriter(Writer):
    """Writes batches of records as Spark's Kafka source gives them."""

    lake: Lake
    bury: Callable[[DataFrame], None] = _ignore
    note: Callable[[str], None] = _ignore
    told: set[str] = field(default_factory=set)  # names of fields that were said to be left out

    def write(self, rows: DataFrame, once: writing.Once | None) -> None:
        assert once is not None, "a stream's batches have numbers"
        records = (kinds(rows) if self.lake.values == "json" else rows).persist()
        try:
            table = self._columns_of_table(records.sparkSession)
            found = self._parsed(records, table)
            made = self._rows(found, table)
            if table is not None:
                widened = WIDENED_BY_ICEBERG if self.lake.format == "iceberg" else ()
                self._refuse(conflicts(table, made.schema, widened))
            self.bury(found)
            self._write(made, table, once)
        finally:
            records.unpersist()

    # ---- from records to rows

    def _columns_of_table(self, spark: SparkSession) -> StructType | None:
        """Without those of the record; None if there is no table yet."""
        from pyspark.sql.types import StructType

        if not self._is_there(spark):
            return None
        whole = tables.whole(spark, Table(self.place, format=self.lake.format), self.place).schema
        return StructType([one for one in whole.fields if one.name not in RECORD])

    def _parsed(self, records: DataFrame, table: StructType | None) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        lake = self.lake
        if lake.values != "json":
            source = Topic(lake.topic, schema=lake.schema, format=lake.values)
            return self._with_tombstones(reading.parsed(records, source))
        known = self._known(table)
        schema, left_out = merged(known, seen_in(records), RESERVED)
        if (wide := fields_in(schema)) > MOST_FIELDS:
            left_out = [f"{wide - fields_in(known):,} new ones beyond {MOST_FIELDS:,}"]
            schema = StructType(list(known.fields))
        self._tell(left_out)
        if not schema.fields:
            schema.add(StructField(NOTHING, StringType()))
        found = reading.parsed(records, Topic(lake.topic, schema=schema.toDDL()))
        # Spark would take the first of a list of objects and drop the others.
        no_object = F.col("value").isNotNull() & ~F.coalesce(
            F.col(KIND).startswith("OBJECT<"), F.lit(False)
        )
        why = F.when(no_object, F.lit("the value is no JSON object")).otherwise(F.col(reading.WHY))
        return self._with_tombstones(found.withColumn(reading.WHY, why))

    def _tell(self, left_out: list[str]) -> None:
        """Each once."""
        new = [name for name in left_out if name not in self.told]
        if new and len(self.told) < MOST_FIELDS:
            self.told.update(new)
            self.note(f"fields that cannot be columns beside others: {', '.join(new)}")

    def _known(self, table: StructType | None) -> StructType:
        """The table's own columns, and those that are pinned."""
        from pyspark.sql.types import StructType

        pinned = StructType([])
        if self.lake.schema is not None:
            pinned = reading.schema_of(Topic(self.lake.topic, schema=self.lake.schema))
        if table is None:
            return pinned
        self._refuse(conflicts(table, pinned))
        return merged(table, pinned)[0]

    def _refuse(self, wrong: list[str]) -> None:
        if wrong:
            raise PipelineError(
                f"A column keeps its type, and in the table {self.sink.name} {', '.join(wrong)}: "
                "fill another one with --table NAME, or begin anew with `headrace pipeline reset "
                f"{self.lake.pipeline().name} --table`."
            )

    def _with_tombstones(self, found: DataFrame) -> DataFrame:
        """For upserts a null value is good and a null key is not."""
        from pyspark.sql import functions as F

        if not self.lake.upsert:
            return found
        no_key = F.when(F.col("key").isNull(), F.lit("the key is null"))
        no_value = F.when(F.col("value").isNull(), F.lit(None))
        kept = no_value.otherwise(F.col(reading.WHY))
        return found.withColumn(reading.WHY, F.coalesce(no_key, kept))

    def _rows(self, found: DataFrame, table: StructType | None) -> DataFrame:
        """With a null in each column of the table that the values do not have any more."""
        from pyspark.sql import functions as F

        names = found.schema[reading.PARSED].dataType.names
        own = [one for one in names if one not in (reading.CORRUPT, NOTHING)]
        there = {one.lower() for one in own}
        gone = [one for one in (table.fields if table else []) if one.name.lower() not in there]
        columns = [F.col(reading.PARSED)[one].alias(one) for one in own]
        columns += [F.lit(None).cast(one.dataType).alias(one.name) for one in gone]
        columns += [F.col(source).alias(one) for one, source in RECORD.items()]
        if self.lake.upsert:
            columns.append(F.col("value").isNull().alias(DELETED))
        return found.where(F.col(reading.WHY).isNull()).select(*columns)

    # ---- from rows to the table

    def _is_there(self, spark: SparkSession) -> bool:
        if self.lake.format == "iceberg":
            return bool(spark.catalog.tableExists(iceberg_name(spark, self.place)))
        return is_delta(spark, self.place)

    def _write(self, rows: DataFrame, table: StructType | None, once: writing.Once) -> None:
        if self.lake.format == "iceberg":
            self._append_to_iceberg(rows, once)
            return
        if table is None:
            self._make_delta(rows)
        if self.lake.upsert:
            self._upsert(rows, table)
        else:
            writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
            writer.option("txnAppId", once[0]).option("txnVersion", once[1]).save(self.place)

    def _make_delta(self, rows: DataFrame) -> None:
        """With names of columns of our own in its files: JSON has names that Parquet has not."""
        rows.sparkSession.sql(
            f"CREATE TABLE IF NOT EXISTS delta.{quoted(self.place)} "
            f"({rows.drop(DELETED).schema.toDDL()}) "
            "USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        )

    def _upsert(self, rows: DataFrame, table: StructType | None) -> None:
        columns = [one for one in rows.columns if one != DELETED]
        own = rows.select(*(quoted(one) for one in columns if one not in RECORD))
        if table is not None and grew(table, own.schema):
            wider = own.limit(0).write.format("delta").mode("append")
            wider.option("mergeSchema", "true").save(self.place)
        _last_of_each_key(rows).createOrReplaceTempView(VIEW)
        rows.sparkSession.sql(merge_statement(columns, self.place))

    def _append_to_iceberg(self, rows: DataFrame, once: writing.Once) -> None:
        spark = rows.sparkSession
        name = iceberg_name(spark, self.place)
        if not spark.catalog.tableExists(name):
            empty = rows.limit(0).writeTo(name).using("iceberg")
            empty.tableProperty("write.spark.accept-any-schema", "true").create()
        if writing.last_in_iceberg(spark, name, once[0]) >= once[1]:
            return
        # New columns of a table stand behind ours of the record; the order says nothing.
        writer = rows.writeTo(name).options(**{"mergeSchema": "true", "check-ordering": "false"})
        writer = writer.option(f"snapshot-property.{writing.STREAM}", once[0])
        writer.option(f"snapshot-property.{writing.BATCH}", str(once[1])).append()


def _last_of_each_key(rows: DataFrame) -> DataFrame:
    """By the offset in its partition. A key lies in two of them if partitions were added: there the
    time decides."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = Window.partitionBy("_record_key", "_record_partition")
    key = Window.partitionBy("_record_key")
    for order in (
        place.orderBy(F.col("_record_offset").desc()),
        key.orderBy(F.col("_record_time").desc(), F.col("_record_partition").desc()),
    ):
        rows = rows.withColumn(VIEW, F.row_number().over(order)).where(f"{VIEW} = 1").drop(VIEW)
    return rows


def merge_statement(columns: list[str], place: str) -> str:
    """Spark SQL: the last record of each key into the table. Knows no Spark.

    A batch that is repeated finds its own offsets and changes nothing.
    """
    sets = ", ".join(f"t.{quoted(one)} = s.{quoted(one)}" for one in columns)
    names = ", ".join(quoted(one) for one in columns)
    values = ", ".join(f"s.{quoted(one)}" for one in columns)
    newer = (
        "CASE WHEN s._record_partition = t._record_partition "
        "THEN s._record_offset >= t._record_offset ELSE s._record_time >= t._record_time END"
    )
    return (
        f"MERGE INTO delta.{quoted(place)} t USING {VIEW} s ON t._record_key = s._record_key "
        f"WHEN MATCHED AND s.{DELETED} AND {newer} THEN DELETE "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s.{DELETED} THEN INSERT ({names}) VALUES ({values})"
    )
