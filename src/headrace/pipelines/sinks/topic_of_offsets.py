"""Which topic the rows of a table come from, where offsets say which of two rows is newer.

Offsets of two topics cannot be compared, nor those of a topic that was deleted and created again:
newer values would be left out because their offsets are smaller. So the table remembers the id of
the topic. Delta keeps it with the identifiers of transactions, which are in its log and are no
property of the table that other programs would have to know. A table of an earlier version gets it
with its next batch.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError

MARK = "headrace-offsets."
# Settings of Delta: the next statement that writes leaves this identifier in the log.
IDENTIFIER = "spark.databricks.delta.write.txnAppId"
NUMBER = "spark.databricks.delta.write.txnVersion"


def mark_of(topic_id: str) -> str:
    return f"{MARK}{topic_id}"


def settings(mark: str | None) -> dict[str, str]:
    """Spark's settings for a statement that leaves the mark. Delta passes over a statement whose
    mark it has already, so only one may be run with them."""
    return {} if mark is None else {IDENTIFIER: mark, NUMBER: "0"}


def to_leave(pipeline: Pipeline, location: str, mark: str, kept: Iterable[str]) -> str | None:
    """Returns the mark if the table does not have it yet; refuses a table with that of another
    topic. `kept` are all identifiers that the table has."""
    marks = {one for one in kept if one.startswith(MARK)}
    if marks - {mark}:
        topic = pipeline.source.name
        raise PipelineError(
            f"{location} has rows of another topic, or of {topic} before it was deleted and "
            f"created again. The newer of two rows of a key is found by their offsets, so newer "
            f"values of {topic} would be left out. Start over with `headrace pipeline reset "
            f"{pipeline.name} --table`, or fill another table with --table NAME."
        )
    return None if mark in marks else mark
