"""One job of `pipelines_plain.py` in a process of its own: a topic into a Delta table, its cost.

`plain` is what a person would write for Spark without Headrace, `headrace` the same as a pipeline.
Prints one line of JSON: rows, seconds, processor seconds of Java in the job and in all.

    python -m benchmarks.pipelines_plain_job WAY WHAT BOOTSTRAP TOPIC FOLDER [SETTING=VALUE ...]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.spark import session
from headrace.pipelines.stream.runner import Runner

from .processes import processor_seconds

MASTER, TABLE = "local[*]", "rows"
RAW = ("key", "value", "topic", "partition", "offset", "timestamp")
SCHEMA = (
    "id LONG NOT NULL, user STRING, page STRING, amount DOUBLE, at TIMESTAMP, tags ARRAY<STRING>"
)
JSON = "json"


def run_plain(spark: Any, what: str, bootstrap: str, topic: str, folder: Path) -> None:
    from pyspark.sql import functions as F

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    records = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    if what == JSON:
        value = F.from_json(F.col("value").cast("string"), SCHEMA)
        rows = records.select(value.alias("value")).select("value.*")
    else:
        rows = records.select(*RAW)
    writer = rows.writeStream.format("delta").trigger(availableNow=True)
    at = str(folder / "tables" / TABLE)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start(at).awaitTermination()


def run_headrace(
    what: str, bootstrap: str, topic: str, folder: Path, given: dict[str, str]
) -> None:
    source = Topic(topic, schema=SCHEMA) if what == JSON else Topic(topic)

    @pipeline(source=source, sink=Table(TABLE), name=TABLE)
    def made(rows: Any) -> Any:
        return rows if what == JSON else rows.select(*RAW)

    Runner(
        pipeline=made,
        connection=ClientSettings({"bootstrap.servers": bootstrap}),
        data=folder,
        say=ignore,
        note=ignore,
        master=MASTER,
        spark_settings=given,
    ).stream(once=True)


def ignore(line: str) -> None:
    """Lines for people are not needed here."""


def main() -> None:
    way, what, bootstrap, topic, place = sys.argv[1:6]
    given = dict(setting.split("=", 1) for setting in sys.argv[6:])
    folder = Path(place)
    spark = session.start("benchmark", master=MASTER, given=given)
    java = session.process_of(spark)
    before_s, began = processor_seconds(java), time.perf_counter()
    if way == "plain":
        run_plain(spark, what, bootstrap, topic, folder)
    else:
        run_headrace(what, bootstrap, topic, folder, given)
    took_s, after_s = time.perf_counter() - began, processor_seconds(java)
    rows = spark.read.format("delta").load(str(folder / "tables" / TABLE)).count()
    answer = {"rows": rows, "took_s": took_s, "java_s": after_s - before_s, "all_s": after_s}
    sys.stdout.write(json.dumps(answer) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
