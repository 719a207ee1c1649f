"""Dead letters of a stream: its records are read once, unless one is bad.

Spark counts bad records on the way (`DataFrame.observe`). When a batch has been written and before
it is committed, its count is asked for: none, and there is nothing to do; else, or if Spark does
not say, the batch's records are read again by their offsets and the bad ones become letters. So no
batch is kept in memory. A run that is killed in between does the batch again, and its letters too.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.pipelines.declaration import Topic
from headrace.pipelines.rows import ahead, record_rows
from headrace.pipelines.spark.progress import BAD_RECORDS
from headrace.pipelines.stream import batch_offsets
from headrace.pipelines.stream.backfill import Offsets, begun_at
from headrace.pipelines.stream.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Options that say which topics a stream reads.
WHICH = ("subscribe", "subscribePattern", "assign")
# The first batch may be written before the call that started the query has returned.
STARTED_WITHIN_S = 120.0


class CountedBadRecords:
    """`bury` makes letters of the bad ones of some records that have been read."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Folder,
        source: Topic,
        options: dict[str, str],
        bury: Callable[[DataFrame], None],
    ) -> None:
        self.spark, self.folder, self.source = spark, folder, source
        left_out = (*record_rows.STARTING, *WHICH)
        self.options = {one: v for one, v in options.items() if one not in left_out}
        self.bury = bury
        self._query: StreamingQuery | None = None
        self._started = threading.Event()

    def runs_in(self, query: StreamingQuery) -> None:
        self._query = query
        self._started.set()

    def parsed_of(self, number: int) -> DataFrame | None:
        """The records of a batch, read again; None if it has none."""
        first, last = batch_offsets.taken(self.folder.checkpoint, number)
        clock = ahead.clock_at(ahead.planned_at(self.folder.checkpoint, number))
        return self._parsed_between(first, last, clock)

    def bury_those_of(self, number: int, *, sure: bool = True) -> None:
        """Called when a batch has been written; `sure` if that took each of its records."""
        bad, seen, _ = self._counts()
        if sure and seen and not bad:
            return
        if (found := self.parsed_of(number)) is not None:
            self.bury(found)

    def may_have_late_rows(self) -> bool:
        """Whether the batch that has been written has some, as far as Spark says."""
        _, seen, late = self._counts()
        return bool(late) or not seen

    def _counts(self) -> tuple[int, int, int]:
        """The bad records of the batch under way, all that were looked at, and late ones; zeros if
        Spark does not say. A batch that is looked at twice counts twice."""
        self._started.wait(STARTED_WITHIN_S)
        if self._query is None:
            return 0, 0, 0
        stream: Any = self._query
        execution = stream._jsq.streamingQuery().lastExecution()
        found = execution.observedMetrics().get(BAD_RECORDS)
        if not found.isDefined():
            return 0, 0, 0
        bad, seen, late = (int(found.get().getLong(number)) for number in range(3))
        return bad, seen, late

    def _parsed_between(
        self, first: Offsets, last: Offsets, clock: Column | None
    ) -> DataFrame | None:
        if first == last:
            return None
        # These partitions and no others: one that came since would need offsets too.
        chosen = {topic: sorted(map(int, partitions)) for topic, partitions in last.items()}
        between = {
            "assign": json.dumps(chosen),
            "startingOffsets": json.dumps(first),
            "endingOffsets": json.dumps(last),
        }
        records = self.spark.read.format("kafka").options(**self.options | between).load()
        return record_rows.parsed(records, self.source, clock)

    def catch_up(self) -> None:
        """A stream of before had a query of its own for letters, which may be behind the rows: do
        the rest of it, once, and forget its checkpoint."""
        aside = self.folder.dead_checkpoint
        if not aside.exists():
            return
        rows, letters = (batch_offsets.last_done(one) for one in (self.folder.checkpoint, aside))
        if rows is not None:
            last = batch_offsets.ends(self.folder.checkpoint, rows)
            known = batch_offsets.ends(aside, letters) if letters is not None else None
            first = batch_offsets.filled(known or begun_at(self.folder.checkpoint) or {}, last)
            found = self._parsed_between(first, _not_before(first, last), None)
            if found is not None:
                self.bury(found)
        shutil.rmtree(aside)


def _not_before(first: Offsets, last: Offsets) -> Offsets:
    """Returns the ends `last`, but none before `first`: the letters may be ahead of the rows; then
    nothing is left to do for that partition."""
    return {
        topic: {one: max(end, first[topic][one]) for one, end in partitions.items()}
        for topic, partitions in last.items()
    }
