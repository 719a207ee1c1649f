"""What is decided before Spark does anything: state, backfills, SQL, where reading starts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines import Console, Jdbc, Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline, Sink, Source
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.pipeline_names import load
from headrace.pipelines.rows.record_rows import source_options
from headrace.pipelines.rows.schema import avro_of, enveloped, from_seen
from headrace.pipelines.sinks.jdbc import statements
from headrace.pipelines.spark.shape import Node, remedy, stateful_operator
from headrace.pipelines.spark.spark_errors import explained, innermost
from headrace.pipelines.stream import backfill

URL = "jdbc:postgresql://localhost/shop"


def a_pipeline(sink: Sink, source: Source | None = None) -> Pipeline:
    made = pipeline(source=source or Topic("t"), sink=sink, name="p")
    return made(lambda rows: rows)


# ---- state


def plan(*names: str) -> Node:
    """A chain of operators down to a stream."""
    node = Node("StreamingRelationV2", True)
    for name in reversed(names):
        node = Node(name, True, [node])
    return node


def test_rows_that_go_their_own_way_keep_no_state() -> None:
    assert stateful_operator(plan("Project", "Filter", "EventTimeWatermark")) is None
    assert stateful_operator(plan("Project", "Aggregate", "Filter")) == "Aggregate"
    assert stateful_operator(plan("Deduplicate")) == "Deduplicate"
    assert stateful_operator(plan("Sort")) == "Sort"  # not known to work row by row


def test_a_join_keeps_state_if_both_sides_stream() -> None:
    prices = Node("Aggregate", False, [Node("LogicalRelation", False)])
    assert stateful_operator(Node("Join", True, [plan("Project"), prices])) is None
    both = Node("Join", True, [plan("Project"), plan("Project")])
    assert stateful_operator(both) == "Join of two streams"


# ---- backfills

UPSERT = Table("a", mode="upsert", key="id")


@pytest.mark.parametrize(
    ("sink", "operator", "way"),
    [
        (Table("a"), None, backfill.BATCH),
        (Table("a", format="iceberg"), None, backfill.BATCH),
        (Table("a", format="parquet"), None, backfill.STREAM),
        (UPSERT, None, backfill.BATCH),
        (UPSERT, "Aggregate", backfill.STREAM),
        (Jdbc("a", url=URL, key="id"), "Aggregate", backfill.STREAM),
        (Jdbc("a", url=URL), None, backfill.BATCH),
    ],
)
def test_how_history_is_handed_over(sink: Sink, operator: str | None, way: str) -> None:
    assert backfill.way_of(a_pipeline(sink), operator) == way


@pytest.mark.parametrize(
    ("made", "operator", "why"),
    [
        (a_pipeline(Table("a")), "Aggregate", r"keeps state \(Aggregate\) and appends"),
        (a_pipeline(Console()), None, "cannot tell a repeat"),
        (a_pipeline(Topic("out")), None, "cannot tell a repeat"),
        (a_pipeline(UPSERT, Table("b")), None, "reads a table"),
    ],
)
def test_what_cannot_be_handed_over_is_refused(made: Any, operator: str | None, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        backfill.way_of(made, operator)


def test_where_a_stream_began_and_where_it_goes_on(tmp_path: Path) -> None:
    assert backfill.begun_at(tmp_path) is None
    place = tmp_path / "sources" / "0"
    place.mkdir(parents=True)
    (place / "0").write_bytes(b'\0v1\n{"t":{"0":7,"1":9}}')  # as Spark 4.0 was seen to write it
    began = backfill.begun_at(tmp_path)
    assert began == {"t": {"0": 7, "1": 9}}
    grown = {"t": [0, 1, 2]}
    assert json.loads(backfill.completed(began, grown, backfill.EARLIEST)) == {
        "t": {"0": 7, "1": 9, "2": -2}
    }
    assert json.loads(backfill.completed(began, grown, 0))["t"]["2"] == 0


# ---- SQL for PostgreSQL


def test_rows_are_taken_over_by_key() -> None:
    sink = Jdbc("shop.revenue", url=URL, key=("shop", "day"), newest="at")
    columns_of = ["shop", "day", 'the "sum"', "at"]
    make, take = statements(sink, '"s"', columns_of, ["at"])
    target, columns = '"shop"."revenue"', '"shop", "day", "the ""sum""", "at"'
    assert make == (f'CREATE TABLE IF NOT EXISTS {target} (LIKE "s", PRIMARY KEY ("shop", "day"))')
    assert take == (
        f'INSERT INTO {target} AS t ({columns}) SELECT {columns} FROM "s" '
        'ON CONFLICT ("shop", "day") DO UPDATE SET "the ""sum""" = EXCLUDED."the ""sum""", '
        '"at" = EXCLUDED."at" WHERE CASE WHEN t."at" IS NULL THEN '
        'NOT EXCLUDED."at" IS NULL OR TRUE ELSE (EXCLUDED."at") >= (t."at") END'
    )
    placed = statements(
        sink, '"s"', [*columns_of, "_record_offset"], ["at", "_record_offset"], ["at"]
    )
    assert placed[1].endswith(
        'OR (COALESCE(EXCLUDED."_record_offset", -1)) >= (COALESCE(t."_record_offset", -1)) ELSE '
        '(EXCLUDED."at" COLLATE "C", COALESCE(EXCLUDED."_record_offset", -1)) >= '
        '(t."at" COLLATE "C", COALESCE(t."_record_offset", -1)) END'
    )
    assert statements(Jdbc("a", url=URL, key="id"), '"s"', ["id"])[1].endswith("DO NOTHING")
    assert "CONFLICT" not in statements(Jdbc("a", url=URL), '"s"', ["id"])[1]


