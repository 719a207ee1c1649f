"""Computes a batch whose sink has not computed it, or not all of it.

A run that is killed repeats the batch that was not committed. A sink that has it already leaves it
out without computing it, and a console computes only what it shows. But Spark takes from the
computation how far the watermark is and what state the next batch begins with: without it the next
batch would take rows that were too late. So the rows are computed here, into no sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipelines.sinks.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True)
class WholeBatch:
    """`planned` is the last batch in the checkpoint when the stream starts: no later one can be in
    the sink. `shows_part`: the sink need not compute all rows, and there is state."""

    spark: SparkSession
    writer: Writer
    planned: int
    shows_part: bool

    @contextmanager
    def computed(self, batch: DataFrame, number: int) -> Iterator[None]:
        """Around the write of a batch: computes it afterwards if the write may not have."""
        left_out = self.shows_part or self._is_known(number)
        yield
        if left_out:
            batch.write.format("noop").mode("overwrite").save()

    def _is_known(self, number: int) -> bool:
        if number > self.planned:
            return False
        memory = self.writer.into.memory(self.spark)
        return memory is not None and memory.streams.get(self.writer.stream, -1) >= number
