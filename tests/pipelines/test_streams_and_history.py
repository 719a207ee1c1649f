"""Where a stream could silently differ from history: joins, equal times, zones, restarts."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, by_day, day, expect, pipeline
from headrace.pipelines import read as from_topic
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.expectation import Expectation
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.pipeline_names import load
from headrace.pipelines.spark.shape import must_stream
from headrace.pipelines.stream.folder import Folder, table_held
from headrace.pipelines.stream.span import parse
from headrace.pipelines.testing import run as try_on
from tests.pipelines.conftest import Run
from tests.pipelines.orders import (
    SCHEMA,
    expected,
    forget_last_batch,
    new_topic,
    order,
    orders,
    put,
    read,
    rows_into,
    table,
)

pytestmark = pytest.mark.timeout(1200)

PLACES = "id LONG NOT NULL, country STRING"
Function = Callable[[DataFrame, DataFrame], DataFrame]


def countries(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [("de", "Germany"), ("fr", "France")], "country STRING, name STRING"
    )


def joined(topic: str, name: str, function: Function, **sink: Any) -> Pipeline:
    @pipeline(source=Topic(topic, schema=PLACES, per_batch=1), sink=Table(name, **sink), name=name)
    def made(rows: DataFrame) -> DataFrame:
        return function(rows, countries(rows.sparkSession))

    return made


KEEPS_THE_STREAM: dict[str, Function] = {
    "inner": lambda rows, static: rows.join(static, "country"),
    "left": lambda rows, static: rows.join(static, "country", "left"),
    "semi": lambda rows, static: rows.join(static, "country", "left_semi"),
    "anti": lambda rows, static: rows.join(static, "country", "left_anti"),
    "right": lambda rows, static: static.join(rows, "country", "right"),
    "twice": lambda rows, static: rows.unionByName(rows.where("id > 1")),
}
KEEPS_THE_TABLE: dict[str, Function] = {
    "right": lambda rows, static: rows.join(static, "country", "right"),
    "left": lambda rows, static: static.join(rows, "country", "left"),
    "full": lambda rows, static: rows.join(static, "country", "full"),
    "anti": lambda rows, static: static.join(rows, "country", "left_anti"),
    "semi": lambda rows, static: static.join(rows, "country", "left_semi"),
    "union": lambda rows, static: rows.select("country").union(static.select("country")),
    "table": lambda rows, static: static,
}


def test_a_join_with_a_table_makes_the_rows_that_history_makes_or_is_refused(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "joined")
    places = [{"id": 1, "country": "de"}, {"id": 2, "country": "it"}]
    put(connection.bootstrap, topic, [json.dumps(one).encode() for one in places])
    for way in ("right", "anti"):  # of what Spark allows; each record is a batch
        made = joined(topic, f"keeps-{way}", KEEPS_THE_STREAM[way])
        run(made).stream(once=True)
        run(made).history(parse(".."), into=f"{made.name}-history")
        streamed = table(spark, tmp_path / "tables" / made.name)
        assert streamed == table(spark, tmp_path / "tables" / f"{made.name}-history")
        assert ("it", 2) in streamed or ("it", None, 2) in streamed
    for function in KEEPS_THE_STREAM.values():
        stream = spark.readStream.format("rate").load().selectExpr("value AS id", "'de' AS country")
        must_stream(made, function(stream, countries(spark)), "append")
    for way, function in KEEPS_THE_TABLE.items():
        made = joined(topic, f"table-{way}", function)
        for backfill in (False, True):
            with pytest.raises(PipelineError, match=r"as a stream|does not come from the rows"):
                run(made).stream(once=True, backfill=backfill)
        assert not (tmp_path / "tables" / made.name).exists()


# ---- rows of the same moment


def test_of_rows_of_one_moment_the_last_record_stays_in_stream_and_history(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "same-moment")
    # Each key lies in both partitions, n % 2; of those with the greatest t partition 1 is the last.
    values = [{"id": n // 2 % 5, "t": min(n // 20, 1), "n": n} for n in range(60)]
    put(connection.bootstrap, topic, [json.dumps(one).encode() for one in values])
    source = Topic(topic, schema="id LONG NOT NULL, t LONG, n LONG", per_batch=25)
    sink = Table("moments", mode="upsert", key="id", newest="t")

    @pipeline(source=source, sink=sink, name="moments")
    def moments(rows: DataFrame) -> DataFrame:
        return rows.where("n >= 0").select("id", "t", (rows["n"] * 10).alias("ten"))

    run(moments).stream(once=True)
    run(moments).history(parse(".."), into="moments-history")
    last: dict[int, tuple[int, int, int, int]] = {}
    for n, one in enumerate(values):
        place = (one["t"], n % 2, n // 2, n * 10)
        last[one["id"]] = max(last.get(one["id"], place), place)
    wanted = [(key, t, ten, p, o) for key, (t, p, o, ten) in sorted(last.items())]
    for name in ("moments", "moments-history"):
        assert table(spark, tmp_path / "tables" / name) == wanted, name


# ---- a table whose rows change their shape


@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_new_columns_are_added_and_told_of_and_other_types_refused(
    mode: str, spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, f"grows-{mode}")
    source = Topic(topic, schema="id LONG NOT NULL, country STRING")
    keyed: dict[str, Any] = {"mode": "upsert", "key": "id"} if mode == "upsert" else {}

    def made(*columns: str) -> Pipeline:
        sink = Table(topic, **keyed)
        return pipeline(source=source, sink=sink, name=topic)(
            lambda rows: rows.selectExpr(*columns)
        )

    def put_one(number: int) -> None:
        value = json.dumps({"id": number, "country": "de"}).encode()
        put(connection.bootstrap, topic, [value], number)

    put_one(1)
    run(made("id", "country")).stream(once=True)
    put_one(2)
    run(made("id", "country", "upper(country) AS big"), accept_change=True).stream(once=True)
    assert f"new columns in {topic}: big STRING" in run.notes
    put_one(3)
    run(made("id", "length(country) AS size"), accept_change=True).stream(once=True)
    assert f"rows for {topic} have no country, big any more: null from now on" in run.notes
    rows = spark.read.format("delta").load(str(tmp_path / "tables" / topic))
    assert rows.columns == ["id", "country", "big", "size"]
    assert [tuple(row) for row in rows.orderBy("id").collect()] == [
        (1, "de", None, None),
        (2, "de", "DE", None),
        (3, None, None, 2),
    ]
    put_one(4)
    with pytest.raises(PipelineError, match=r"size is int, not string.*reset .* --table"):
        run(made("id", "country AS size"), accept_change=True).stream(once=True)


# ---- a topic that is not what it was


def test_a_topic_that_is_made_anew_while_the_stream_idles_ends_it(
    connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "anew")
    orders(connection.bootstrap, topic, range(10))
    folder = Folder(tmp_path, topic)

    def make_anew() -> None:
        deadline = time.monotonic() + 240
        while folder.progress() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        Topics(connection).delete(topic)
        new_topic(connection, topic)
        orders(connection.bootstrap, topic, range(100, 130))

    other = threading.Thread(target=make_anew)
    other.start()
    with pytest.raises(PipelineError, match=f"anew was deleted and created again.*reset {topic}"):
        run(rows_into(Table("anew"), topic)).stream()
    other.join()


# ---- who else writes


def test_history_beside_a_stream_of_the_same_table_is_refused(
    connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "beside")
    made = joined(topic, "beside", KEEPS_THE_STREAM["left"], mode="upsert", key="id")
    with Folder(tmp_path, "beside").held(), pytest.raises(PipelineError, match="runs already"):
        run(made).history(parse(".."))
    place = str(tmp_path / "tables" / "beside")
    with table_held(place, alone=True):
        for runs in (run(made).history, lambda span: run(made).stream(once=True)):
            with pytest.raises(PipelineError, match="is being written by process"):
                runs(parse(".."))
        with pytest.raises(PipelineError, match="is being written by process"):
            run(joined(topic, "other", KEEPS_THE_STREAM["left"], mode="upsert", key="id")).history(
                parse(".."), into="beside"
            )
    with table_held(place, alone=False), table_held(place, alone=False):
        pass  # appends go side by side


# ---- what is told of


def test_a_run_tells_how_far_behind_it_is_and_how_many_were_bad_over_a_kill(
    connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "told")
    put(connection.bootstrap, topic, [b"bad"] * 3)
    orders(connection.bootstrap, topic, range(3, 40))
    made = rows_into(Table("told"), topic)
    run(made).stream(once=True)  # 40 of them are one batch
    orders(connection.bootstrap, topic, range(40, 100))
    # As if that process had been killed before its checkpoint, and what it told was lost.
    assert forget_last_batch(tmp_path, topic) == 0
    folder = Folder(tmp_path, topic)
    folder.keep_progress({**(folder.progress() or {}), "dead": 0})
    run.notes.clear()
    run(made).stream(once=True)
    [first] = [note for note in run.notes if note.startswith("batch 0")]
    assert "60 behind" in first
    dead = read(connection.bootstrap, made.dead_topic, 6)  # at least once: the batch was repeated
    assert (folder.progress() or {})["dead"] == len(dead) == 6
    run.notes.clear()
    run(made).stream(once=True)
    assert run.notes == [f"nothing new in {topic} since {topic} ran last"]


# ---- days


def test_days_are_those_of_the_zone_also_where_they_have_25_hours(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic, zone = new_topic(connection, "zoned"), ZoneInfo("America/New_York")
    began = datetime(2026, 10, 31, 20, tzinfo=UTC)  # clocks go back on the 1st of November
    times = [began + timedelta(minutes=20 * n) for n in range(150)]
    values = [{"time": one.strftime("%Y-%m-%dT%H:%M:%SZ")} for one in times]
    producer = Producer({"bootstrap.servers": connection.bootstrap})
    for value, at in zip(values, times, strict=True):
        at_ms = int(at.timestamp() * 1000)
        producer.produce(topic, json.dumps(value).encode(), partition=0, timestamp=at_ms)
    assert producer.flush(60) == 0
    source = Topic(topic, schema="time TIMESTAMP", event_time="time", late="1 hour", per_batch=60)
    sink = Table("zoned", mode="upsert", key="day")

    @pipeline(source=source, sink=sink, name="zoned", zone=zone.key)
    def zoned(rows: DataFrame) -> DataFrame:
        return by_day(rows, "time").count().select(day().alias("day"), "count")

    run(zoned).stream(once=True)
    run(zoned).history(parse(".."), into="zoned-history")
    wanted = sorted(Counter(one.astimezone(zone).date() for one in times).items())
    assert dict(wanted)[date(2026, 11, 1)] == 75  # 25 hours of three
    for name in ("zoned", "zoned-history"):
        assert table(spark, tmp_path / "tables" / name) == wanted, name
    assert "1 in state" in run.notes[-3]  # days that are over were dropped
    with pytest.raises(PipelineError, match="belongs to the zone America/New_York, not UTC"):
        run(zoned.in_zone("UTC")).stream(once=True)


# ---- a function that raises


def test_a_record_for_which_the_function_raises_is_a_dead_letter_and_the_rest_goes_on(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "raises")
    orders(connection.bootstrap, topic, range(40))

    @pipeline(source=Topic(topic, schema=SCHEMA), sink=Table("raises"), name=topic)
    def raises(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("id", "amount", "100 DIV (id - 17) AS share")

    runner = run(raises)
    runner.stream(once=True)
    kept = [row[:2] for row in table(spark, tmp_path / "tables" / "raises")]
    assert kept == [one for one in expected(range(40)) if one[0] != 17]
    [letter] = read(connection.bootstrap, raises.dead_topic, 1)
    assert json.loads(letter["value"])["id"] == 17
    assert letter["headrace-dead-message"].startswith(b"the function raised Division by zero")
    assert runner.dead == 1


def test_rows_can_be_tried_without_a_broker_and_read_without_a_pipeline(
    spark: SparkSession, connection: ClientSettings
) -> None:
    topic = new_topic(connection, "tried")
    made = rows_into(Table("tried"), topic)
    done = try_on(made, [order(3), {"id": 1}, "no JSON"], spark)
    assert done.rows == [{"id": 3, "amount": 3}]
    assert done.bad == [
        ({"id": 1}, "the field time is missing"),
        ("no JSON", "the value is not a JSON object"),
    ]
    put(connection.bootstrap, topic, [json.dumps(order(3)).encode(), b"no JSON"])
    asked: Any = {"schema": SCHEMA, "bootstrap": connection.bootstrap, "spark": spark}
    assert [row["id"] for row in from_topic(topic, **asked).collect()] == [3]
    [bad] = from_topic(topic, bad=True, **asked).collect()
    assert (bad["value"], bad["why"]) == (bytearray(b"no JSON"), "the value is not a JSON object")


def test_rows_are_tried_in_the_zone_of_the_pipeline_also_in_a_session_that_is_given(
    spark: SparkSession,
) -> None:
    @pipeline(source=Topic("t", schema=SCHEMA), sink=Table("t"), zone="America/New_York")
    def days(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("CAST(to_date(time) AS STRING) AS day")

    assert try_on(days, [order(0)], spark).rows == [{"day": "2025-12-31"}]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_rows_that_break_a_rule_are_set_aside_left_out_or_stop_the_stream(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "rules")
    orders(connection.bootstrap, topic, range(21))

    def ruled(name: str, *rules: Expectation) -> Pipeline:
        source = Topic(topic, schema=SCHEMA, expect=rules)
        return pipeline(source=source, sink=Table(name), name=name)(lambda rows: rows.select("id"))

    both = (expect("amount <> 3"), expect("amount BETWEEN 0 AND 5", then="drop"))
    kept = [(n,) for n in range(21) if n % 7 not in (3, 6)]
    runner = run(ruled("ruled", *both))
    runner.stream(once=True)
    assert table(spark, tmp_path / "tables" / "ruled") == kept
    letters = read(connection.bootstrap, runner.pipeline.dead_topic, 3)
    assert {one["headrace-dead-message"] for one in letters} == {b"expected amount <> 3"}
    assert runner.dead == 3
    assert "3 rows where amount BETWEEN 0 AND 5 does not hold: left out" in run.notes
    stops = ruled("stops", expect("amount < 6", then="stop"))
    with pytest.raises(PipelineError, match="stops: a batch has 3 rows where amount < 6 does not"):
        run(stops).stream(once=True)
    assert not (tmp_path / "tables" / "stops").exists()


def test_a_rule_that_raises_an_error_is_broken_by_that_record(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "raising-rules")
    orders(connection.bootstrap, topic, range(14))

    def ruled(name: str, *rules: Expectation) -> Pipeline:
        source = Topic(topic, schema=SCHEMA, expect=rules)
        return pipeline(source=source, sink=Table(name), name=name)(lambda rows: rows.select("id"))

    # Both share a part that raises: it must not be computed ahead of them.
    runner = run(ruled("raising", expect("100 / amount > 20"), expect("100 / amount < 1000")))
    runner.stream(once=True)
    kept = [(n,) for n in range(14) if n % 7 in (1, 2, 3, 4)]
    assert table(spark, tmp_path / "tables" / "raising") == kept
    letters = read(connection.bootstrap, runner.pipeline.dead_topic, 6)
    said = sorted(one["headrace-dead-message"].decode() for one in letters)
    raised = "expected 100 / amount > 20, which raised an error for this record"
    assert said == ["expected 100 / amount > 20"] * 4 + [raised] * 2
    run(ruled("dropping", expect("100 / amount > 20", then="drop"))).stream(once=True)
    assert table(spark, tmp_path / "tables" / "dropping") == kept
    assert "2 rows where 100 / amount > 20 raises an error: left out" in run.notes
    stops = ruled("stopping", expect("100 / amount > 1", then="stop"))
    wanted = f"2 rows where 100 / amount > 1 raises an error, the first at {topic} 0/0"
    with pytest.raises(PipelineError, match=wanted):
        run(stops).stream(once=True)
    with pytest.raises(PipelineError, match="expect= does not fit the schema: there is no column"):
        run(ruled("unknown", expect("price > 0"))).stream(once=True)


def test_helpers_in_the_file_of_a_pipeline_reach_the_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No worker can import it: it lies where nobody looks. Its `col` and `udf` stand outside of
    functions, as Spark runs already."""
    (tmp_path / "shop_of_helpers.py").write_text(SHOP)
    made = load(f"{tmp_path / 'shop_of_helpers.py'}:doubled")
    sys.path.remove(str(tmp_path))
    assert try_on(made, [order(3)], spark).rows == [{"id": 3, "twice": 6}]


SHOP = """
from pyspark.sql.functions import col, udf

from headrace.pipelines import Console, Topic, pipeline

AMOUNT = col("amount")


def helped(n):
    return n * 2


@udf("long")
def twice(n):
    return helped(n)


@pipeline(source=Topic("t", schema="id LONG, amount LONG"), sink=Console())
def doubled(rows):
    return rows.select("id", twice(AMOUNT).alias("twice"))
"""
