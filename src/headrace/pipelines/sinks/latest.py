"""Which of two rows of a key is newer: within a batch, and beside the row that a table holds.

Both must be decided alike, or a table depends on how records fell into batches. So the order is a
total one: by the column that the pipeline names; if that is equal, by partition and offset of the
record, as far as they are known, and by the other columns of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RANK = "_headrace_rank"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(slots=True)
class ByColumns:
    """The greatest of these columns, compared from the first on; null is the least."""

    columns: tuple[str, ...]

    def of_each_key(self, rows: DataFrame, keys: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F

        first = [F.col(quoted(name)).desc_nulls_last() for name in self.columns]
        others = [name for name in rows.columns if name not in (*self.columns, *keys)]
        rest = (
            F.to_json(F.struct(*(F.col(quoted(name)) for name in others))) if others else F.lit(0)
        )
        return _first(rows, keys, [*first, rest.desc()])

    def is_newer(self) -> str:
        """Returns SQL: whether the row `s` may replace `t`. The same row again may."""
        s, t = (", ".join(f"{x}.{quoted(name)}" for name in self.columns) for x in "st")
        return f"struct({s}) >= struct({t})"


@dataclass(slots=True)
class ByOffset:
    """The last record of its partition wins. A key is in two partitions if partitions were added:
    then the time decides, and after it the number of the partition."""

    partition: str
    offset: str
    time: str

    def of_each_key(self, rows: DataFrame, keys: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F

        place, time = F.col(self.partition), F.col(self.time)
        last = _first(rows, [*keys, self.partition], [F.col(self.offset).desc()])
        return _first(last, keys, [time.desc(), place.desc()])

    def is_newer(self) -> str:
        p, o, at = self.partition, self.offset, self.time
        return (
            f"CASE WHEN s.{p} = t.{p} THEN s.{o} >= t.{o} "
            f"ELSE struct(s.{at}, s.{p}) > struct(t.{at}, t.{p}) END"
        )


Latest = ByColumns | ByOffset


def _first(rows: DataFrame, keys: Sequence[str], order: list[Column]) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    window = Window.partitionBy(*(F.col(quoted(key)) for key in keys)).orderBy(*order)
    return rows.withColumn(RANK, F.row_number().over(window)).where(f"{RANK} = 1").drop(RANK)
