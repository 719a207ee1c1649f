"""`--backfill`: what was there before, in one go, and then the stream, without gap or overlap.

Where each row goes its own way, a batch takes all records up to the offsets where the stream begins
(or began), and is written once under a name of its own; then the stream goes on at those offsets.
They are written down first, so that a run that is killed goes on with the same ones. Where state
is kept and the sink replaces rows by key, the stream itself takes everything in one batch, so that
its state is whole when it goes on. Everything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.admin.requests import Requests
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.faults import Fault
from headrace.client.records import TopicPartition
from headrace.pipelines.declaration import Pipeline, Table, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows import ahead, record_place, record_rows

if TYPE_CHECKING:
    from headrace.pipelines.stream.queries import Streaming

BATCH, STREAM = "batch", "stream"
EARLIEST = -2  # Spark's number for it

Offsets = dict[str, dict[str, int]]  # by topic and partition, as Spark writes them


def way_of(pipeline: Pipeline, stateful_operator: str | None) -> str:
    """Returns BATCH or STREAM; refuses a pipeline for which neither is possible. Does not use
    Spark."""
    name, sink = pipeline.name, pipeline.sink
    if isinstance(pipeline.source, Table):
        raise PipelineError(
            f"{name} reads a table: the stream takes all that is there first, run it without "
            "--backfill."
        )
    if not sink.knows_batches:
        raise PipelineError(
            f"{name} writes to a {sink.kind}, which cannot tell a repeat: records between history "
            "and stream would be there twice."
        )
    if stateful_operator is None:
        return BATCH if sink.knows_streams else STREAM
    if sink.upserts:
        return STREAM
    raise PipelineError(
        f"{name} keeps state ({stateful_operator}) and appends: what it wrote for history could "
        "not be corrected by the stream. Run it from the beginning as a stream, or let it replace "
        "rows by key."
    )


def begun_at(checkpoint: Path) -> Offsets | None:
    """Where a stream began: Spark's Kafka source writes it down behind a version line."""
    try:
        text = (checkpoint / "sources" / "0" / "0").read_bytes()
    except FileNotFoundError:
        return None
    found: Offsets = json.loads(text.partition(b"\n")[2])
    return found


def committed_ends(connection: ClientSettings, topics: Iterable[str]) -> Offsets:
    """The end of what readers of committed records may see, of each partition."""
    return _offsets(connection, topics, Requests.end_offsets)


def first_offsets(connection: ClientSettings, topics: Iterable[str]) -> Offsets:
    """Returns the first existing record's offset, of each partition."""
    return _offsets(connection, topics, Requests.first_offsets)


def _offsets(
    connection: ClientSettings,
    topics: Iterable[str],
    which: Callable[..., dict[TopicPartition, int]],
) -> Offsets:
    cluster = Topics(connection).cluster
    requests = Requests(connection)
    found: Offsets = {}
    for topic in topics:
        places = [TopicPartition(topic, number) for number in cluster.topics[topic].partitions]
        try:
            offsets = which(requests, places, connection.timeout_s, committed=True)
        except Fault as fault:
            said = fault.explained(connection.bootstrap, topic=topic)
            raise PipelineError(str(said)) from fault
        for place, offset in offsets.items():
            found.setdefault(topic, {})[str(place.partition)] = offset
    return found


def completed(ends: Offsets, there: Mapping[str, Iterable[int]], missing: int) -> str:
    """The ends as Spark takes them, with a number for partitions that were added since."""
    whole = {
        topic: {str(number): ends.get(topic, {}).get(str(number), missing) for number in numbers}
        for topic, numbers in there.items()
    }
    return json.dumps(whole, sort_keys=True)


def prepared(
    streaming: Streaming, connection: ClientSettings, topics: list[str], wall_ms: int
) -> dict[str, Any]:
    """The plan of a backfill, stored: the way, the offsets, when it began, whether it is done."""
    folder, pipeline = streaming.folder, streaming.pipeline
    if (known := folder.backfill()) is not None:
        return {"begun_ms": wall_ms, **known}  # older versions did not keep it
    way = way_of(pipeline, streaming.stateful_operator())
    began = begun_at(folder.checkpoint)
    if began is not None and way == STREAM:
        raise PipelineError(
            f"{pipeline.name} has run already, and its state cannot take in older records: start "
            f"over with `headrace pipeline reset {pipeline.name}`."
        )
    sink = pipeline.sink
    if began is not None and sink.upserts and sink.newest is None:
        raise PipelineError(
            f"{pipeline.name} has run already, and older rows would replace newer ones: say with "
            "newest= which column decides."
        )
    plan: dict[str, Any] = {"way": way, "done": False, "begun_ms": wall_ms}
    if way == BATCH:
        plan["ends"] = began or committed_ends(connection, topics)
    folder.keep_backfill(plan)
    return plan


def run_batch(streaming: Streaming, ends: str, begun_ms: int) -> None:
    """All records up to the ends, once. `begun_ms` is the clock that limits the future; the same
    one when it is repeated."""
    source, options = streaming.pipeline.source, dict(streaming.options)
    assert isinstance(source, Topic)
    for name in record_rows.STARTING:
        options.pop(name, None)
    options |= {"startingOffsets": "earliest", "endingOffsets": ends}
    records = streaming.spark.read.format("kafka").options(**options).load()
    once = (f"{streaming.writer.stream}.backfill", 0)
    streaming.topic_ids.check()
    if source.schema is None:
        base = record_place.beside(records, streaming.pipeline)
        rows, latest = record_place.ordered(streaming.pipeline, base, streaming.result)
        streaming.writer.write(rows, once, latest)
    else:
        found = record_rows.parsed(records, source, ahead.clock_at(begun_ms))
        streaming.letters.write(found)
        streaming.write(found, once)
    streaming.topic_ids.check()
