"""The Spark side of `pipelines.py` and `pipelines_shipped.py`: one line of JSON for each one read.

A line of standard input names a topic, and before it may name a shipped pipeline that reads topics
of that kind; without one the pipeline keeps partition, offset and length of each record. Runs it as
a user would with `--once`; what is timed is its stream, from the start of the query to the table.
Ends with its input.

    python -m benchmarks.pipelines_reader BOOTSTRAP FOLDER [SETTING=VALUE ...]
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.client.connection import Connection
from headrace.pipelines import Table, Topic, pipeline, session
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.folder import Folder
from headrace.pipelines.running import Runner
from headrace.pipelines.shipped import SHIPPED

MASTER = "local[*]"


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


def asked(line: str) -> Pipeline:
    *name, topic = line.split()
    return shipped(name[0], topic) if name else lengths(topic)


def ignore(line: str) -> None:
    """Nobody watches."""


def main() -> None:
    bootstrap, data = sys.argv[1], Path(sys.argv[2])
    given = dict(setting.split("=", 1) for setting in sys.argv[3:])
    spark = session.start("benchmark", master=MASTER, given=given)
    for line in sys.stdin:
        chosen = asked(line)
        runner = Runner(
            pipeline=chosen,
            connection=Connection({"bootstrap.servers": bootstrap}),
            data=data,
            say=ignore,
            note=ignore,
            master=MASTER,
            spark_settings=given,
        )
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
