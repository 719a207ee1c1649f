"""One way into every table: fit the table to the rows, then append them once or replace by key.

A batch may be written twice, when a process was killed after writing and before its checkpoint.
Delta remembers the last batch of each stream (txnAppId, txnVersion) and leaves a second append out;
Iceberg keeps what we write into the summary of its snapshots, which is looked at first; a second
MERGE of the same rows changes nothing. Into Parquet Spark's own file sink writes each batch, and
keeps a list of batches and their files, `_spark_metadata`, which only Spark's readers respect.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks import (
    delta_log,
    partition_texts,
    small_upserts,
    table_columns,
    topic_of_offsets,
)
from headrace.pipelines.sinks.console_lines import Once, Say
from headrace.pipelines.sinks.deleted_keys import DeletedKeys
from headrace.pipelines.sinks.latest import Latest
from headrace.pipelines.sinks.table_memory import TableMemory
from headrace.pipelines.sinks.table_versions import last_version
from headrace.pipelines.sinks.tables import iceberg_name, is_delta, is_there, quoted
from headrace.pipelines.sinks.touched import Touched, touched, touched_by
from headrace.pipelines.spark.session import settings_for_now

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

VIEW = "headrace_batch"
# A column that marks a row which deletes the row of its key.
DELETED = "_headrace_deleted"
# Names in the summaries of Iceberg's snapshots.
STREAM, BATCH = "headrace-stream", "headrace-batch"
# Before a stream in a property of an Iceberg table: its last batch, when its snapshots are expired.
LAST_BATCH = "headrace.last-batch."
# Iceberg gives a column the wider type and reads older files; Delta, as we make it, does not.
WIDENED_BY_ICEBERG = (("int", "bigint"), ("float", "double"))
ANY_SCHEMA = "write.spark.accept-any-schema"
MAPPED = "'delta.columnMapping.mode' = 'name'"


@dataclass(slots=True)
class TableWriter:
    """Into a Delta or Iceberg table at `location`. `begin_anew` says what to do about a column that
    would change its type."""

    table: Table
    location: str
    note: Say
    begin_anew: str
    fitted: StructType | None = None  # rows like these fit; no need to look again
    told: set[str] = field(default_factory=set)
    few: bool = False  # the batch before had few rows
    stream: str = ""  # the one that writes
    deleted: DeletedKeys | None = None  # where rows are taken out of the table
    mark: str | None = None  # see `topic_of_offsets`; None if the table has it
    parted: tuple[str, ...] | None = None  # the table's partitions, when they are known

    def named(self, name: str) -> Table:
        return replace(self.table, name=name)

    def would_repeat(self, spark: SparkSession) -> bool:
        appends = not self.table.upserts
        return appends and "://" not in self.location and is_there(self.location)

    def memory(self, spark: SparkSession) -> TableMemory | None:
        """The table's id and the last batches of its streams; None if there is no table."""
        if self.table.format == "parquet":
            return parquet_memory(self.location, self.stream)
        found = self._of_log(spark)
        if found is not None:
            found.version = self.version(-1)
        return found

    def _of_log(self, spark: SparkSession) -> TableMemory | None:
        if self.table.format == "iceberg":
            name = iceberg_name(spark, self.location)
            return iceberg_memory(spark, name) if spark.catalog.tableExists(name) else None
        if not is_delta(spark, self.location):
            return None
        found = None if "://" in self.location else delta_log.read(self.location)
        return delta_memory(spark, self.location) if found is None else found

    def version(self, known: int) -> int:
        return -1 if self.table.format == "parquet" else last_version(self.location, known)

    def has_rows(self, spark: SparkSession) -> bool:
        if self.columns(spark) is None:
            return False
        return not spark.read.format(self.table.format).load(self.location).isEmpty()

    def write(self, rows: DataFrame, once: Once | None, latest: Latest | None = None) -> None:
        if self.table.format == "parquet":
            self._to_parquet(rows, once)
            return
        if self.table.format == "iceberg":
            self._append_to_iceberg(self.fit(rows), once)
        elif self.table.upserts:
            self._upsert(rows, once, latest)
        else:
            self._append_to_delta(self.fit(rows), once)

    # ---- the table's columns

    def columns(self, spark: SparkSession) -> StructType | None:
        """Returns the table's columns; None if there is no table yet."""
        if self.table.format == "iceberg":
            name = iceberg_name(spark, self.location)
            return spark.table(name).schema if spark.catalog.tableExists(name) else None
        if not is_delta(spark, self.location):
            return None
        return spark.read.format("delta").load(self.location).schema

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
        cast = _cast(rows, known)
        if cast is rows and not gone.fields and not widened:
            self.fitted = rows.schema
        nulls = {one.name: F.lit(None).cast(one.dataType) for one in gone.fields}
        return cast.withColumns(nulls)

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

            empty = rows.limit(0).writeTo(iceberg_name(spark, self.location)).using("iceberg")
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
            f"CREATE TABLE IF NOT EXISTS delta.{quoted(self.location)} ({_ddl(rows)}) USING delta"
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
            name = iceberg_name(spark, self.location)
            spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{ANY_SCHEMA}' = 'true')")
            return  # the append itself adds them
        if strange := table_columns.not_in_parquet(rows.schema):
            [row] = spark.sql(f"DESCRIBE DETAIL delta.{quoted(self.location)}").collect()
            if row["properties"].get("delta.columnMapping.mode") != "name":
                self._tell_of_mapping(strange)
                spark.sql(f"ALTER TABLE delta.{quoted(self.location)} SET TBLPROPERTIES ({MAPPED})")
        empty = spark.createDataFrame([], rows.schema.toNullable())
        added = empty.write.format("delta").mode("append").option("mergeSchema", "true")
        added.save(self.location)

    # ---- appended

    def _append_to_delta(self, rows: DataFrame, once: Once | None) -> None:
        writer = (
            partition_texts.checked(rows, self._as_partitioned(rows.sparkSession))
            .write.format("delta")
            .mode("append")
            .options(**self.table.options)
        )
        if self.table.partition_by:
            writer = writer.partitionBy(*self.table.partition_by)
        if once is not None:
            writer = writer.option("txnAppId", once[0]).option("txnVersion", once[1])
        writer.save(self.location)

    def _as_partitioned(self, spark: SparkSession) -> Table:
        """The table with the partitions that it has: Delta goes on with them, whatever
        `partition_by=` says by now."""
        if self.parted is None:
            if not is_delta(spark, self.location):
                return self.table
            self.parted = delta_partitions(spark, self.location)
        return replace(self.table, partition_by=self.parted)

    def _to_parquet(self, rows: DataFrame, once: Once | None) -> None:
        rows = partition_texts.checked(rows, self.table)
        if once is not None:
            if self.fitted != rows.schema:
                self.must_fit_parquet(rows)
                self.fitted = rows.schema
            self._batch_to_parquet(rows, once[1])
            return
        writer = rows.write.format("parquet").mode("append").options(**self.table.options)
        if self.table.partition_by:
            writer = writer.partitionBy(*self.table.partition_by)
        writer.save(self.location)

    def _batch_to_parquet(self, rows: DataFrame, number: int) -> None:
        """Gives a batch to the sink that Spark itself uses for streams of files. That sink leaves a
        number out that is in its list, without computing the rows."""
        jvm: Any = rows.sparkSession._jvm
        scala = jvm.org.apache.spark.api.python.PythonUtils
        nothing = jvm.scala.Option.apply(None)
        source = jvm.org.apache.spark.sql.execution.datasources.DataSource(
            rows.sparkSession._jsparkSession,
            "parquet",
            scala.toSeq([]),
            nothing,
            scala.toSeq(list(self.table.partition_by)),
            nothing,
            scala.toScalaMap({**self.table.options, "path": self.location}),
            nothing,
        )
        append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        source.createSink(append).addBatch(number, rows._jdf)

    def must_fit_parquet(self, rows: DataFrame) -> None:
        """A folder of Parquet files has no columns of its own: each reader would take those of some
        file."""
        from pyspark.errors import AnalysisException

        if "://" in self.location or not is_there(self.location):
            return
        partition_texts.refuse_others(self.location, self.table, self.begin_anew)
        # A reader guesses the types of partitions from the names of folders: 7 is an INT.
        parts = self.table.partition_by
        now = rows.drop(*parts).schema
        try:
            known = rows.sparkSession.read.parquet(self.location).drop(*parts).schema
        except AnalysisException:  # no file yet
            return
        other = table_columns.conflicts(known, now) + table_columns.new(known, now)
        other += [f"no {one.name}" for one in table_columns.gone(known, now).fields]
        if other:
            raise PipelineError(
                f"A Parquet table keeps its columns, and the rows for {self.table.name} have "
                f"others ({', '.join(other)}): {self.begin_anew}"
            )

    def _append_to_iceberg(self, rows: DataFrame, once: Once | None) -> None:
        spark = rows.sparkSession
        name = iceberg_name(spark, self.location)
        # New columns are added behind the others; the order does not matter.
        options = {"mergeSchema": "true", "check-ordering": "false", **self.table.options}
        writer = rows.writeTo(name).options(**options)
        if once is not None:
            if last_in_iceberg(spark, name, once[0]) >= once[1]:
                return
            writer = writer.option(f"snapshot-property.{STREAM}", once[0])
            writer = writer.option(f"snapshot-property.{BATCH}", str(once[1]))
        writer.append()

    # ---- replaced by key

    def _upsert(self, rows: DataFrame, once: Once | None, latest: Latest | None) -> None:
        """The rows are used more than once, so they are kept meanwhile: in this process where few
        are expected, which takes one job of Spark instead of three, else by Spark."""
        keys = self.table.keys
        if missing := [key for key in keys if key not in rows.columns]:
            raise PipelineError(
                f"The rows for {self.table.name} have no column {', '.join(missing)}, which is its "
                f"key; they have {', '.join(rows.columns)}."
            )
        if latest is None and self._expects_few(rows):
            fetched = self._fetched(rows)
            if fetched is not None and self._upsert_few(fetched, rows.schema):
                return
            if fetched is not None:
                rows = rows.sparkSession.createDataFrame(fetched, rows.schema)
        chosen = rows if latest is None else latest.of_each_key(rows, keys)
        if self.deleted is not None and once is not None:
            chosen = self.deleted.without_older(chosen, once[1])
        kept = chosen.persist()
        try:
            partition_texts.refuse_nulls(kept, self._as_partitioned(kept.sparkSession))
            part = touched(kept, keys, self.table.partition_by)
            self.few = part.text_bytes <= small_upserts.MOST_TEXT_BYTES and (
                part.looked or not part.rows
            )
            if latest is None:
                self._refuse_twice(kept, part)
            fitted = self.fit(kept)
            if part.rows:  # else it only moves the watermark: no new version of the table for that
                if self.deleted is not None and once is not None:
                    self.deleted.remember(kept, once[1])
                self._merge(fitted, latest, part)
        finally:
            kept.unpersist()

    def _fetched(self, rows: DataFrame) -> pyarrow.Table | None:
        """Returns the rows in this process. None: they are many or long this time, and Spark gives
        its driver no more than `spark.driver.maxResultSize`."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return rows.toArrow()
        except (PySparkException, Py4JJavaError) as refusal:
            if "maxResultSize" not in str(refusal):
                raise
            return None

    def _expects_few(self, rows: DataFrame) -> bool:
        """Rows like those before, of which there were few, into a table that deltalake may
        write."""
        simple = DELETED not in rows.columns and not self.table.partition_by
        fitted = self.fitted is not None and self.fitted == rows.schema
        return self.few and simple and fitted and small_upserts.may_fit(self.location, rows.schema)

    def _upsert_few(self, rows: pyarrow.Table, schema: StructType) -> bool:
        """Upserts few rows. False: nothing was done, and Spark must do it."""
        keys = self.table.keys
        part = touched_by(rows, keys, [schema[key].dataType.simpleString() for key in keys])
        if not part.rows:
            return True
        if part.looked:
            self._refuse_twice_of(part.twice)
        return part.plain and small_upserts.merged(self.location, rows, keys, self.note)

    def _merge(self, rows: DataFrame, latest: Latest | None, part: Touched) -> None:
        keys, deletes = self.table.keys, DELETED in rows.columns
        simple = latest is None and not deletes and not self.table.partition_by
        fits = simple and small_upserts.fits(self.location, rows.schema, part)
        if fits and small_upserts.merged(self.location, rows.toArrow(), keys, self.note):
            return
        rows.createOrReplaceTempView(VIEW)
        statement = merge_statement(
            self.location,
            keys,
            [one for one in rows.columns if one != DELETED],
            newer=None if latest is None else latest.is_newer(),
            deletes=deletes,
            within=part.condition,
        )
        spark = rows.sparkSession
        with settings_for_now(spark, topic_of_offsets.settings(self.mark)):
            spark.sql(statement)
        self.mark = None

    def _refuse_twice(self, rows: DataFrame, part: Touched) -> None:
        """Refuses keys that come twice. MERGE would refuse them too, but not for keys that
        are new."""
        self._refuse_twice_of(part.twice if part.looked else self._key_that_comes_twice(rows))

    def _refuse_twice_of(self, again: str | None) -> None:
        if again is not None:
            raise PipelineError(
                f"A batch has two rows with the same key ({again}) for {self.table.name}: name the "
                "column that says which is newer with Table(..., newest=)."
            )

    def _key_that_comes_twice(self, rows: DataFrame) -> str | None:
        from pyspark.sql import functions as F

        keys = [F.col(quoted(key)) for key in self.table.keys]
        of_each = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("_headrace_rows"))
        most = of_each.orderBy(F.col("_headrace_rows").desc()).limit(1).collect()
        if not most or most[0]["_headrace_rows"] < 2:
            return None
        return ", ".join(f"{key} = {most[0][key]!r}" for key in self.table.keys)[:200]


def merge_statement(
    location: str,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    newer: str | None,
    deletes: bool,
    within: str | None = None,
) -> str:
    """Spark SQL: rows of VIEW into the Delta table at `location`, one per key; `within` holds for
    each row of the table that one of them may replace. Knows no Spark."""
    same = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
    if within is not None:
        same = f"{same} AND {within}"
    sets = ", ".join(f"t.{quoted(one)} = s.{quoted(one)}" for one in columns)
    names = ", ".join(quoted(one) for one in columns)
    values = ", ".join(f"s.{quoted(one)}" for one in columns)
    matched = "WHEN MATCHED" + (f" AND {newer}" if newer else "")
    deleted = f"{matched} AND s.{DELETED} THEN DELETE " if deletes else ""
    not_deleted = f" AND NOT s.{DELETED}" if deletes else ""
    return (
        f"MERGE INTO delta.{quoted(location)} t USING {VIEW} s ON {same} {deleted}"
        f"{matched} THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED{not_deleted} THEN INSERT ({names}) VALUES ({values})"
    )


def delta_memory(spark: SparkSession, location: str) -> TableMemory:
    """As Delta itself reads its log, wherever it is."""
    snapshot = _snapshot(spark, location)
    found = TableMemory(str(snapshot.metadata().id()))
    each = snapshot.transactions().iterator()
    while each.hasNext():
        pair = each.next()
        found.streams[str(pair._1())] = int(pair._2())
    return found


def delta_partitions(spark: SparkSession, location: str) -> tuple[str, ...]:
    """The columns by which a table is partitioned, as Delta's log names them."""
    each, found = _snapshot(spark, location).metadata().partitionColumns().iterator(), []
    while each.hasNext():
        found.append(str(each.next()))
    return tuple(found)


