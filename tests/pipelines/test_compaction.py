"""Small files become large ones between batches, and nobody sees another table for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, compaction, pipeline
from headrace.pipelines.compaction import Compaction
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.metrics import pipeline_families
from headrace.pipelines.shipped import delta_without_spark, lake_tables
from headrace.pipelines.stream.folder import Folder, table_held
from tests.interop.brokers import TARGET, make_node
from tests.pipelines.conftest import Run
from tests.pipelines.killing import Sink, _files, rounds
from tests.pipelines.orders import (
    SCHEMA,
    expected,
    forget_last_batch,
    new_topic,
    orders,
    table,
)

pytestmark = pytest.mark.timeout(1800)

KINDS = 3
AT = datetime(2026, 1, 1, tzinfo=UTC)


def rows_of(topic: str, sink: Table) -> Pipeline:
    """Eight orders a batch, two files each and two of each kind, by which tables are partitioned:
    three batches are enough for a compaction."""

    @pipeline(source=Topic(topic, schema=SCHEMA, per_batch=8), sink=sink, name=topic)
    def small(rows: DataFrame) -> DataFrame:
        return rows.select("id", "amount", (F.col("id") % KINDS).cast("string").alias("kind"))

    return small


def operations(spark: SparkSession, place: Path) -> list[str]:
    return [one.operation for one in lake_tables.versions(spark, str(place))]


SINKS: dict[str, dict[str, Any]] = {
    "delta": {},
    "delta by key": {"mode": "upsert", "key": "id"},
    "delta by partition": {"partition_by": ("kind",)},
    "iceberg": {"format": "iceberg", "partition_by": ("kind",)},
}


@pytest.mark.parametrize("kind", SINKS)
def test_a_stream_that_compacts_holds_what_plain_python_computes_over_repeats(
    kind: str, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"small-{kind.replace(' ', '-')}")
    made = rows_of(topic, Table(topic, compact=3, **SINKS[kind]))
    place = tmp_path / "tables" / topic
    seen: dict[int, list[Any]] = {}  # what readers saw of each version when it was the newest
    for first in (0, 24):
        orders(connection.bootstrap, topic, range(first, first + 24))
        run(made).stream(once=True)
        forget_last_batch(tmp_path, topic)  # killed after its compaction, before its checkpoint
        newest = lake_tables.versions(spark, str(place))[-1].version
        seen[newest] = sorted(lake_tables.rows_of(spark, str(place)).collect())
    run(made).stream(once=True)
    held = sorted(lake_tables.rows_of(spark, str(place)).collect())
    assert [tuple(row) for row in held] == [(n, n % 7, str(n % KINDS)) for n in range(48)]
    compacted = [one for one in operations(spark, place) if one in ("optimize", "replace")]
    assert compacted
    assert any(note.startswith(f"compacted {topic}: ") for note in run.notes)
    for version, rows in seen.items():
        then = lake_tables.rows_of(spark, str(place), version=version)
        assert sorted(then.collect()) == rows
    told = Folder(tmp_path, topic).compaction()
    assert told["compactions"] >= 1 and told["files_compacted"] >= compaction.SWEEP_FILES
    families = pipeline_families(Folder(tmp_path, topic), datetime.now(UTC))
    samples = {one.name: list(one.samples) for one in families}
    [(_, counted)] = samples["headrace_pipeline_compactions_total"]
    assert counted == told["compactions"]


def test_many_small_files_are_not_waited_with(
    spark: SparkSession,
    connection: ClientSettings,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction, "MANY_FILES", 6)
    topic = new_topic(connection, "threshold")
    orders(connection.bootstrap, topic, range(40))
    run(rows_of(topic, Table(topic))).stream(once=True)
    assert "optimize" in operations(spark, tmp_path / "tables" / topic)
    off = rows_of(new_topic(connection, "never"), Table("never"))
    orders(connection.bootstrap, "never", range(40))
    runner = run(off)
    runner.compact_every = 0
    runner.stream(once=True)
    assert "optimize" not in operations(spark, tmp_path / "tables" / "never")
    assert not Folder(tmp_path, "never").compaction()


def test_what_fails_is_told_and_the_stream_goes_on(
    connection: ClientSettings, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise PipelineError("the disk is full")

    monkeypatch.setattr(delta_without_spark.DeltaFiles, "compact_partition", refuse)
    topic = new_topic(connection, "refused")
    orders(connection.bootstrap, topic, range(40))
    run(rows_of(topic, Table(topic, compact=2))).stream(once=True)
    said = f"{topic} could not be compacted, the stream goes on: the disk is full"
    assert run.notes.count(said) == 1
    assert Folder(tmp_path, topic).progress()


# ---- one table, looked after by hand


def care(spark: SparkSession, place: Path, lock: Any, notes: list[str], **more: Any) -> Compaction:
    return Compaction(
        table=Table(place.name),
        location=str(place),
        spark=spark,
        folder=Folder(place.parent, "care"),
        lock=lock,
        note=notes.append,
        every=1,
        **more,
    )


ODD = "at TIMESTAMP, day DATE, name STRING, n LONG, share DOUBLE, price DECIMAL(20, 4), raw BINARY"
ROWS: list[tuple[Any, ...]] = [
    (datetime(1, 1, 1, tzinfo=UTC), date(1, 1, 1), "", -(2**63), float("nan"), None, b""),
    (datetime(9999, 12, 31, 23, tzinfo=UTC), date(9999, 12, 31), "ü", 2**63 - 1, -0.0, None, b"\0"),
    (datetime(1582, 10, 10, tzinfo=UTC), date(1582, 10, 10), None, 0, 1e308, Decimal("0.1"), None),
    (None, None, "x" * 1000, None, None, Decimal("-9999999999999999.9999"), b"\xff"),
    (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None, "\n", 1, 0.1, Decimal(1), b"1"),
]
AS_TEXT = ("cast(at AS STRING) AS at", "cast(day AS STRING) AS day", "* EXCEPT (at, day)")


def test_rows_at_the_ends_of_their_types_stay_what_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, notes = tmp_path / "odd", list[str]()
    for row in ROWS:
        frame = spark.createDataFrame([row], ODD).coalesce(1)
        frame.write.format("delta").mode("append").save(str(place))
    before = spark.read.format("delta").load(str(place)).selectExpr(*AS_TEXT).collect()
    with table_held(str(place), alone=False) as lock:
        care(spark, place, lock, notes).after_batch(0)
    after = spark.read.format("delta").load(str(place)).selectExpr(*AS_TEXT).collect()
    assert sorted(map(repr, after)) == sorted(map(repr, before))
    assert len(notes) == 1 and notes[0].startswith("compacted odd: 5 small files before, 1 now")


VALUES: dict[str, tuple[Any, list[Any]]] = {
    "text": (pa.string(), ["a", "b ü/=%:'x"]),
    "whole": (pa.int64(), [0, -(2**40)]),
    "day": (pa.date32(), [date(2026, 1, 1), date(1, 1, 1)]),
    "null": (pa.string(), [None, ""]),
    "flag": (pa.bool_(), [True, False]),
    "moment": (pa.timestamp("us", "UTC"), [AT, AT + timedelta(microseconds=5)]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_partitions_of_each_kind_of_value_are_found_and_compacted(
    kind: str, tmp_path: Path
) -> None:
    """Without Spark; those that a filter cannot name go with the whole table."""
    place, (form, values) = str(tmp_path / kind), VALUES[kind]
    for n in range(12):
        rows = pa.table({"part": pa.array([values[n % 2]], form), "n": [n]})
        write_deltalake(place, rows, mode="append", partition_by=["part"])
    files = delta_without_spark.found(place)
    assert files is not None
    for part, small in files.small_files(2**20).items():
        assert (small.count, small.size_bytes > 0) == (12 if kind == "null" else 6, True)
        files.compact_partition(part, target_bytes=2**20)
    assert {one.count for one in files.small_files(2**20).values()} == {1}
    held = pa.table(DeltaTable(place).to_pyarrow_table()).to_pylist()
    found = sorted((row["n"], row["part"] or None) for row in held)
    assert found == [(n, values[n % 2] or None) for n in range(12)]


def test_a_table_that_keeps_its_files_for_longer_is_vacuumed_as_it_says(tmp_path: Path) -> None:
    """Without Spark. Otherwise the vacuum would be refused again and again."""
    place, keeps = str(tmp_path / "kept"), {delta_without_spark.RETENTION: "interval 30 days"}
    for n in range(2):
        write_deltalake(place, pa.table({"n": [n]}), mode="overwrite", configuration=keeps)
    months_ago = time.time() - 60 * 86_400
    (tmp_path / "kept" / "left-behind.parquet").touch()
    os.utime(tmp_path / "kept" / "left-behind.parquet", (months_ago, months_ago))
    files = delta_without_spark.found(place)
    assert files is not None and files.vacuum(compaction.KEEP_HOURS) == 1
    assert DeltaTable(place, version=0).to_pyarrow_table().num_rows == 1


def test_a_table_that_another_process_appends_to_is_left_alone_until_it_is_free(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, notes = tmp_path / "shared", list[str]()
    for n in range(6):
        spark.range(n, n + 1).coalesce(1).write.format("delta").mode("append").save(str(place))
    with table_held(str(place), alone=False) as lock:
        ours = care(spark, place, lock, notes)
        with table_held(str(place), alone=False):
            ours.after_batch(0)
            assert not notes
        ours.after_batch(1)
        with table_held(str(place), alone=False):
            pass  # and shared again afterwards
    assert len(notes) == 1 and notes[0].startswith("compacted shared: 6 small files before, 1 now")
    assert table(spark, place) == [(n,) for n in range(6)]


def test_vacuum_removes_what_is_older_than_a_week_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, notes = tmp_path / "old", list[str]()
    for n in range(5):
        spark.range(n, n + 1).coalesce(1).write.format("delta").mode("append").save(str(place))
    clock = [1000.0]
    with table_held(str(place), alone=True) as lock:
        ours = care(spark, place, lock, notes, wall=lambda: clock[0])
        ours.after_batch(0)
        clock[0] += compaction.VACUUM_EVERY_S
        ours.after_batch(1)
        assert lake_tables.rows_of(spark, str(place), version=4).count() == 5
        assert len(notes) == 1  # an hour later there was nothing to remove
        # Eight days later, as the table's log tells it.
        for commit in (place / "_delta_log").glob("*.json"):
            aged = re.sub(r'"deletionTimestamp":(\d+)', _eight_days_before, commit.read_text())
            commit.write_text(aged)
            (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)
        again = care(spark, place, lock, notes, wall=lambda: clock[0])
        clock[0] += compaction.VACUUM_EVERY_S
        again.after_batch(2)
    assert notes[1:] == ["vacuumed old: 5 files of versions older than 168 hours"]
    assert table(spark, place) == [(n,) for n in range(5)]
    assert len(list(place.glob("*.parquet"))) == 1


def _eight_days_before(found: re.Match[str]) -> str:
    return f'"deletionTimestamp":{int(found[1]) - 8 * 86_400_000}'


# ---- killed


WRITER = """
import sys
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from headrace.pipelines.shipped import delta_without_spark

