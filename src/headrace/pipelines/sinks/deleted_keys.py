"""The keys that a stream deleted from its table, so that an older row of such a key does not come
back.

A key can be in two partitions of its topic, because partitions were added. Then a batch may bring
a value that is older than a tombstone of a batch before, and the table has no row any more to
compare it with. So the tombstones of each batch are kept, as Parquet files in a folder of the
stream's state, for REMEMBERED_DAYS after the batch that brought them. They are written before the
table: a batch that is repeated writes the same ones again.

Not kept: deletes of a stream before it had this memory, and anything after a reset, which reads the
topic from its beginning.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.sinks.latest import ByOffset, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Twice as long as topics commonly keep what a stream may still have to read.
REMEMBERED_DAYS = 14
# Folders of batches that are gathered into one.
MOST_FOLDERS = 40
WHEN = "_headrace_when"
BATCH, GATHERED = "batch-", "gathered-"
NEW = "_new"  # Spark's readers pass over names that begin so


@dataclass(slots=True)
class DeletedKeys:
    """`folder` is where Spark's executors can write, as the checkpoint is. `deleted` is the column
    that marks a row as a tombstone."""

    folder: Path
    latest: ByOffset
    keys: Sequence[str]
    deleted: str

    def without_older(self, rows: DataFrame, batch: int) -> DataFrame:
        """The rows, one per key, but for those that are older than a tombstone of a batch
        before."""
        from pyspark.sql import functions as F

        if len(self._folders()) > MOST_FOLDERS:
            self._gather(rows.sparkSession)
        # Those of the batch itself, if it is repeated, are about to be replaced.
        folders = [one for one in self._folders() if one.name != f"{BATCH}{batch}"]
        if not folders:
            return rows
        same = " AND ".join(f"s.{quoted(key)} = t.{quoted(key)}" for key in self.keys)
        older = f"NOT ({self.latest.is_newer()})"
        known = self._known(rows.sparkSession, folders)
        return rows.alias("s").join(known.alias("t"), F.expr(f"{same} AND {older}"), "left_anti")

    def remember(self, rows: DataFrame, batch: int) -> None:
        """The tombstones among the rows of a batch; the same batch again replaces them."""
        from pyspark.sql import functions as F

        gone = rows.where(F.col(self.deleted)).select(*self._columns)
        if gone.isEmpty():
            return
        gone = gone.withColumn(WHEN, F.current_timestamp())
        place = self.folder / f"{BATCH}{batch}"
        gone.coalesce(1).write.mode("overwrite").parquet(str(place))

    @property
    def _columns(self) -> list[str]:
        place = (self.latest.partition, self.latest.offset, self.latest.time)
        return [*self.keys, *place]

    def _folders(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [one for one in self.folder.iterdir() if one.name.startswith((BATCH, GATHERED))]

    def _known(self, spark: SparkSession, folders: Sequence[Path]) -> DataFrame:
        from pyspark.sql import functions as F

        since = F.current_timestamp() - F.expr(f"INTERVAL {REMEMBERED_DAYS} DAYS")
        return spark.read.parquet(*map(str, folders)).where(F.col(WHEN) > since)

    def _gather(self, spark: SparkSession) -> None:
        """Gathers all into one folder. A kill on the way leaves some tombstones twice, which
        changes nothing."""
        new, folders = self.folder / NEW, self._folders()
        one_each = self.latest.of_each_key(self._known(spark, folders), self.keys)
        one_each.coalesce(1).write.mode("overwrite").parquet(str(new))
        new.rename(self.folder / f"{GATHERED}{uuid.uuid4().hex}")
        for one in folders:
            shutil.rmtree(one)
