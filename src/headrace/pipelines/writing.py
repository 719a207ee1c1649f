"""Into tables: append once per batch, upsert by key; and onto the console.

A batch may be written twice, when a process was killed after writing and before its checkpoint.
Delta remembers the last batch of each stream (txnAppId, txnVersion) and leaves a second append out;
Iceberg keeps what we write into the summary of its snapshots, which is looked at first; a second
MERGE of the same rows changes nothing; Parquet's file sink keeps its own list of batches,
`_spark_metadata`, which only Spark's readers respect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Console, Jdbc, Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.tables import iceberg_name, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "headrace_batch"
# In the summaries of Iceberg's snapshots.
STREAM, BATCH = "headrace-stream", "headrace-batch"
# Before a stream in a property of an Iceberg table: its last batch, when its snapshots are expired.
LAST_BATCH = "headrace.last-batch."

Say = Callable[[str], None]
# A stream's id and a batch's number: the same again writes nothing.
Once = tuple[str, int]


def merge_statement(table: Table, place: str, view: str = VIEW) -> str:
    """Spark SQL: rows of `view` into the Delta table at `place`, one per key. Knows no Spark."""
    same = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in table.keys)
    newer = ""
    if table.newest is not None:
        column = quoted(table.newest)
        newer = f" AND (t.{column} IS NULL OR s.{column} >= t.{column})"
    return (
        f"MERGE INTO delta.{quoted(place)} t USING {view} s ON {same} "
        f"WHEN MATCHED{newer} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def append(rows: DataFrame, table: Table, place: str, once: Once | None) -> None:
    if table.format == "iceberg":
        append_to_iceberg(rows, table, place, once)
        return
    writer = rows.write.format(table.format).mode("append").options(**table.options)
    if table.partition_by:
        writer = writer.partitionBy(*table.partition_by)
    if once is not None:
        writer = writer.option("txnAppId", once[0]).option("txnVersion", once[1])
    writer.save(place)


def append_to_iceberg(rows: DataFrame, table: Table, place: str, once: Once | None) -> None:
    from pyspark.sql import functions as F

    spark = rows.sparkSession
    name = iceberg_name(spark, place)
    if not spark.catalog.tableExists(name):
        empty = rows.limit(0).writeTo(name).using("iceberg")
        if table.partition_by:
            empty = empty.partitionedBy(*(F.col(column) for column in table.partition_by))
        empty.create()
    writer = rows.writeTo(name).options(**table.options)
    if once is not None:
        if last_in_iceberg(spark, name, once[0]) >= once[1]:
            return
        writer = writer.option(f"snapshot-property.{STREAM}", once[0])
        writer = writer.option(f"snapshot-property.{BATCH}", str(once[1]))
    writer.append()


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


def upsert(rows: DataFrame, table: Table, place: str, *, made: bool) -> None:
    """The rows are used more than once, so they are kept meanwhile. `made`: the table is there."""
    kept = newest(rows, table).persist()
    try:
        some = _refuse_twice(kept, table) if table.newest is None else not kept.isEmpty()
        if not made:
            empty = kept.limit(0).write.format("delta").mode("ignore")
            if table.partition_by:
                empty = empty.partitionBy(*table.partition_by)
            empty.save(place)
        if some:  # else it only moves the watermark: no new version of the table for that
            kept.createOrReplaceTempView(VIEW)
            kept.sparkSession.sql(merge_statement(table, place))
    finally:
        kept.unpersist()


def _refuse_twice(rows: DataFrame, table: Table) -> bool:
    """Says whether there are rows. MERGE would refuse it too, but not for keys that are new."""
    from pyspark.sql import functions as F

    of_each = rows.groupBy(*table.keys).agg(F.count(F.lit(1)).alias("_headrace_rows"))
    [(most,)] = of_each.agg(F.max("_headrace_rows")).collect()
    if most is not None and most > 1:
        raise PipelineError(
            f"A batch has two rows with the same key for {table.name}: name the column that says "
            "which is newer with Table(..., newest=)."
        )
    return most is not None


def newest(rows: DataFrame, table: Table | Jdbc) -> DataFrame:
    """Of each key the row with the greatest `newest`."""
    if table.newest is None:
        return rows
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    latest = Window.partitionBy(*table.keys).orderBy(F.col(table.newest).desc_nulls_last())
    ranked = rows.withColumn("_headrace_rank", F.row_number().over(latest))
    return ranked.where("_headrace_rank = 1").drop("_headrace_rank")


def show(rows: DataFrame, console: Console, say: Say) -> None:
    """The first rows as text, one line each, below the names of the columns."""
    found = rows.limit(console.rows + 1).collect()
    for line in lines(rows.columns, [list(row) for row in found], most=console.rows):
        say(line)


def lines(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, most: int) -> list[str]:
    """Padded columns; says if there are more rows than shown. Knows no Spark."""
    if not rows:
        return []
    texts = [list(columns), *([str(cell) for cell in row] for row in rows[:most])]
    widths = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    shown = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in texts]
    return [*shown, "..."] if len(rows) > most else shown
