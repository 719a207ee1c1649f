"""Topics and checkpoints that are not what a stream left: it goes on right, or says why not."""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.continuation import Continuation
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.queries import Streaming
from tests.pipelines.conftest import Run
from tests.pipelines.orders import SCHEMA, expected, new_topic, orders, put, read, rows_into, table
from tests.pipelines.test_pipelines import daily

pytestmark = pytest.mark.timeout(1200)


def test_a_topic_that_was_made_anew_is_not_read_from_the_middle(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "made-anew")
    made = rows_into(Table("anew"), topic)
    orders(connection.bootstrap, topic, range(10))
    run(made).stream(once=True)
    Topics(connection).delete(topic)
    new_topic(connection, topic)
    orders(connection.bootstrap, topic, range(100, 140))  # more than the old one had
    with pytest.raises(
        PipelineError, match=f"{topic} was deleted and created again .*reset {topic}"
    ):
        run(made).stream(once=True)
    Folder(tmp_path, topic).reset(table=False, keep_rows=True)
    run(made).stream(once=True)
    wanted = expected(range(10)) + expected(range(100, 140))
    assert table(spark, tmp_path / "tables" / "anew") == wanted


def test_records_that_went_before_they_were_read_are_missed(
    connection: ClientSettings, run: Run
) -> None:
    topic = new_topic(connection, "expired")
    made = rows_into(Table("expired"), topic)
    orders(connection.bootstrap, topic, range(10))
    run(made).stream(once=True)
    orders(connection.bootstrap, topic, range(10, 30))
    gone = [TopicPartition(topic, number, 9) for number in range(2)]
    admin = connection.admin()  # what it was asked is forgotten when it goes
    for answer in admin.delete_records(gone).values():
        answer.result(60)
    with pytest.raises(PipelineError, match=f"are gone from {topic} .*retention"):
        run(made).stream(once=True)


def test_partitions_that_are_added_while_it_runs_are_read(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "growing")
    orders(connection.bootstrap, topic, range(10))
    folder, failures = Folder(tmp_path, topic), []

    def wait_for(rows: int) -> None:
        deadline = time.monotonic() + 240
        while (folder.progress() or {}).get("rows_total", 0) < rows:
            assert time.monotonic() < deadline, folder.progress()
            time.sleep(0.05)

    def grow() -> None:
        try:
            wait_for(10)
            Topics(connection).grow(topic, partitions=4)
            producer = Producer({"bootstrap.servers": connection.bootstrap})
            for n in range(10, 14):
                value = b'{"id": %d, "time": "2026-01-01T00:00:00Z", "amount": %d}' % (n, n % 7)
                producer.produce(topic, value, partition=n % 2 + 2)
            assert producer.flush(120) == 0
            wait_for(14)
        except AssertionError as failure:
            failures.append(failure)
        finally:
            folder.stop()

    other = threading.Thread(target=grow)
    other.start()
    run(rows_into(Table("growing"), topic)).stream()
    other.join()
    assert failures == []
    assert table(spark, tmp_path / "tables" / "growing") == expected(range(14))


def by_kind(topic: str) -> Pipeline:
    source = Topic(topic, schema=SCHEMA, event_time="time", late="1 hour", per_batch=40)

    @pipeline(source=source, sink=Table("revenue", mode="upsert", key="day"), name=topic)
    def other(rows: DataFrame) -> DataFrame:
        totals = rows.groupBy("amount", "id").agg(F.max("time").alias("time"))
        return totals.select(F.col("time").cast("date").alias("day"), "amount")

    return other


def test_a_checkpoint_of_another_function_or_schema(
    connection: ClientSettings, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection, "other-state")
    orders(connection.bootstrap, topic, range(5))
    run(daily(topic)).stream(once=True)
    orders(connection.bootstrap, topic, range(5, 10))
    with pytest.raises(PipelineError, match=f"the state of another function.*reset {topic}"):
        run(by_kind(topic)).stream(once=True)
    with (
        monkeypatch.context() as older,
        pytest.raises(PipelineError, match=f"another function or schema.*reset {topic}"),
    ):  # a checkpoint without a plan: Spark finds out
        older.setattr(Continuation, "_must_carry_on", lambda *_: None)
        run(by_kind(topic)).stream(once=True)
    run(daily(topic)).stream(once=True)  # what was there goes on

    topic = new_topic(connection, "other-columns")
    orders(connection.bootstrap, topic, range(5))
    run(rows_into(Table("columns"), topic)).stream(once=True)
    orders(connection.bootstrap, topic, range(5, 10))
    other = pipeline(source=Topic(topic, schema=SCHEMA), sink=Table("columns"), name=topic)
    with pytest.raises(PipelineError, match="id is bigint, not array<bigint>"):
        lists = other(lambda rows: rows.selectExpr("array(id) AS id", "amount"))
        run(lists, accept_change=True).stream(once=True)


@pytest.mark.parametrize("kind", ["offsets", "commits"])
def test_a_file_of_the_checkpoint_that_is_cut_off(
    kind: str, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"torn-{kind}")
    made = rows_into(Table("torn"), topic)
    orders(connection.bootstrap, topic, range(10))
    run(made).stream(once=True)
    orders(connection.bootstrap, topic, range(10, 20))
    file = Folder(tmp_path, topic).checkpoint / kind / "0"
    whole, sums = file.read_bytes(), file.with_name(".0.crc")
    for left in (whole[: len(whole) // 2], b""):
        file.write_bytes(left)
        with pytest.raises(PipelineError, match=f"is damaged: .*reset {topic}"):
            run(made).stream(once=True)
    sums.unlink()  # as on storage that has no sums
    file.write_bytes(whole[:-3])
    with pytest.raises(PipelineError, match=f"is damaged: .*reset {topic}"):
        run(made).stream(once=True)
    file.write_bytes(whole)
    run(made).stream(once=True)
    assert table(spark, tmp_path / "tables" / "torn") == expected(range(20))


def test_dead_letters_begin_where_the_rows_do(
    connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "from-the-end")
    orders(connection.bootstrap, topic, range(4))
    made = daily(topic)
    assert isinstance(made.source, Topic)
    made = replace(made, source=replace(made.source, starting="latest"))
    run(made).stream(once=True)  # begins at the end: it has seen nothing
    assert not Folder(tmp_path, topic).dead_checkpoint.exists()
    put(connection.bootstrap, topic, [b"{broken"])
    run(made).stream(once=True)
    [letter] = read(connection.bootstrap, made.dead_topic, 1)
    assert letter["value"] == b"{broken"


def test_a_stream_that_had_a_second_query_for_its_letters_goes_on_without(
    connection: ClientSettings, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection, "second-query")
    made, folder = daily(topic), Folder(tmp_path, topic)
    with monkeypatch.context() as before:
        before.setattr(Streaming, "counts_bad_records", lambda *_: False)
        put(connection.bootstrap, topic, [b"{first"])
        run(made).stream(once=True)
        kept = shutil.copytree(folder.dead_checkpoint, tmp_path / "kept")
        put(connection.bootstrap, topic, [b"{second"])
        run(made).stream(once=True)
    # As if it had been killed when the rows were written and the letters were not.
    shutil.rmtree(folder.dead_checkpoint)
    shutil.move(kept, folder.dead_checkpoint)
    put(connection.bootstrap, topic, [b"{third"])
    run(made).stream(once=True)
    letters = read(connection.bootstrap, made.dead_topic, 4)
    values = sorted(one["value"] for one in letters)
    assert values == [b"{first", b"{second", b"{second", b"{third"]
    assert not folder.dead_checkpoint.exists()