def _snapshot(spark: SparkSession, location: str) -> Any:
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(session, location)._2()


def iceberg_memory(spark: SparkSession, name: str) -> TableMemory:
    from pyspark.sql import functions as F

    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, name)
    found = TableMemory(str(table.uuid().toString()))
    kept = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    for key, batch in kept.items():
        if key.startswith(LAST_BATCH):
            found.streams[key.removeprefix(LAST_BATCH)] = int(batch)
    stream, batch = F.col("summary")[STREAM], F.col("summary")[BATCH].cast("long")
    named = spark.table(f"{name}.snapshots").where(stream.isNotNull())
    for row in named.groupBy(stream.alias("stream")).agg(F.max(batch).alias("batch")).collect():
        found.streams[row["stream"]] = max(found.streams.get(row["stream"], -1), int(row["batch"]))
    return found


def parquet_memory(location: str, stream: str) -> TableMemory | None:
    """Spark's file sink numbers the batches of whichever stream writes the folder. Files without
    its list were written by something else, such as `--history`."""
    if "://" in location:
        return None
    folder = Path(location)
    lists = {
        int(name): one
        for one in folder.glob("_spark_metadata/[0-9]*")
        if (name := one.name.partition(".")[0]).isdecimal()
    }
    if lists:
        first = _first_file(lists[min(lists)])
        return TableMemory(first, {stream: max(lists)}, knows_all=True)
    if next(folder.glob("**/*.parquet"), None) is None:
        return None
    return TableMemory("", {stream.rpartition(".")[0] + ".history": 0}, knows_all=True)


def _first_file(listed: Path) -> str:
    """The name of the first file that a list of the sink names, which has a random part; "" if it
    names none. Lists that are joined begin with the oldest one."""
    with listed.open(encoding="utf-8") as lines:
        next(lines, "")  # the version of the form
        first = next(lines, "").strip()
    return Path(str(json.loads(first)["path"])).name if first else ""


def last_in_iceberg(spark: SparkSession, name: str, stream: str) -> int:
    """Returns the last batch of a stream by the table, in its snapshots or, where those have been
    expired by us, in its properties; -1 for none.
    """
    from pyspark.sql import functions as F

    ours = spark.table(f"{name}.snapshots").where(F.col("summary")[STREAM] == stream)
    [(last,)] = ours.agg(F.max(F.col("summary")[BATCH].cast("long"))).collect()
    if last is not None:
        return int(last)
    kept = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    return int(kept.get(LAST_BATCH + stream, -1))


def _ddl(rows: DataFrame) -> str:
    """Returns DDL without NOT NULL, at any depth: the next rows may come from another function, and
    Delta refuses it within lists and maps."""
    return str(rows.schema.toNullable().toDDL())


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
