"""Finds the records of a batch for which a pipeline's function raises, so that the others go on.

If each row goes its own way, a batch that fails is computed again without a sink. If it fails
again, the function is the cause: the batch is halved until each record that fails is alone, and
that record is tried once more before it is given up. The search is bounded: a function that fails
for many records is wrong itself, and the stream ends with its error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark.spark_errors import innermost, is_gone

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_FAILING = 20  # records of one batch
TRIES = 3  # of a record alone, as a function may ask something that was away for a moment

# Computes the rows of some records, and discards them.
Compute = Callable[["DataFrame"], None]


@dataclass(slots=True)
class Part:
    """Records of one partition, from the first offset to the last."""

    topic: str
    partition: int
    first: int
    last: int

    def is_here(self) -> Column:
        from pyspark.sql import functions as F

        place = (F.col("topic") == self.topic) & (F.col("partition") == self.partition)
        return place & F.col("offset").between(self.first, self.last)

    def halves(self) -> list[Part]:
        middle = (self.first + self.last) // 2
        return [
            Part(self.topic, self.partition, self.first, middle),
            Part(self.topic, self.partition, middle + 1, self.last),
        ]


def parts_of(records: DataFrame) -> list[Part]:
    from pyspark.sql import functions as F

    ends = records.groupBy("topic", "partition").agg(F.min("offset"), F.max("offset"))
    return [Part(*row) for row in sorted(tuple(row) for row in ends.collect())]


def why_it_fails(compute: Compute, records: DataFrame) -> str | None:
    """Returns the reason, or None if it does not fail. Raises an error of the plan itself: no
    record causes it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        compute(records)
    except AnalysisException:
        raise
    except (PySparkException, Py4JJavaError) as failure:
        if is_gone(str(failure)):  # the records, not the function
            raise
        return innermost(str(failure))
    return None


def find(records: DataFrame, compute: Compute) -> list[tuple[Part, str]]:
    """Each record that fails, with its reason; none if they do not fail without their sink."""
    waiting = parts_of(records)
    found: list[tuple[Part, str]] = []
    while waiting:
        part = waiting.pop()
        here = records.where(part.is_here())
        alone = part.first == part.last
        why = None
        for _ in range(TRIES if alone else 1):
            if (why := why_it_fails(compute, here)) is None:
                break
        if why is None:
            continue
        if not alone:
            waiting += part.halves()
            continue
        found.append((part, why))
        if len(found) > MOST_FAILING:
            raise PipelineError(
                f"The function fails for more than {MOST_FAILING} records of a batch, such as "
                f"{part.topic} {part.partition}/{part.first}: {why}."
            )
    return found


def first(records: DataFrame, compute: Compute) -> tuple[Part, str] | None:
    """Returns one record that fails, with its reason; None if the records do not fail here, or none
    of them fails alone. It is for functions that keep state, and only shows where to look."""
    for whole in parts_of(records):
        part = whole
        why = why_it_fails(compute, records.where(part.is_here()))
        while why is not None and part.first < part.last:
            before, after = part.halves()
            part, why = before, why_it_fails(compute, records.where(before.is_here()))
            if why is None:
                part, why = after, why_it_fails(compute, records.where(after.is_here()))
        if why is not None:
            return part, why
    return None


def marked(records: DataFrame, failing: list[tuple[Part, str]], column: str) -> DataFrame:
    """The records, with the reason of those that fail in a column that was null."""
    from pyspark.sql import functions as F

    reasons = [F.when(part.is_here(), F.lit(f"the function raised {why}")) for part, why in failing]
    return records.withColumn(column, F.coalesce(F.col(column), *reasons))
