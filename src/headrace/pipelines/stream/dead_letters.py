"""The dead letters of a stream: its bad records, into their topic.

A rule of the topic may demand another action (`expectation`): rows that break it are dropped and
counted in a line, or stop the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.expectation import DEAD_LETTER, STOP, Expectation
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import record_rows
from headrace.pipelines.rows.letter_size import producer_options
from headrace.pipelines.sinks.console_lines import Say
from headrace.pipelines.sinks.writer import Writer
from headrace.pipelines.stream.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True, kw_only=True)
class DeadLetters:
    """Records are given as `record_rows.parsed` returns them."""

    pipeline: Pipeline
    folder: Folder
    writer: Writer
    note: Say
    largest_bytes: int  # what their topic takes

    def write(self, found: DataFrame) -> None:
        """Writes the bad records of a batch to the dead-letter topic, and reports other broken
        rules."""
        letters = record_rows.bad(
            self._without_others(found),
            self.pipeline,
            self.folder.topic_ids(),
            self.largest_bytes,
        )
        letters = letters.persist()
        try:
            count = letters.count()
            if count:
                options = self.writer.kafka_options() | producer_options(self.largest_bytes)
                letters.write.format("kafka").options(**options).save()
                noun = "record" if count == 1 else "records"
                self.note(f"{count:,} bad {noun} to {self.pipeline.dead_topic}")
        finally:
            letters.unpersist()

    @property
    def rules_that_stop(self) -> list[Expectation]:
        return [one for one in self._rules if one.then == STOP]

    def stop_at_rules(self, found: DataFrame) -> None:
        """Raises if a record breaks a rule that stops the stream."""
        self._tell_of_broken(found, _by_reason(self.rules_that_stop))

    @property
    def _rules(self) -> tuple[Expectation, ...]:
        topic = self.pipeline.topic
        return topic.expect if topic is not None else ()

    def _without_others(self, found: DataFrame) -> DataFrame:
        """Without the rows that break a rule and are dropped or stop the stream."""
        from pyspark.sql import functions as F

        others = _by_reason([one for one in self._rules if one.then != DEAD_LETTER])
        if not others:
            return found
        self._tell_of_broken(found, others)
        return found.where(~F.coalesce(F.col(record_rows.WHY), F.lit("")).isin(list(others)))

    def _tell_of_broken(self, found: DataFrame, others: dict[str, Expectation]) -> None:
        """Raises for a rule that stops the stream."""
        from pyspark.sql import functions as F

        broken = found.where(F.col(record_rows.WHY).isin(list(others)))
        place = F.min(F.struct("topic", "partition", "offset"))
        counted = broken.groupBy(record_rows.WHY).agg(F.count(F.lit(1)), place).collect()
        for why, count, first in sorted(counted):
            rule = others[why]
            fails = "does not hold" if why == rule.why else "raises an error"
            said = f"{count:,} {'row' if count == 1 else 'rows'} where {rule.rule} {fails}"
            if rule.then == STOP:
                at = f"{first[0]} {first[1]}/{first[2]}"
                raise PipelineError(
                    f"{self.pipeline.name} stops: a batch has {said}, the first at {at}."
                )
            self.note(f"{said}: left out")


def _by_reason(rules: list[Expectation]) -> dict[str, Expectation]:
    return {why: one for one in rules for why in (one.why, one.why_raised)}
