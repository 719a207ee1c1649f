"""Text in the columns of a table's partitions that Delta and Parquet would read as null.

They keep such a text as the name of a folder, and the name for null is that of an empty text too.
As a part of a key it would become one row with null, which is another key. Iceberg keeps both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from headrace.pipelines.declaration import Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.latest import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ_AS_NULL = ("", "__HIVE_DEFAULT_PARTITION__")


def of_folder(location: str) -> tuple[str, ...] | None:
    """Returns the columns by which a folder of Parquet files on this machine is partitioned; None
    if it has no files."""
    first = next(Path(location).glob("**/*.parquet"), None)
    if first is None:
        return None
    folders = first.relative_to(location).parent.parts
    return tuple(unquote(one.partition("=")[0]) for one in folders)


def refuse_others(location: str, table: Table, begin_anew: str) -> None:
    """Refuses to write a folder of Parquet files by other partitions than it has: Spark's reader
    takes the columns of the folders, or the rows beside them, for one table."""
    kept = of_folder(location)
    now = [one.lower() for one in table.partition_by]
    if kept is not None and [one.lower() for one in kept] != now:
        raise PipelineError(
            f"The Parquet table {table.name} is partitioned by {_listed(kept)}, not by "
            f"{_listed(table.partition_by)}, and a reader could not take both as one table: put "
            f"partition_by= back; or {begin_anew}"
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "no column"


def refuse_nulls(rows: DataFrame, table: Table) -> None:
    """Refuses such texts. Looks at rows that are kept meanwhile."""
    from pyspark.sql import functions as F

    texts = _texts(rows, table)
    if not texts:
        return
    nulls = [F.max(F.col(quoted(one)).isin(*READ_AS_NULL)).alias(one) for one in texts]
    [found] = rows.agg(*nulls).collect()
    if named := [one for one in texts if found[one]]:
        raise PipelineError(_why(table, ", ".join(named)))


def checked(rows: DataFrame, table: Table) -> DataFrame:
    """The rows; writing one whose partition would be read as null fails."""
    from pyspark.sql import functions as F

    made = {}
    for name in _texts(rows, table):
        text = F.col(quoted(name))
        wrong = F.raise_error(F.lit(_why(table, name)))
        made[name] = F.when(text.isin(*READ_AS_NULL), wrong).otherwise(text)
    return rows.withColumns(made) if made else rows


def _texts(rows: DataFrame, table: Table) -> list[str]:
    from pyspark.sql.types import StringType

    kinds = {one.name.lower(): one.dataType for one in rows.schema.fields}
    return [one for one in table.partition_by if isinstance(kinds.get(one.lower()), StringType)]


def _why(table: Table, named: str) -> str:
    return (
        f"A row for {table.name} has an empty text in {named}, by which the table is partitioned, "
        f"and {table.format.capitalize()} keeps that as null: replace the empty text in the "
        "function, or write to a new table and leave the column out of partition_by=."
    )
