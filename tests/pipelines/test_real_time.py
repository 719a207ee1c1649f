"""In real time: from topic to topic row by row, and what is refused, on a broker and a Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines import Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.folder import Folder
from headrace.wire.contract.headers import DEAD_OFFSET, MESSAGE_ID
from tests.pipelines.conftest import Run
from tests.pipelines.orders import SCHEMA, order, put, read

pytestmark = pytest.mark.timeout(1200)
WITHIN_S = 600.0


def new_topic(connection: ClientSettings, name: str) -> str:
    """With one partition: the Spark of the tests has two threads, one is for dead letters."""
    Topics(connection).create(name, partitions=1, settings={"retention.ms": "-1"})
    return name


def put_orders(bootstrap: str, topic: str, numbers: range) -> None:
    for n in numbers:
        put(bootstrap, topic, [json.dumps(order(n)).encode()], 2 * n)  # even: partition 0


def even(topic: str) -> Pipeline:
    sink = Topic(f"{topic}.even", key="id")

    @pipeline(source=Topic(topic, schema=SCHEMA), sink=sink, name=topic)
    def made(rows: DataFrame) -> DataFrame:
        return rows.where("id % 2 = 0").select("id", (F.col("amount") * 10).alias("tenfold"))

    return made


def run_until(run: Run, of: Pipeline, enough: Callable[[], list[Any]]) -> list[Any]:
    """Runs in real time until `enough` has returned, which happens beside it."""
    runner = run(of)
    runner.real_time = True

    def stop_then() -> list[Any]:
        try:
            return enough()
        finally:
            runner.stopping = True

    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(stop_then)
        runner.stream()
        return found.result()


def test_rows_leave_one_by_one_with_ids_that_a_repeat_has_again(
    run: Run, connection: ClientSettings, tmp_path: Path
) -> None:
    topic, bootstrap = new_topic(connection, "instant"), connection.bootstrap
    put_orders(bootstrap, topic, range(4))
    put(bootstrap, topic, [b"not JSON"])
    of, out = even(topic), f"{topic}.even"

    def both() -> list[Any]:
        dead = read(bootstrap, of.dead_topic, 1, WITHIN_S)
        return read(bootstrap, out, 2, WITHIN_S) + dead

    *rows, dead = run_until(run, of, both)
    assert [json.loads(row["value"]) for row in rows] == [
        {"id": 0, "tenfold": 0},
        {"id": 2, "tenfold": 20},
    ]
    assert [row["key"] for row in rows] == [b"0", b"2"]
    folder = Folder(tmp_path, topic)
    stream, place = f"headrace.{topic}.{folder.described()['id']}", folder.topic_ids()[topic]
    ids = [row[MESSAGE_ID].decode() for row in rows]
    assert ids == [f"{stream}/{topic}/0/{offset}@{place}" for offset in (0, 2)]
    assert (dead["value"], dead[DEAD_OFFSET]) == (b"not JSON", b"4")

    # As after a kill before the first batch was committed: its rows come again with their ids.
    for log in ("offsets", "commits"):
        shutil.rmtree(folder.checkpoint / log)
    put_orders(bootstrap, topic, range(6, 7))

    def up_to_the_new_one() -> list[Any]:
        found = read(bootstrap, out, 1, WITHIN_S)
        while found and json.loads(found[-1]["value"])["id"] != 6:
            found += read(bootstrap, out, 1, WITHIN_S)
        return found

    again = run_until(run, of, up_to_the_new_one)
    new = f"{stream}/{topic}/0/5@{place}"
    assert [(row[MESSAGE_ID].decode(), json.loads(row["value"])["id"]) for row in again] == [
        (ids[0], 0),
        (ids[1], 2),
        (new, 6),
    ]

    with pytest.raises(PipelineError, match="began in real time, and without --real-time"):
        run(of).stream(once=True)


def test_state_and_python_functions_are_refused_in_a_sentence(
    run: Run, connection: ClientSettings
) -> None:
    topic = new_topic(connection, "unready")
    source, sink = Topic(topic), Topic(f"{topic}.out")

    def counted(rows: DataFrame) -> DataFrame:
        return rows.groupBy("key").count()

    def spread(rows: DataFrame) -> DataFrame:
        return rows.select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("word"))

    def python(rows: DataFrame) -> DataFrame:
        return rows.select(F.udf(lambda value: value, "binary")("value").alias("value"))

    for function, why in (
        (counted, r"keeps state \(Aggregate\)"),
        (spread, "Generate may make several rows"),
        (python, "Python"),
    ):
        named = pipeline(source=source, sink=sink, name=f"{topic}-{function.__name__}")
        runner = run(named(function))
        runner.real_time = True
        with pytest.raises(PipelineError, match=rf"cannot run in real time: .*{why}") as refusal:
            runner.stream()
        assert len(str(refusal.value)) < 400
