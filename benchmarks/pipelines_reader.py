"""The Spark side of `pipelines.py`: for each topic named on standard input, one line of JSON.

Runs a pipeline of Headrace as a user would with `--once`; what is timed is its stream, from the
start of the query to the table. Ends with its input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from headrace.client.connection import Connection
from headrace.pipelines import Table, Topic, pipeline, session
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.running import Runner

MASTER = "local[*]"


def lengths(topic: str) -> Pipeline:
    @pipeline(source=Topic(topic), sink=Table(topic), name=topic)
    def made(rows: Any) -> Any:
        return rows.selectExpr("partition", "offset", "length(value) AS size")

    return made


def ignore(line: str) -> None:
    """Nobody watches."""


def main() -> None:
    bootstrap, data = sys.argv[1], Path(sys.argv[2])
    spark = session.start("benchmark", master=MASTER, given={})
    for line in sys.stdin:
        topic = line.strip()
        runner = Runner(
            pipeline=lengths(topic),
            connection=Connection({"bootstrap.servers": bootstrap}),
            data=data,
            say=ignore,
            note=ignore,
            master=MASTER,
        )
        began = time.perf_counter()
        runner.stream(once=True)
        took_s = time.perf_counter() - began
        rows = spark.read.format("delta").load(str(data / "tables" / topic)).count()
        sys.stdout.write(json.dumps({"rows": rows, "took_s": took_s}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
