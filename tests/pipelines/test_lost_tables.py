"""A checkpoint without its table, a table without its checkpoint: refused, with the ways out."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines import Jdbc, Table, Topic, pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks import delta_log
from headrace.pipelines.sinks.table_writer import delta_memory
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.sink_identity import SinkIdentity
from headrace.pipelines.stream.span import parse
from tests.pipelines.conftest import Run
from tests.pipelines.orders import SCHEMA, expected, new_topic, orders, read, rows_into, table
from tests.services.servers import Postgres

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_table_and_a_checkpoint_that_do_not_belong_together(
    form: str, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"lost-{form}")
    made, folder = rows_into(Table("lost", format=form), topic), Folder(tmp_path, topic)
    place, copies = tmp_path / "tables" / "lost", tmp_path / "copies"
    orders(connection.bootstrap, topic, range(5))
    run(made).stream(once=True)
    shutil.copytree(folder.state, copies / "state")
    orders(connection.bootstrap, topic, range(5, 8))
    run(made).stream(once=True)
    whole = shutil.copytree(folder.state, copies / "whole")
    shutil.copytree(place, copies / "table")

    def refused(why: str) -> None:
        with pytest.raises(PipelineError, match=why):
            run(made).stream(once=True)
        assert not place.exists() or table(spark, place, form) == expected(range(8))

    def put_back() -> None:
        shutil.rmtree(folder.state)
        shutil.copytree(whole, folder.state)

    shutil.rmtree(folder.state)  # all of it
    refused(rf"has rows of an earlier run of {topic}.*reset {topic} --table.*--keep-rows")
    put_back()
    shutil.rmtree(folder.checkpoint)  # Spark's part of it
    refused(r"come to batch 1 .*checkpoint to none.*from a copy")
    shutil.rmtree(folder.state)
    shutil.copytree(copies / "state", folder.state)  # an older copy
    refused(r"come to batch 1 .*checkpoint only to batch 0.*from a copy")
    put_back()
    shutil.rmtree(place)
    refused(rf"lost is gone, and the checkpoint .* batch 1.*reset {topic} --table")
    run(made).history(parse(".."))  # makes another one
    refused(r"lost is not the table that the checkpoint of .* wrote")
    shutil.rmtree(place)
    shutil.copytree(copies / "table", place)
    run(made).stream(once=True)  # the same as before: it goes on
    assert table(spark, place, form) == expected(range(8))

    folder.reset(table=False)
    refused("has rows of an earlier run")
    folder.reset(table=False, keep_rows=True)  # meant so
    run(made).stream(once=True)
    assert table(spark, place, form) == sorted(expected(range(8)) * 2)
    run(made).stream(once=True)
    folder.reset(table=True)
    run(made).stream(once=True)
    assert table(spark, place, form) == expected(range(8))


def test_history_leaves_a_mark_for_the_stream_that_would_add_its_rows_again(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "history-first")
    made, place = rows_into(Table("past"), topic), tmp_path / "tables" / "past"
    orders(connection.bootstrap, topic, range(4))
    run(made).history(parse(".."))
    with pytest.raises(PipelineError, match="has rows that --history of history-first wrote"):
        run(made).stream(once=True)
    assert table(spark, place) == expected(range(4))
    other = rows_into(Table("past"), topic)  # another pipeline may add to it
    other.name = "another"
    run(other).stream(once=True)
    assert table(spark, place) == sorted(expected(range(4)) * 2)
    assert delta_log.read(str(place)) == delta_memory(spark, str(place))


def test_a_parquet_folder_without_its_checkpoint(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    """Spark leaves out batches with a number that the folder knows."""
    topic = new_topic(connection, "lost-parquet")
    made, folder = rows_into(Table("files", format="parquet"), topic), Folder(tmp_path, topic)
    place = tmp_path / "tables" / "files"
    orders(connection.bootstrap, topic, range(5))
    run(made).stream(once=True)
    kept = shutil.move(folder.state, tmp_path / "kept")
    with pytest.raises(PipelineError, match=rf"come to batch 0 .*reset {topic} --table"):
        run(made).stream(once=True)
    shutil.rmtree(folder.state)
    shutil.move(kept, folder.state)
    shutil.rmtree(place)
    with pytest.raises(PipelineError, match="files is gone, and the checkpoint"):
        run(made).stream(once=True)
    assert not place.exists()


@pytest.mark.parametrize(
    "sink",
    [
        Table("older"),
        Table("older", mode="upsert", key="id"),
        Table("older", format="iceberg"),
        Table("older", format="parquet"),
    ],
    ids=["append", "upsert", "iceberg", "parquet"],
)
def test_an_older_copy_of_a_table_is_not_gone_on_with(
    sink: Table, connection: ClientSettings, run: Run, tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_topic(connection, f"older-{sink.format}-{sink.mode}")
    made, place = rows_into(sink, topic), tmp_path / "tables" / "older"
    orders(connection.bootstrap, topic, range(5))
    run(made).stream(once=True)
    older = shutil.copytree(place, tmp_path / "older")
    orders(connection.bootstrap, topic, range(5, 8))
    run(made).stream(once=True)
    today = shutil.move(place, tmp_path / "today")
    shutil.copytree(older, place)
    orders(connection.bootstrap, topic, range(8, 9))
    with pytest.raises(PipelineError, match=r"older.*the table is an older copy.*from a copy"):
        run(made).stream(once=True)
    shutil.rmtree(place)
    shutil.move(today, place)
    run(made).stream(once=True)
    assert table(spark, place, sink.format) == expected(range(9))


def test_another_parquet_folder_in_the_place_of_a_table(
    connection: ClientSettings, run: Run, tmp_path: Path, spark: SparkSession
) -> None:
    """Made by another stream, or by hand: files that no list of the sink names."""
    topic = new_topic(connection, "parquet-by-hand")
    made, place = rows_into(Table("files", format="parquet"), topic), tmp_path / "tables" / "files"
    orders(connection.bootstrap, topic, range(5))
    run(made).stream(once=True)
    own = shutil.move(place, tmp_path / "own")
    other = rows_into(Table("others", format="parquet"), topic)
    other.name = "other-parquet"
    run(other).stream(once=True)
    shutil.copytree(tmp_path / "tables" / "others", place)
    with pytest.raises(PipelineError, match="files is not the table that the checkpoint of"):
        run(made).stream(once=True)
    shutil.rmtree(place / "_spark_metadata")
    with pytest.raises(PipelineError, match="files has come to none of"):
        run(made).stream(once=True)
    shutil.rmtree(place)
    shutil.move(own, place)
    run(made).stream(once=True)
    assert table(spark, place, "parquet") == expected(range(5))


def test_another_table_of_postgresql_in_the_place_of_one(
    connection: ClientSettings, run: Run, postgres: Postgres
) -> None:
    topic = new_topic(connection, "postgresql-by-hand")
    url = f"jdbc:postgresql://{postgres.place}"
    made = rows_into(Jdbc("by_hand", url=url, options={"user": "headrace"}), topic)

    def asked(*statements: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(f"postgresql://headrace@{postgres.place}") as database:
            for one in statements:
                answer = database.execute(one)
            return answer.fetchall() if answer.description else []

    orders(connection.bootstrap, topic, range(3))
    run(made).stream(once=True)
    asked("CREATE TABLE of_before AS TABLE by_hand", "CREATE TABLE b AS TABLE headrace_batches")
    asked("CREATE TABLE kept AS TABLE by_hand", "DROP TABLE by_hand")
    asked("ALTER TABLE kept RENAME TO by_hand")
    with pytest.raises(PipelineError, match="by_hand is not the table that the checkpoint of"):
        run(made).stream(once=True)
    # A copy of both is another matter, if it is not older.
    asked("DROP TABLE headrace_batches", "CREATE TABLE headrace_batches AS TABLE b")
    asked("ALTER TABLE headrace_batches ADD PRIMARY KEY (stream)")
    orders(connection.bootstrap, topic, range(3, 5))
    run(made).stream(once=True)
    assert asked("SELECT id FROM by_hand ORDER BY id") == [(n,) for n in range(5)]
    asked("DROP TABLE by_hand", "CREATE TABLE by_hand AS TABLE of_before")
    asked("DROP TABLE headrace_batches", "CREATE TABLE headrace_batches AS TABLE b")
    asked("ALTER TABLE headrace_batches ADD PRIMARY KEY (stream)")
    with pytest.raises(PipelineError, match="by_hand has come to batch 0 of .*an older copy"):
        run(made).stream(once=True)


def test_a_table_of_postgresql_that_goes_while_a_stream_runs_is_not_created_again(
    connection: ClientSettings, run: Run, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection, "dropped-meanwhile")
    url = f"jdbc:postgresql://{postgres.place}"
    made = rows_into(Jdbc("goes", url=url, options={"user": "headrace"}), topic)
    orders(connection.bootstrap, topic, range(60))  # two batches
    kept = SinkIdentity.after_batch

    def after_batch(sink: SinkIdentity) -> None:
        kept(sink)
        with psycopg.connect(f"postgresql://headrace@{postgres.place}") as database:
            database.execute("DROP TABLE goes")

    monkeypatch.setattr(SinkIdentity, "after_batch", after_batch)
    with pytest.raises(PipelineError, match="goes was dropped or created again while it was"):
        run(made).stream(once=True)
    with psycopg.connect(f"postgresql://headrace@{postgres.place}") as database:
        assert database.execute("SELECT to_regclass('goes')").fetchall() == [(None,)]


def test_numbers_are_not_replaced_by_those_of_the_records_that_are_left(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "partial")
    source = Topic(topic, schema=SCHEMA)
    sink = Table("totals", mode="upsert", key="kind")

    @pipeline(source=source, sink=sink, name=topic)
    def totals(rows: DataFrame) -> DataFrame:
        kind = (F.col("id") % 1).alias("kind")
        return rows.groupBy(kind).agg(F.sum("amount").alias("amount"))

    place, folder = tmp_path / "tables" / "totals", Folder(tmp_path, topic)
    orders(connection.bootstrap, topic, range(7))
    run(totals).stream(once=True)
    assert table(spark, place) == [(0, 21)]
    folder.reset(table=False)
    run(totals).stream(once=True)  # all records are there: the same numbers
    assert table(spark, place) == [(0, 21)]
    admin = connection.admin()
    for answer in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        answer.result(60)
    folder.reset(table=False)
    with pytest.raises(PipelineError, match=r"2 records are gone from partial.*--keep-rows"):
        run(totals).stream(once=True)
    assert table(spark, place) == [(0, 21)]
    folder.reset(table=False, keep_rows=True)
    run(totals).stream(once=True)
    assert table(spark, place) == [(0, 19)]


def test_a_checkpoint_is_not_copied_to_another_pipeline(
    connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "copied")
    orders(connection.bootstrap, topic, range(3))
    run(rows_into(Table("copied"), topic)).stream(once=True)
    shutil.copytree(Folder(tmp_path, topic).state, Folder(tmp_path, "copy").state)
    other = rows_into(Table("copied"), topic)
    other.name = "copy"
    with pytest.raises(PipelineError, match="is a copy of the checkpoint of copied"):
        run(other).stream(once=True)


def test_a_table_that_goes_while_a_stream_runs_is_not_created_again(
    connection: ClientSettings, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection, "goes-meanwhile")
    place = tmp_path / "tables" / "goes"
    orders(connection.bootstrap, topic, range(60))  # two batches
    kept = SinkIdentity.after_batch

    def after_batch(sink: SinkIdentity) -> None:
        kept(sink)
        shutil.rmtree(place)

    monkeypatch.setattr(SinkIdentity, "after_batch", after_batch)
    with pytest.raises(PipelineError, match="goes was removed or replaced while goes-meanwhile"):
        run(rows_into(Table("goes"), topic)).stream(once=True)
    assert not place.exists()


def test_a_topic_that_was_written_and_is_gone_is_not_created_again_in_silence(
    connection: ClientSettings, run: Run
) -> None:
    topic = new_topic(connection, "into-a-topic")
    made = rows_into(Topic("written"), topic)
    orders(connection.bootstrap, topic, range(3))
    run(made).stream(once=True)
    Topics(connection).delete("written")
    with pytest.raises(PipelineError, match=r"written was deleted since .*--accept-change.*reset"):
        run(made).stream(once=True)
    new_topic(connection, "written")
    with pytest.raises(PipelineError, match="written was deleted and created again since"):
        run(made).stream(once=True)
    orders(connection.bootstrap, topic, range(3, 5))
    run(made, accept_change=True).stream(once=True)
    assert len(read(connection.bootstrap, "written", 2)) == 2
    run(made).stream(once=True)


def test_a_parquet_table_keeps_its_partitions(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    """Spark would write others beside them, and read only a part of the rows."""
    topic = new_topic(connection, "parquet-partitions")
    made = rows_into(Table("parts", format="parquet", partition_by=("amount",)), topic)
    for first in (0, 3):
        orders(connection.bootstrap, topic, range(first, first + 3))
        run(made).stream(once=True)
    orders(connection.bootstrap, topic, range(6, 8))
    whole = replace(made, sink=Table("parts", format="parquet"))
    with pytest.raises(PipelineError, match="parts is partitioned by amount, not by no column"):
        run(whole, accept_change=True).stream(once=True)
    run(made).stream(once=True)
    assert table(spark, tmp_path / "tables" / "parts", "parquet") == expected(range(8))