# ---- topics


def test_where_reading_starts() -> None:
    def said(**given: Any) -> dict[str, str]:
        options = source_options(Topic("t", **given), "b:1")
        return {name: value for name, value in options.items() if name.startswith("starting")}

    assert said() == {"startingOffsets": "earliest"}
    assert said(starting={0: 5, 1: 0}) == {"startingOffsets": '{"t": {"0": 5, "1": 0}}'}
    by_time = {"startingTimestamp": "1767225600000", "startingOffsetsByTimestampStrategy": "latest"}
    assert said(starting="2026-01-01") == by_time
    assert said(starting=datetime(2026, 1, 1, tzinfo=UTC)) == by_time


def test_a_pattern_reads_all_topics_that_match() -> None:
    orders = Topic(r"orders\.[a-z]+", pattern=True)
    assert source_options(orders, "b:1")["subscribePattern"] == orders.name
    assert orders.matches("orders.eu") and not orders.matches("orders.eu.old")
    assert a_pipeline(Console(), orders).dead_topic == "pipeline.p.dead"
    with pytest.raises(PipelineError, match="would come back"):
        a_pipeline(Console(), Topic(".*", pattern=True))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Topic("(", pattern=True),
        lambda: Topic("t", starting={}),
        lambda: Topic("t", starting={0: -1}),
        lambda: Topic("t", format="xml"),
        lambda: Topic("t", format="avro"),
        lambda: a_pipeline(Console(), Topic("t", format="avro", schema="id LONG")),
        lambda: a_pipeline(Topic("t")),
        lambda: a_pipeline(Topic("out", schema="id LONG")),
        lambda: a_pipeline(Topic("out.*", pattern=True)),
        lambda: a_pipeline(Table("a", event_time="time", late="1 hour")),
        lambda: a_pipeline(Table("a"), Table("a")),
        lambda: a_pipeline(Table("b"), UPSERT),
        lambda: Table("a", format="iceberg", mode="upsert", key="id"),
        lambda: Jdbc("a", url="jdbc:mysql://localhost/shop"),
        lambda: Jdbc("a.b.c", url=URL),
        lambda: Jdbc("a", url=URL, newest="at"),
    ],
)
def test_what_does_not_go_together_is_refused(make: Any) -> None:
    with pytest.raises(PipelineError):
        make()


def test_rows_that_replace_others_are_written_each_time_they_change() -> None:
    assert UPSERT.output_mode == Topic("out").output_mode == Console().output_mode == "update"
    assert Table("a").output_mode == Jdbc("a", url=URL).output_mode == "append"
    assert Topic("out", final=True).output_mode == "append"
    assert Jdbc("a", url=URL, key="id").output_mode == "update"