place = sys.argv[1]
done = DeltaTable(place).transaction_version("stream") if DeltaTable.is_deltatable(place) else None
for batch in range(0 if done is None else done + 1, 1000):
    once = CommitProperties(app_transactions=[Transaction("stream", batch)])
    write_deltalake(place, pa.table({"n": [batch]}), mode="append", commit_properties=once)
    print(batch, flush=True)
    if batch % 5 == 4:
        delta_without_spark.found(place).compact_partition((), target_bytes=2**20)
"""


def test_one_that_is_killed_while_it_compacts_leaves_the_old_files_or_the_new_ones(
    tmp_path: Path,
) -> None:
    """Without Spark, so that there can be many kills: when a compaction begins, and in every other
    life when it has written a file, which no version names yet."""
    place, last = tmp_path / "killed", -1
    for life in range(4):
        command = [sys.executable, "-c", WRITER, str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            first, last = last, int(writer.stdout.readline())
            while last % 5 != 4 or last == first:
                last = int(writer.stdout.readline())
            before = _files_in(place)
            while life % 2 and _files_in(place) == before:
                assert writer.poll() is None
            writer.kill()
        rows = pa.table(DeltaTable(place).to_pyarrow_table())["n"].to_pylist()
        assert sorted(rows) == list(range(len(rows))) and len(rows) > last
    delta_without_spark.found(str(place)).compact_partition((), target_bytes=2**20)
    assert len(DeltaTable(place).file_uris()) < len(rows)
    after = pa.table(DeltaTable(place).to_pyarrow_table())["n"].to_pylist()
    assert sorted(after) == sorted(rows)


def _files_in(place: Path) -> int:
    return sum(1 for _ in place.glob("*.parquet"))


KILLS = (("driver", "writing"), ("driver and spark", "written"), ("driver", "written"))


@pytest.mark.full
def test_after_kills_while_it_compacts_the_table_holds_each_record_once(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each batch is followed by a compaction, and killed when it is in the table and not yet in
    the checkpoint: that is when the table is compacted."""
    sink = Sink('Table("killed", compact=1)', _files("_delta_log/*.json"))
    with make_node(TARGET, tmp_path / "node") as node:
        killed = rounds(node, sink, tmp_path / "run", len(KILLS), seed=7, kills=KILLS)
    assert killed.before_checkpoint  # or this shows nothing
    spark = request.getfixturevalue("spark")
    place = tmp_path / "run" / "tables" / "killed"
    assert table(spark, place) == expected(range(killed.orders))
    assert "optimize" in operations(spark, place)
