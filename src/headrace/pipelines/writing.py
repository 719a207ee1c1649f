"""Into tables: append once per batch, upsert by key; and onto the console.

A batch may be written twice, when a process was killed after writing and before its checkpoint.
Delta remembers the last batch of each stream (txnAppId, txnVersion) and leaves a second append out;
a second MERGE of the same rows changes nothing; Parquet's file sink keeps its own list of batches,
`_spark_metadata`, which only Spark's readers respect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Console, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIEW = "headrace_batch"

Say = Callable[[str], None]


def merge_statement(table: Table, place: str, view: str = VIEW) -> str:
    """Spark SQL: rows of `view` into the Delta table at `place`, one per key. Knows no Spark."""
    same = " AND ".join(f"t.{_quoted(key)} <=> s.{_quoted(key)}" for key in table.keys)
    newer = ""
    if table.newest is not None:
        column = _quoted(table.newest)
        newer = f" AND (t.{column} IS NULL OR s.{column} >= t.{column})"
    return (
        f"MERGE INTO delta.{_quoted(place)} t USING {view} s ON {same} "
        f"WHEN MATCHED{newer} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def append(rows: DataFrame, table: Table, place: str, once: tuple[str, int] | None) -> None:
    """`once` is the stream's id and the batch's number; the same again writes nothing."""
    writer = rows.write.format(table.format).mode("append")
    if table.partition_by:
        writer = writer.partitionBy(*table.partition_by)
    if once is not None:
        writer = writer.option("txnAppId", once[0]).option("txnVersion", once[1])
    writer.save(place)


def upsert(rows: DataFrame, table: Table, place: str) -> None:
    empty = rows.limit(0).write.format("delta").mode("ignore")
    if table.partition_by:
        empty = empty.partitionBy(*table.partition_by)
    empty.save(place)
    _newest(rows, table).createOrReplaceTempView(VIEW)
    rows.sparkSession.sql(merge_statement(table, place))


def _newest(rows: DataFrame, table: Table) -> DataFrame:
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
