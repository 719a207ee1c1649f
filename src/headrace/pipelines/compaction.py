"""Compaction of a stream's table between its batches: few files in place of many small ones.

A batch writes files of its own, however few its rows are. After a batch has been written, before it
is committed to the checkpoint, and so never while one writes:

- a partition of a Delta table with more than MANY_FILES small files is compacted soon (it is looked
  at every LOOK_EVERY batches);
- every so many batches (`Table(compact=)`, `--compact-every`) each partition with SWEEP_FILES;
- at most once in VACUUM_EVERY_S the files are deleted that only versions older than KEEP_HOURS
need.

`deltalake` does it in this process where it understands the table, Spark's own commands where not:
Iceberg, tables at an address, features that only Spark keeps. Spark compacts a whole table and is
asked only every SPARK_LOOKS_EVERY batches, as asking is a job of its own. Compaction is one commit
of the table, or none: a kill leaves files that no version names, and a later vacuum removes them;
the batch is then repeated as after any kill. A stream that shares the table with another appending
process compacts only while it can lock the table for itself. A failure is reported, and the stream
goes on.

The time between two batches is bounded by what is begun: no partition with more than MOST_BYTES or
MOST_FILES of small files, and no further partition after WITHIN_S.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Pipeline, Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.console_lines import Say
from headrace.pipelines.stream.folder import Folder, TableLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.shipped.delta_without_spark import DeltaFiles, Partition, SmallFiles

EVERY_BATCHES = 100
MANY_FILES = 40
SWEEP_FILES = 5
# Two small files always fit into one of the target's size, so compaction makes progress. A small
# target bounds how often the same rows are written again: files of its size are left alone.
SMALL_BYTES = 16 * 2**20
TARGET_BYTES = 32 * 2**20
# About ten seconds of reading and writing on one core.
MOST_BYTES = 512 * 2**20
MOST_FILES = 10_000
WITHIN_S = 20.0
# Readers of older versions, and streams that read the table, have a week: Delta's own default.
KEEP_HOURS = 168
VACUUM_EVERY_S = 3600.0
# Looking reads a Delta table's log, of which a stream soon has tens of thousands of files.
LOOK_EVERY = 5
SPARK_LOOKS_EVERY = 20
# A stream whose compaction failed tries again after so many batches.
AGAIN_AFTER = 20


def due(
    parts: Mapping[Partition, SmallFiles], left: Mapping[Partition, int], *, least: int
) -> list[Partition]:
    """Returns partitions with at least `least` more small files than the last compaction `left`
    there, most files first. Uses neither Spark nor deltalake.
    """
    more = {part: files.count - left.get(part, 0) for part, files in parts.items()}
    chosen = [part for part, count in more.items() if count >= least]
    return sorted(chosen, key=lambda part: -more[part])


def for_sink(
    pipeline: Pipeline,
    location: str,
    *,
    spark: SparkSession,
    folder: Folder,
    lock: TableLock | None,
    note: Say,
    every: int | None,
) -> Compaction | None:
    """Returns None if the sink is not a Delta or Iceberg table, or compaction is off. `every`
    overrides the table's own setting."""
    sink = pipeline.sink
    if not isinstance(sink, Table) or sink.format == "parquet" or lock is None:
        return None
    declared = EVERY_BATCHES if sink.compact is None else sink.compact
    batches = declared if every is None else every
    if batches == 0:
        return None
    return Compaction(
        table=sink,
        location=location,
        spark=spark,
        folder=folder,
        lock=lock,
        note=note,
        every=batches,
    )


