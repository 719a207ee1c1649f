"""One way into every table: fit the table to the rows, then append them once or replace by key.

A batch may be written twice, when a process was killed after writing and before its checkpoint.
Delta remembers the last batch of each stream (txnAppId, txnVersion) and leaves a second append out;
Iceberg keeps what we write into the summary of its snapshots, which is looked at first; a second
MERGE of the same rows changes nothing. Parquet's file sink is Spark's own and keeps its own list of
batches, `_spark_metadata`, which only Spark's readers respect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.pipelines import table_columns
from headrace.pipelines.declaration import Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.latest import Latest
from headrace.pipelines.tables import iceberg_name, is_delta, is_there, quoted
from headrace.pipelines.writing import Once, Say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

VIEW = "headrace_batch"
# Of a row that takes the row of its key out of the table.
DELETED = "_headrace_deleted"
# In the summaries of Iceberg's snapshots.
STREAM, BATCH = "headrace-stream", "headrace-batch"
# Before a stream in a property of an Iceberg table: its last batch, when its snapshots are expired.
LAST_BATCH = "headrace.last-batch."
# Iceberg gives a column the wider type and reads older files; Delta, as we make it, does not.
WIDENED_BY_ICEBERG = (("int", "bigint"), ("float", "double"))
ANY_SCHEMA = "write.spark.accept-any-schema"
MAPPED = "'delta.columnMapping.mode' = 'name'"


@dataclass(slots=True)
class TableWriter:
    """Into a Delta or Iceberg table at `place`. `begin_anew` says what to do about a column that
    would change its type."""

    table: Table
    place: str
    note: Say
    begin_anew: str
    fitted: StructType | None = None  # rows like these fit; no need to look again
    told: set[str] = field(default_factory=set)

    def write(self, rows: DataFrame, once: Once | None, latest: Latest | None = None) -> None:
        if self.table.format == "parquet":
            self._to_parquet(rows)
            return
        if self.table.format == "iceberg":
            self._append_to_iceberg(self.fit(rows), once)
        elif self.table.upserts:
            self._upsert(rows, latest)
        else:
            self._append_to_delta(self.fit(rows), once)

    # ---- the table's columns

    def columns(self, spark: SparkSession) -> StructType | None:
        """None if there is no table yet."""
        if self.table.format == "iceberg":
            name = iceberg_name(spark, self.place)
            return spark.table(name).schema if spark.catalog.tableExists(name) else None
        if not is_delta(spark, self.place):
            return None
        return spark.read.format("delta").load(self.place).schema

    def fit(self, rows: DataFrame) -> DataFrame:
        """Makes the table or adds columns to it, and gives each row the table's columns."""
        from pyspark.sql import functions as F

        own = rows.drop(DELETED)
        if self.fitted is not None and self.fitted == rows.schema:
            return rows
        known = self.columns(rows.sparkSession)
        if known is None:
            self._make(own)
            self.fitted = rows.schema
            return rows
        iceberg = self.table.format == "iceberg"
        widened = WIDENED_BY_ICEBERG if iceberg else ()
        if wrong := table_columns.conflicts(known, own.schema, widened):
            raise PipelineError(
                f"A column keeps its type, and in the table {self.table.name} {', '.join(wrong)}: "
                f"{self.begin_anew}"
            )
        if new := table_columns.new(known, own.schema):
            self.note(f"new columns in {self.table.name}: {', '.join(new)}")
            self._widen(own)
        gone = table_columns.gone(known, own.schema)
        self._tell_of(gone)
        if not gone.fields and not widened:
            self.fitted = rows.schema
        nulls = {one.name: F.lit(None).cast(one.dataType) for one in gone.fields}
        return _cast(rows, known).withColumns(nulls)

    def _tell_of(self, gone: StructType) -> None:
        names = [one.name for one in gone.fields if one.name not in self.told]
        self.told.update(names)
        if names and not all(name.startswith("_record_") for name in names):
            self.note(
                f"rows for {self.table.name} have no {', '.join(names)} any more: null from now on"
            )

    def _make(self, rows: DataFrame) -> None:
        spark, table = rows.sparkSession, self.table
        if table.format == "iceberg":
            from pyspark.sql import functions as F

            empty = rows.limit(0).writeTo(iceberg_name(spark, self.place)).using("iceberg")
            if table.partition_by:
                empty = empty.partitionedBy(*(F.col(column) for column in table.partition_by))
            empty.tableProperty(ANY_SCHEMA, "true").create()
            return
        mapped = ""
        if strange := table_columns.not_in_parquet(rows.schema):
            mapped = f" TBLPROPERTIES ({MAPPED})"
            self._tell_of_mapping(strange)
        parts = ", ".join(quoted(column) for column in table.partition_by)
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.{quoted(self.place)} ({_ddl(rows)}) USING delta"
            + (f" PARTITIONED BY ({parts})" if parts else "")
            + mapped
        )

    def _tell_of_mapping(self, names: list[str]) -> None:
        shown = ", ".join(repr(name) for name in names[:5])
        self.note(
            f"{self.table.name} has names that Parquet cannot hold ({shown}), so it uses Delta's "
            "column mapping: read it with a reader that knows it, which the Python package "
            "deltalake does not"
        )

    def _widen(self, rows: DataFrame) -> None:
        spark = rows.sparkSession
        if self.table.format == "iceberg":
            name = iceberg_name(spark, self.place)
            spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{ANY_SCHEMA}' = 'true')")
            return  # the append itself adds them
        if strange := table_columns.not_in_parquet(rows.schema):
            [row] = spark.sql(f"DESCRIBE DETAIL delta.{quoted(self.place)}").collect()
            if row["properties"].get("delta.columnMapping.mode") != "name":
                self._tell_of_mapping(strange)
                spark.sql(f"ALTER TABLE delta.{quoted(self.place)} SET TBLPROPERTIES ({MAPPED})")
        empty = rows.limit(0).write.format("delta").mode("append")
        empty.option("mergeSchema", "true").save(self.place)

    # ---- appended

    def _append_to_delta(self, rows: DataFrame, once: Once | None) -> None:
        writer = rows.write.format("delta").mode("append").options(**self.table.options)
        if self.table.partition_by:
            writer = writer.partitionBy(*self.table.partition_by)
        if once is not None:
            writer = writer.option("txnAppId", once[0]).option("txnVersion", once[1])
        writer.save(self.place)

    def _to_parquet(self, rows: DataFrame) -> None:
        writer = rows.write.format("parquet").mode("append").options(**self.table.options)
        if self.table.partition_by:
            writer = writer.partitionBy(*self.table.partition_by)
        writer.save(self.place)

    def must_fit_parquet(self, rows: DataFrame) -> None:
        """A folder of Parquet files has no columns of its own: each reader would take those of some
        file."""
        from pyspark.errors import AnalysisException

        if "://" in self.place or not is_there(self.place):
            return
        try:
            known = rows.sparkSession.read.parquet(self.place).schema
        except AnalysisException:  # no file yet
            return
        other = table_columns.conflicts(known, rows.schema) + table_columns.new(known, rows.schema)
        other += [f"no {one.name}" for one in table_columns.gone(known, rows.schema).fields]
        if other:
            raise PipelineError(
                f"A Parquet table keeps its columns, and the rows for {self.table.name} have "
                f"others ({', '.join(other)}): {self.begin_anew}"
            )

    def _append_to_iceberg(self, rows: DataFrame, once: Once | None) -> None:
        spark = rows.sparkSession
        name = iceberg_name(spark, self.place)
        # New columns stand behind the others; the order says nothing.
        options = {"mergeSchema": "true", "check-ordering": "false", **self.table.options}
        writer = rows.writeTo(name).options(**options)
        if once is not None:
            if last_in_iceberg(spark, name, once[0]) >= once[1]:
                return
            writer = writer.option(f"snapshot-property.{STREAM}", once[0])
            writer = writer.option(f"snapshot-property.{BATCH}", str(once[1]))
        writer.append()

    # ---- replaced by key

    def _upsert(self, rows: DataFrame, latest: Latest | None) -> None:
        """The rows are used more than once, so they are kept meanwhile."""
        keys = self.table.keys
        if missing := [key for key in keys if key not in rows.columns]:
            raise PipelineError(
                f"The rows for {self.table.name} have no column {', '.join(missing)}, which is its "
                f"key; they have {', '.join(rows.columns)}."
            )
        chosen = rows if latest is None else latest.of_each_key(rows, keys)
        kept = chosen.persist()
        try:
            some = self._refuse_twice(kept) if latest is None else not kept.isEmpty()
            fitted = self.fit(kept)
            if some:  # else it only moves the watermark: no new version of the table for that
                fitted.createOrReplaceTempView(VIEW)
                columns = [one for one in fitted.columns if one != DELETED]
                statement = merge_statement(
                    self.place,
                    keys,
                    columns,
                    newer=None if latest is None else latest.is_newer(),
                    deletes=DELETED in rows.columns,
                )
                fitted.sparkSession.sql(statement)
        finally:
            kept.unpersist()

    def _refuse_twice(self, rows: DataFrame) -> bool:
        """Says whether there are rows. MERGE would refuse it too, but not for keys that are new."""
        from pyspark.sql import functions as F

        keys = [F.col(quoted(key)) for key in self.table.keys]
        of_each = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("_headrace_rows"))
        most = of_each.orderBy(F.col("_headrace_rows").desc()).limit(1).collect()
        if most and most[0]["_headrace_rows"] > 1:
            shown = ", ".join(f"{key} = {most[0][key]!r}" for key in self.table.keys)[:200]
            raise PipelineError(
                f"A batch has two rows with the same key ({shown}) for {self.table.name}: name the "
                "column that says which is newer with Table(..., newest=)."
            )
        return bool(most)


