"""The Spark side of `pipelines.py` and `pipelines_shipped.py`: one line of JSON for each one read.

A line of standard input names a topic, and before it may name a shipped pipeline that reads topics
of that kind; without one the pipeline keeps partition, offset and length of each record. Runs it as
a user would with `--once`; what is timed is its stream, from the start of the query to the table.
With `before` in front it runs as it did before decision 25: a second query for dead letters, a
MERGE of Spark however few the rows, methods of any size. Ends with its input.

    python -m benchmarks.pipelines_reader BOOTSTRAP FOLDER [SETTING=VALUE ...]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.rows import strict
from headrace.pipelines.shipped import SHIPPED
from headrace.pipelines.sinks import small_upserts
from headrace.pipelines.spark import session
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.queries import Streaming
from headrace.pipelines.stream.runner import Runner

MASTER = "local[*]"
HUGE_METHOD = "spark.sql.codegen.hugeMethodLimit"


def lengths(topic: str) -> Pipeline:
    @pipeline(source=Topic(topic), sink=Table(topic), name=topic)
    def made(rows: Any) -> Any:
        return rows.selectExpr("partition", "offset", "length(value) AS size")

    return made


def shipped(name: str, topic: str) -> Pipeline:
    """The same pipeline on another topic, with a checkpoint and a table of its own."""
    own, called = SHIPPED[name], f"{name}-{topic}"
    assert isinstance(own.source, Topic) and isinstance(own.sink, Table)
    source, sink = replace(own.source, name=topic), replace(own.sink, name=called)
    return replace(own, name=called, source=source, sink=sink)


def asked(line: str) -> tuple[Pipeline, bool]:
    """And whether it is to run the way before."""
    *name, topic = line.split()
    before = name[:1] == ["before"]
    if before:
        made = shipped(name[1], topic)
        sink = replace(made.sink, name=f"{made.sink.name}-before")
        return replace(made, name=f"{made.name}-before", sink=sink), True
    return (shipped(name[0], topic) if name else lengths(topic)), False


@contextmanager
def way_before(spark: Any) -> Iterator[None]:
    """What was changed, changed back for one run."""
    kept = Streaming.counts_bad_records, small_upserts.fits, strict.is_one_object
    limit = spark.conf.get(HUGE_METHOD)
    Streaming.counts_bad_records = lambda *_: False  # type: ignore[method-assign]
    small_upserts.fits = lambda *_: False
    strict.is_one_object = strict.is_one_value
    spark.conf.set(HUGE_METHOD, "65535")
    try:
        yield
    finally:
        Streaming.counts_bad_records, small_upserts.fits, strict.is_one_object = kept  # type: ignore[method-assign]
        spark.conf.set(HUGE_METHOD, limit)


def ignore(line: str) -> None:
    """Nobody watches."""


def main() -> None:
    bootstrap, data = sys.argv[1], Path(sys.argv[2])
    given = dict(setting.split("=", 1) for setting in sys.argv[3:])
    spark = session.start("benchmark", master=MASTER, given=given)
    for line in sys.stdin:
        chosen, before = asked(line)
        runner = Runner(
            pipeline=chosen,
            connection=ClientSettings({"bootstrap.servers": bootstrap}),
            data=data,
            say=ignore,
            note=ignore,
            master=MASTER,
            spark_settings=given | {HUGE_METHOD: "65535"} if before else given,
        )
        with way_before(spark) if before else nullcontext():
            began = time.perf_counter()
            runner.stream(once=True)
            took_s = time.perf_counter() - began
        taken = (Folder(data, chosen.name).progress() or {}).get("rows_total", 0)
        rows = spark.read.format("delta").load(str(data / "tables" / chosen.sink.name)).count()
        answer = {"rows": rows, "taken": taken, "took_s": took_s}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