# ---- schemas


def test_a_schema_from_what_was_seen() -> None:
    seen = (
        "OBJECT<`a b`: BIGINT, n: DECIMAL(2, 1), o: OBJECT<x: VOID, y: ARRAY<OBJECT<>>>, t: STRING>"
    )
    assert from_seen(seen, "t") == (
        "`a b`: BIGINT, n: DOUBLE, o: STRUCT<x: STRING, y: ARRAY<VARIANT>>, t: TIMESTAMP"
    )
    for nothing in ("OBJECT<>", "ARRAY<BIGINT>", "VARIANT"):
        with pytest.raises(PipelineError, match="no columns"):
            from_seen(nothing)


def test_an_avro_schema_is_one_of_a_record() -> None:
    good = '{"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}'
    assert avro_of(good) == good
    assert json.loads(enveloped(good))["fields"][0]["type"] == json.loads(good)
    for bad in ('"string"', "{", "id LONG", int):
        with pytest.raises(PipelineError, match="Avro schema"):
            avro_of(bad)


# ---- failures


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE", "newest="),
        ("Some data may have been lost ... failOnDataLoss", "are gone from t"),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: x", "are gone from t"),
        ("[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected", "a stream reads only what is added"),
        ("A schema mismatch detected when writing to the Delta table", "do not fit the table a"),
        ("Checksum error: file:/c/offsets/1 at 0 exp: 1 got: 2", "is damaged"),
        ("Failed to read log file file:/c/commits/3. Incomplete log file", "is damaged"),
        ("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema", "another function"),
        ("first line\n second\nat java.lang", "p failed: first line second."),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with "
            "name `nix` cannot be resolved. Did you mean one of the following? [`id`, `amount`]. "
            "SQLSTATE: 42703;\n'Project ['nix]\n+- Relation",
            "p failed: there is no column nix; there are id, amount.",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n"
            "org.apache.spark.SparkException: Task failed\n\tat org.apache.spark.A\n"
            "Caused by: java.io.IOException: disk is full\n\tat java.B\n... 9 more",
            "p failed: disk is full.",
        ),
        (
            "Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call "
            'last):\n  File "/x/pyspark/worker.py", line 1, in main\n    process()\n'
            '  File "/srv/shop.py", line 7, in ratio\n    return 1 / n\n'
            "ZeroDivisionError: division by zero\n\n\tat org.apache.spark.api.python.A",
            "ZeroDivisionError: division by zero in ratio (shop.py, line 7: return 1 / n).",
        ),
        ("", "no reason"),
    ],
)
def test_sparks_failures_in_a_sentence(said: str, meant: str) -> None:
    assert meant in explained(a_pipeline(Table("a")), said)


def test_a_name_alone_is_one_that_comes_with_it() -> None:
    with pytest.raises(PipelineError, match="comes with Headrace"):
        load("no-such-pipeline")


def test_advice_about_a_refused_stream_fits_what_it_does() -> None:
    """The words are those of Spark 4.0's own check."""
    of_streams = "not supported on streaming DataFrames/Datasets"
    assert "sort the table when you read it" in remedy(f"Sorting is {of_streams}, unless ...")
    assert "F.window" in remedy(f"Non-time-based windows are {of_streams}")
    assert "must keep only rows of the stream" in remedy(f"RightOuter joins are {of_streams}")
    assert remedy("Multiple streaming aggregations") == ""


def test_an_error_of_python_has_the_line_of_the_person_s_own_code() -> None:
    said = """[STREAM_FAILED] Query terminated
Traceback (most recent call last):
  File "/usr/lib/pyspark/worker.py", line 1830, in main
    process()
    ~~~~~~~^^
  File "/srv/shop.py", line 12, in share
    return 10 // (n - n)
           ~~~^^~~~~~~~~
ZeroDivisionError: integer division or modulo by zero
\tat org.apache.spark.api.python.BasePythonRunner"""
    assert innermost(said) == (
        "ZeroDivisionError: integer division or modulo by zero "
        "in share (shop.py, line 12: return 10 // (n - n))"
    )
