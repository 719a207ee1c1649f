"""What people send and do: each case a clear message, nothing lost silently."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.backfill import Offsets
from headrace.pipelines.stream.counted import CountedBadRecords
from headrace.pipelines.stream.dead_letters import DeadLetters
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.queries import Streaming
from tests.pipelines.conftest import Run
from tests.pipelines.orders import SCHEMA, expected, new_topic, orders, put, read, rows_into, table
from tests.pipelines.test_pipelines import daily

pytestmark = pytest.mark.timeout(1200)

GOOD = b'{"id": %d, "time": "2026-01-01T00:00:00Z", "amount": 1}'
BAD: dict[bytes | None, str] = {
    b"{broken": "the value is not JSON",
    b"": "the value is not a JSON object",
    None: "the value is null",
    b'{"id": "seven", "time": "2026-01-01T00:00:00Z", "amount": 1}': 'the field id is "seven",',
    b'{"id": 7, "time": "2026-01-01T00:00:00Z"}': "the field amount is missing",
    b'{"id": 8, "time": "9999-12-31T23:59:59Z", "amount": 1}': "more than 5 minutes after",
    b'{"id": 8, "time": "0001-01-01T00:00:00Z", "amount": 1}': "time is before 1970",
    b'{"id": 8, "time": "yesterday", "amount": 1}': "time is yesterday, which is not a time",
    b"[" + GOOD % 1 + b", " + GOOD % 2 + b"]": "is a list",
}


@pytest.mark.parametrize("way", ["one pass", "counted", "two queries"])
def test_what_cannot_be_a_row_lies_in_the_dead_letters_and_the_rest_goes_on(
    way: str,
    spark: SparkSession,
    connection: ClientSettings,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way == "two queries":
        monkeypatch.setattr(Streaming, "counts_bad_records", lambda *_: False)
    topic = new_topic(connection, f"bad-{way.replace(' ', '-')}")
    put(connection.bootstrap, topic, list(BAD))
    orders(connection.bootstrap, topic, range(len(BAD), 60))
    timed = Topic(topic, schema=SCHEMA, event_time="time", late="1 hour")

    @pipeline(source=timed, sink=Table("good"), name=topic)
    def good(rows: DataFrame) -> DataFrame:
        return rows.select("id", "amount")

    made = good if way == "one pass" else daily(topic)
    runner = run(made)
    runner.stream(once=True)

    letters = read(connection.bootstrap, made.dead_topic, len(BAD))
    ids = [one["headrace-message-id"].decode().split("@") for one in letters]
    assert {topic_id for _, topic_id in ids} == {Topics(connection).ids([topic])[topic]}
    places = [place.split("/") for place, _ in ids]
    numbers = [int(offset) * 2 + int(partition) for _, partition, offset in places]
    by_offset = dict(zip(numbers, letters, strict=True))
    assert sorted(by_offset) == list(range(len(BAD)))
    for n, (value, reason) in enumerate(BAD.items()):
        assert by_offset[n]["value"] == value
        assert reason in by_offset[n]["headrace-dead-message"].decode()
    assert runner.dead == len(BAD)
    assert (Folder(tmp_path, topic).progress() or {})["dead"] == len(BAD)
    assert Folder(tmp_path, topic).dead_checkpoint.exists() == (way == "two queries")
    if way == "one pass":
        assert table(spark, tmp_path / "tables" / "good") == expected(range(len(BAD), 60))
    else:
        total = sum(amount for _, amount in table(spark, tmp_path / "tables" / "revenue"))
        assert total == sum(n % 7 for n in range(len(BAD), 60))


def test_a_batch_with_state_is_read_again_only_for_its_bad_records(
    connection: ClientSettings, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(connection, "read-again")
    again: list[tuple[object, object]] = []
    parsed = CountedBadRecords._parsed_between

    def noted(counted: CountedBadRecords, first: Offsets, last: Offsets, clock: Any) -> Any:
        if first != last:  # a batch without records, which only moves the watermark
            again.append((first, last))
        return parsed(counted, first, last, clock)

    monkeypatch.setattr(CountedBadRecords, "_parsed_between", noted)
    made = daily(topic)
    orders(connection.bootstrap, topic, range(20))
    run(made).stream(once=True)
    assert not again
    put(connection.bootstrap, topic, [b"{broken"])
    run(made).stream(once=True)
    [(first, last)] = again
    before = {"0": 10, "1": 10}
    assert first == {topic: before} and last != first
    [letter] = read(connection.bootstrap, made.dead_topic, 1)
    assert letter["value"] == b"{broken"


def test_a_batch_where_rows_go_their_own_way_is_read_once_and_not_kept(
    spark: SparkSession,
    connection: ClientSettings,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic(connection, "not-kept")
    again: list[int] = []
    parsed_of = CountedBadRecords._parsed_between

    def noted(counted: CountedBadRecords, *between: Any) -> DataFrame | None:
        again.append(1)
        return parsed_of(counted, *between)

    def persist(*_: object) -> DataFrame:
        raise AssertionError("a batch is kept in memory")

    monkeypatch.setattr(CountedBadRecords, "_parsed_between", noted)
    made = rows_into(Table("kept"), topic)
    orders(connection.bootstrap, topic, range(20))
    with monkeypatch.context() as patched:
        patched.setattr(type(spark.range(1)), "persist", persist)
        run(made).stream(once=True)
    assert not again
    put(connection.bootstrap, topic, [b"{broken"])
    run(made).stream(once=True)
    assert again == [1]
    [letter] = read(connection.bootstrap, made.dead_topic, 1)
    assert letter["value"] == b"{broken"
    assert len(table(spark, tmp_path / "tables" / "kept")) == 20


def test_letters_of_a_batch_that_the_table_has_already_are_not_lost(
    spark: SparkSession,
    connection: ClientSettings,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run ends between the table's commit and the letters."""
    topic = new_topic(connection, "letters-after")
    made = rows_into(Table("after"), topic)
    orders(connection.bootstrap, topic, range(20))
    put(connection.bootstrap, topic, [b"{broken"])

    def killed(*_: object, **__: object) -> None:
        raise PipelineError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(DeadLetters, "write", killed)
        with pytest.raises(PipelineError, match="killed"):
            run(made).stream(once=True)
    assert len(table(spark, tmp_path / "tables" / "after")) == 20
    run(made).stream(once=True)
    [letter] = read(connection.bootstrap, made.dead_topic, 1)
    assert letter["value"] == b"{broken"
    assert len(table(spark, tmp_path / "tables" / "after")) == 20