def merge_statement(
    place: str, keys: Sequence[str], columns: Sequence[str], *, newer: str | None, deletes: bool
) -> str:
    """Spark SQL: rows of VIEW into the Delta table at `place`, one per key. Knows no Spark."""
    same = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
    sets = ", ".join(f"t.{quoted(one)} = s.{quoted(one)}" for one in columns)
    names = ", ".join(quoted(one) for one in columns)
    values = ", ".join(f"s.{quoted(one)}" for one in columns)
    matched = "WHEN MATCHED" + (f" AND {newer}" if newer else "")
    deleted = f"{matched} AND s.{DELETED} THEN DELETE " if deletes else ""
    not_deleted = f" AND NOT s.{DELETED}" if deletes else ""
    return (
        f"MERGE INTO delta.{quoted(place)} t USING {VIEW} s ON {same} {deleted}"
        f"{matched} THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED{not_deleted} THEN INSERT ({names}) VALUES ({values})"
    )


def last_in_iceberg(spark: SparkSession, name: str, stream: str) -> int:
    """The last batch of a stream that the table tells of, in its snapshots or, where those have
    been expired by us, in its properties; -1 for none."""
    from pyspark.sql import functions as F

    ours = spark.table(f"{name}.snapshots").where(F.col("summary")[STREAM] == stream)
    [(last,)] = ours.agg(F.max(F.col("summary")[BATCH].cast("long"))).collect()
    if last is not None:
        return int(last)
    kept = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    return int(kept.get(LAST_BATCH + stream, -1))


def _ddl(rows: DataFrame) -> str:
    """Nothing is NOT NULL: the next rows may come from another function."""
    from pyspark.sql.types import StructField, StructType

    nullable = [StructField(one.name, one.dataType, True) for one in rows.schema.fields]
    return str(StructType(nullable).toDDL())


def _cast(rows: DataFrame, known: StructType) -> DataFrame:
    """Numbers in the wider type that their column has."""
    from pyspark.sql import functions as F

    kinds = {one.name.lower(): one.dataType for one in known.fields}
    wider = {
        one.name: F.col(quoted(one.name)).cast(kinds[one.name.lower()])
        for one in rows.schema.fields
        if one.name.lower() in kinds
        and (one.dataType.simpleString(), kinds[one.name.lower()].simpleString())
        in table_columns.WIDER
    }
    return rows.withColumns(wider) if wider else rows