@dataclass(slots=True, kw_only=True)
class Compaction:
    """Compaction of the table that one stream writes. Moments are seconds: `clock` measures how
    long something takes, `wall` when it was."""

    table: Table
    location: str
    spark: SparkSession
    folder: Folder
    lock: TableLock
    note: Say
    every: int
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    # Small files that the last compaction of a partition could not join; () is a whole table.
    left: dict[Partition, int] = field(default_factory=dict)
    too_large: set[Partition] = field(default_factory=set)  # already reported
    not_before: int = 0  # the number of a batch

    def after_batch(self, number: int) -> None:
        """Call when the batch of that number is in the table, and not yet in the checkpoint."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if number < self.not_before:
            return
        try:
            self._care(number)
        except (PipelineError, PySparkException, Py4JError, OSError) as failure:
            self.not_before = number + AGAIN_AFTER
            said = " ".join(str(failure).split("\n\tat ")[0].split())[:300]
            self.note(f"{self.table.name} could not be compacted, the stream goes on: {said}")

    def _care(self, number: int) -> None:
        from headrace.pipelines.shipped import delta_without_spark

        sweep = number % self.every == self.every - 1
        if not sweep and number % LOOK_EVERY != LOOK_EVERY - 1:
            return
        if self.table.format == "delta":
            files = delta_without_spark.found(self.location)
            if files is not None and files.may_be_written:
                self._care_without_spark(files, sweep=sweep)
                return
        if sweep or number % SPARK_LOOKS_EVERY == SPARK_LOOKS_EVERY - 1:
            self._care_with_spark(sweep=sweep)

    # ---- by deltalake

    def _care_without_spark(self, files: DeltaFiles, *, sweep: bool) -> None:
        from headrace.pipelines.shipped import delta_without_spark

        parts = files.small_files(SMALL_BYTES)
        chosen = due(parts, self.left, least=SWEEP_FILES if sweep else MANY_FILES + 1)
        bounded = [part for part in chosen if self._is_bounded(part, parts[part])]
        vacuum = self._vacuum_is_due()
        if not bounded and not vacuum:
            return
        with self.lock.alone_for_now() as alone:
            if not alone:  # the other process may compact it, or it is done next time
                return
            # The table may now have files or features of another writer that deltalake does not
            # read right.
            again = delta_without_spark.found(self.location)
            if again is None or not again.may_be_written:
                return
            files = again
            if bounded:
                self._compact(files, bounded, before=sum(one.count for one in parts.values()))
            if vacuum:
                self._tell_of_vacuum(files.vacuum(KEEP_HOURS))

    def _is_bounded(self, part: Partition, small: SmallFiles) -> bool:
        if small.count <= MOST_FILES and small.size_bytes <= MOST_BYTES:
            return True
        if part not in self.too_large:
            self.too_large.add(part)
            self.note(
                f"{self.table.name} has {small.count:,} small files ({small.size_bytes / 1e6:,.0f} "
                "MB) in a partition, too many to compact between two batches: stop the stream and "
                f"run `headrace lake compact {self.table.name}`"
            )
        return False

    def _compact(self, files: DeltaFiles, chosen: list[Partition], *, before: int) -> None:
        began = self.clock()
        rewritten = 0
        done: list[Partition] = []
        for part in chosen:
            if done and self.clock() - began > WITHIN_S:
                break
            rewritten += files.compact_partition(part, target_bytes=TARGET_BYTES)
            done.append(part)
        parts = files.small_files(SMALL_BYTES)
        for part in done:
            self.left[part] = parts[part].count if part in parts else 0
        after = sum(one.count for one in parts.values())
        self._tell_of_compaction(rewritten, before, after, self.clock() - began)

    # ---- by Spark

    def _care_with_spark(self, *, sweep: bool) -> None:
        from headrace.pipelines.shipped import lake_tables

        before = lake_tables.files(self.spark, self.location)
        more = before - self.left.get((), 0)
        compact = more >= (SWEEP_FILES if sweep else MANY_FILES + 1)
        vacuum = self._vacuum_is_due()
        if not compact and not vacuum:
            return
        with self.lock.alone_for_now() as alone:
            if not alone and self.lock.file is not None:
                return
            if compact:
                began = self.clock()
                sizes = lake_tables.FileSizes(SMALL_BYTES, TARGET_BYTES)
                done = lake_tables.compact(
                    self.spark, self.location, sizes=sizes, min_files=SWEEP_FILES
                )
                self.left[()] = done.files_after
                rewritten = max(0, before - done.files_after)
                took_s = self.clock() - began
                self._tell_of_compaction(rewritten, before, done.files_after, took_s)
            if vacuum:
                removed = lake_tables.forget(self.spark, self.location, hours=KEEP_HOURS)
                self._tell_of_vacuum(removed)

    # ---- what was done

    def _vacuum_is_due(self) -> bool:
        """The first one comes an hour after the first look."""
        last = self.folder.compaction().get("vacuumed_s")
        if not isinstance(last, int | float):
            self._add(vacuumed_s=self.wall())
            return False
        return self.wall() - last >= VACUUM_EVERY_S

    def _tell_of_compaction(self, rewritten: int, before: int, after: int, took_s: float) -> None:
        if rewritten:
            self.note(
                f"compacted {self.table.name}: {before:,} small files before, {after:,} now, "
                f"{took_s:.1f} s"
            )
        known = self.folder.compaction()
        self._add(
            compactions=int(known.get("compactions", 0)) + (1 if rewritten else 0),
            files_compacted=int(known.get("files_compacted", 0)) + rewritten,
            compaction_ms=int(known.get("compaction_ms", 0)) + int(took_s * 1000),
            small_files=after,
        )

    def _tell_of_vacuum(self, removed: int | None) -> None:
        """Reports a vacuum. None: Spark does not report how many files there were."""
        if removed:
            noun = "file" if removed == 1 else "files"
            self.note(
                f"vacuumed {self.table.name}: {removed:,} {noun} of versions older than "
                f"{KEEP_HOURS} hours"
            )
        known = self.folder.compaction()
        total = int(known.get("files_vacuumed", 0)) + (removed or 0)
        self._add(files_vacuumed=total, vacuumed_s=self.wall())

    def _add(self, **changed: Any) -> None:
        self.folder.keep_compaction({**self.folder.compaction(), **changed})