def test_times_of_the_years_1_and_9999_are_kept_where_they_are_no_event_times(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "far-times")
    times = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
    put(connection.bootstrap, topic, [b'{"time": "%s"}' % one.encode() for one in times])
    made = pipeline(source=Topic(topic, schema="time TIMESTAMP"), sink=Table("far"), name=topic)
    run(made(lambda rows: rows)).stream(once=True)
    rows = spark.read.format("delta").load(str(tmp_path / "tables" / "far"))
    kept = sorted(row[0] for row in rows.selectExpr("cast(time AS string)").collect())
    assert kept == ["0001-01-01 00:00:00", "9999-12-31 23:59:59"]


def test_a_topic_that_is_deleted_while_it_is_read(
    connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "deleted")
    orders(connection.bootstrap, topic, range(30))
    folder = Folder(tmp_path, topic)

    def delete() -> None:
        deadline = time.monotonic() + 240
        while folder.progress() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        Topics(connection).delete(topic)

    other = threading.Thread(target=delete)
    other.start()
    with pytest.raises(PipelineError, match=f"are gone from {topic} .*reset {topic}"):
        run(rows_into(Table("deleted"), topic)).stream()
    other.join()
    with pytest.raises(PipelineError, match=f"There is no topic {topic}"):
        run(rows_into(Table("deleted"), topic)).stream()
    new_topic(connection, topic)  # another one of the same name: its offsets mean other records
    orders(connection.bootstrap, topic, range(4))
    with pytest.raises(PipelineError, match=f"{topic} was deleted and created again"):
        run(rows_into(Table("deleted"), topic)).stream(once=True)


def test_a_checkpoint_of_another_topic_is_refused(connection: ClientSettings, run: Run) -> None:
    first, second = (new_topic(connection, name) for name in ("checkpoint-1", "checkpoint-2"))
    orders(connection.bootstrap, first, range(4))
    one, other = rows_into(Table("all"), first), rows_into(Table("all"), second)
    run(one).stream(once=True)
    other.name = one.name
    with pytest.raises(PipelineError, match="belongs to the source checkpoint-1"):
        run(other).stream(once=True)


def test_a_function_that_does_not_fit_is_said_before_anything_is_written(
    connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "wrong-function")
    orders(connection.bootstrap, topic, range(4))
    source = Topic(topic, schema=SCHEMA)
    wrong = pipeline(source=source, sink=Table("w"), name="wrong")(lambda rows: rows.select("nix"))
    with pytest.raises(PipelineError, match="wrong failed: .*nix"):
        run(wrong).stream(once=True)
    none = pipeline(source=source, sink=Table("w"), name="none")(lambda rows: None)
    with pytest.raises(PipelineError, match="returned NoneType, not a DataFrame"):
        run(none).stream(once=True)
    assert not (tmp_path / "tables" / "w").exists()
