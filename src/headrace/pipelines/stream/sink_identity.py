"""Whether a checkpoint and a sink belong together, before and while a stream writes.

A checkpoint says which records are done, a sink holds what they became. If one of them is lost or
replaced, the result is silently wrong: a lost checkpoint writes all rows a second time, a lost
table goes on with the few rows that come, an older copy of a checkpoint has its batches left out as
known. A table knows how far it is: Delta by its transaction identifiers, Iceberg by the summary of
its snapshots, PostgreSQL by `headrace_batches`, Parquet by `_spark_metadata`. Its id is kept with
the checkpoint, and so is its version: a table that was restored from an older copy has fewer.

What does not fit is refused, with the ways out. A sink that replaces rows by key may be written
again from the beginning, unless state begins empty and records that made its rows are gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.declaration import Pipeline, Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.table_memory import TableMemory
from headrace.pipelines.sinks.writer import HISTORY, Writer, stream_prefix
from headrace.pipelines.stream.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where formats keep their log, below the table.
LOGS = ("_delta_log", "metadata")


@dataclass(slots=True, kw_only=True)
class SinkIdentity:
    """The sink of one stream, for as long as it runs."""

    pipeline: Pipeline
    folder: Folder
    writer: Writer
    spark: SparkSession
    known: bool = False  # the table has been seen, and has an id
    version: int = -1  # of the table, as far as it is known
    identifiers: set[str] = field(default_factory=set)  # what the table had when the run began
    log: tuple[int, int] | None = None  # the device and the number of the log's folder

    def begin(self) -> None:
        memory = self.writer.into.memory(self.spark)
        if not self.pipeline.sink.knows_batches:
            return
        must_belong(self.pipeline, self.folder, self.writer, memory)
        if memory is not None:
            self.identifiers = set(memory.streams)
            self._keep(memory)

    def refuse_partial(self, stateful: str | None, gone: Callable[[], str | None]) -> None:
        """Refuses to replace rows by smaller numbers: state begins empty, the table has rows, and
        not all of their records can be read again. `gone` says why not, None if all can."""
        begins = self.folder.last_planned() < 0 and not self.folder.has_written()
        if stateful is None or not begins or not self.pipeline.sink.upserts:
            return
        if self.folder.kept_with_identity("keeps_rows"):
            return
        if not self.writer.into.has_rows(self.spark):
            return
        if (why := gone()) is not None:
            name = self.pipeline.name
            raise PipelineError(
                f"{self.writer.location} has rows already, {name} begins with empty state "
                f"({stateful}), and {why}: numbers that are there would be replaced by those of a "
                f"part. Put {self.folder.state} back from a copy; or begin with an empty table "
                f"({_begin_empty(self.pipeline, self.writer)}); or let it replace them (`headrace "
                f"pipeline reset {name} --keep-rows`)."
            )

    def check(self) -> None:
        """Before a batch: Spark would create a table again that was removed meanwhile."""
        if self.log is not None and _log_of(self.writer.location) != self.log:
            raise PipelineError(
                f"{self.writer.location} was removed or replaced while {self.pipeline.name} wrote "
                f"to it. {ways_out(self.pipeline, self.writer)}"
            )

    def after_batch(self) -> None:
        """The first batch of a stream makes the table; each one changes it."""
        if not self.pipeline.sink.knows_batches:
            return
        if not self.known:
            memory = self.writer.into.memory(self.spark)
            if memory is not None:
                self._keep(memory)
        elif (now := self.writer.into.version(self.version)) > self.version:
            self._keep_version(now)

    def _keep(self, memory: TableMemory) -> None:
        self.folder.keep_with_identity(table=memory.id)
        self.known = bool(memory.id)
        self.log = _log_of(self.writer.location)
        self._keep_version(memory.version)

    def _keep_version(self, version: int) -> None:
        self.version = version
        if version >= 0:
            self.folder.keep_table_version(version)


def _log_of(location: str) -> tuple[int, int] | None:
    for name in LOGS:
        try:
            found = os.stat(Path(location) / name)
        except OSError:
            continue
        return found.st_dev, found.st_ino
    return None


def ways_out(pipeline: Pipeline, writer: Writer) -> str:
    """Returns the remedies for a lost table."""
    return (
        f"Put the table back from a copy; or start over ({_begin_empty(pipeline, writer)}), which "
        f"reads all that {pipeline.source.name} still holds; or give the pipeline another name and "
        "table."
    )


def ways_back(pipeline: Pipeline, folder: Folder, writer: Writer) -> str:
    """Returns the remedies for a lost checkpoint."""
    ways = (
        f"Put {folder.state} back from a copy; or begin with an empty table "
        f"({_begin_empty(pipeline, writer)}); or write to another table under another name"
    )
    if not pipeline.sink.knows_streams:
        return f"{ways}."
    return (
        f"{ways}; or, if they are other records, let it add to what is there (`headrace pipeline "
        f"reset {pipeline.name} --keep-rows`)."
    )


def _begin_empty(pipeline: Pipeline, writer: Writer) -> str:
    reset = f"headrace pipeline reset {pipeline.name}"
    if isinstance(pipeline.sink, Table) and "://" not in writer.location:
        return f"`{reset} --table`"
    return f"remove {writer.location} yourself, then `{reset}`"


def must_belong(
    pipeline: Pipeline, folder: Folder, writer: Writer, memory: TableMemory | None
) -> None:
    """Refuses a table that is not the checkpoint's, and a checkpoint that is behind its table."""
    name, at = pipeline.name, writer.location
    planned = folder.last_planned()
    if folder.has_written():
        kept = folder.kept_with_identity("table")
        if memory is None:
            raise PipelineError(
                f"{at} is gone, and the checkpoint of {name} says that rows up to batch "
                f"{folder.last_committed()} are in it: a new table would have only those that come "
                f"from now on. {ways_out(pipeline, writer)}"
            )
        if kept and memory.is_another_than(kept):
            raise PipelineError(
                f"{at} is not the table that the checkpoint of {name} wrote: it was replaced or "
                f"created again. {ways_out(pipeline, writer)}"
            )
        last = memory.streams.get(writer.stream, -1)
        if memory.knows_all and last < folder.last_committed():
            come = f"to batch {last}" if last >= 0 else "to none"
            raise PipelineError(
                f"{at} has come {come} of {name}'s batches, and its checkpoint to batch "
                f"{folder.last_committed()}: the table is an older copy, or another one. "
                f"{ways_out(pipeline, writer)}"
            )
        if 0 <= memory.version < folder.table_version():
            raise PipelineError(
                f"{at} is at version {memory.version}, and {name} has seen it at version "
                f"{folder.table_version()}: the table is an older copy, and rows that came since "
                f"would be missing. {ways_out(pipeline, writer)}"
            )
    if memory is None:
        return
    own = memory.streams.get(writer.stream, -1)
    if own > planned:
        begun = f"only to batch {planned}" if planned >= 0 else "to none"
        raise PipelineError(
            f"{at} has come to batch {own} of {name}, and its checkpoint {begun}: it is lost, or "
            "an older copy, and records of those batches would be left out or added again. "
            f"{ways_back(pipeline, folder, writer)}"
        )
    if planned >= 0 or folder.has_written() or folder.kept_with_identity("keeps_rows"):
        return
    others = {
        stream: batch
        for stream, batch in memory.streams.items()
        if stream.startswith(stream_prefix(name)) and not stream.startswith(writer.stream)
    }
    if others:
        history = set(others) == {f"{stream_prefix(name)}{HISTORY}"}
        what = f"that --history of {name} wrote" if history else f"of an earlier run of {name}"
        raise PipelineError(
            f"{at} has rows {what}, and there is no checkpoint that says which records they are: "
            f"they would be added again. {ways_back(pipeline, folder, writer)}"
        )
