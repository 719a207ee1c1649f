"""`--backfill`: history and stream meet without gap or overlap, also over a kill between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client.connection import ClientSettings
from headrace.pipelines import Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream import backfill
from headrace.pipelines.stream.folder import Folder
from tests.pipelines.conftest import Run
from tests.pipelines.orders import expected, new_topic, orders, put, read, rows_into, table
from tests.pipelines.test_pipelines import daily, revenue_of

pytestmark = pytest.mark.timeout(1200)


def test_what_was_there_before_the_stream_began_is_added_once(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "before")
    made = rows_into(Table("all"), topic, starting="latest")
    orders(connection.bootstrap, topic, range(50))
    run(made).stream(once=True)  # begins at the end: it has seen nothing
    orders(connection.bootstrap, topic, range(50, 80))
    run(made).stream(once=True)
    place = tmp_path / "tables" / "all"
    assert table(spark, place) == expected(range(50, 80))
    run(made).stream(once=True, backfill=True)
    assert table(spark, place) == expected(range(80))
    run(made).stream(once=True, backfill=True)  # it is done
    assert table(spark, place) == expected(range(80))


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_new_stream_goes_on_where_the_batch_ended_also_after_a_kill(
    form: str,
    spark: SparkSession,
    connection: ClientSettings,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic(connection, f"new-{form}")
    made = rows_into(Table("all", format=form), topic)
    put(connection.bootstrap, topic, [b"{broken"])
    orders(connection.bootstrap, topic, range(1, 50))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt  # after the batch was written, before that was written down

    folder = Folder(tmp_path, topic)
    run_batch = backfill.run_batch
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(backfill, "run_batch", lambda *a: (run_batch(*a), killed()))
        run(made).stream(once=True, backfill=True)
    orders(connection.bootstrap, topic, range(50, 80))
    with pytest.raises(PipelineError, match="run it with --backfill"):
        run(made).stream(once=True)
    run(made).stream(once=True, backfill=True)
    assert table(spark, tmp_path / "tables" / "all", form) == expected(range(1, 80))
    assert (folder.backfill() or {})["done"]
    assert len(read(connection.bootstrap, made.dead_topic, 1)) == 1


def test_state_goes_on_where_rows_are_replaced_by_key(
    spark: SparkSession, connection: ClientSettings, run: Run, tmp_path: Path
) -> None:
    topic = new_topic(connection, "keyed")
    orders(connection.bootstrap, topic, range(90))  # 40 in a batch, but for backfills
    run(daily(topic)).stream(once=True, backfill=True)
    [line] = [note for note in run.notes if note.startswith("batch 0 ")]
    assert " 90 rows " in line
    orders(connection.bootstrap, topic, range(90, 100))  # of a day that has begun
    run(daily(topic)).stream(once=True)
    rows = table(spark, tmp_path / "tables" / "revenue")
    assert [(str(day), amount) for day, amount in rows] == revenue_of(range(100))


def test_a_stream_with_state_that_has_run_cannot_take_in_older_records(
    connection: ClientSettings, run: Run
) -> None:
    topic = new_topic(connection, "has-run")
    orders(connection.bootstrap, topic, range(5))
    run(daily(topic)).stream(once=True)
    with pytest.raises(PipelineError, match="cannot take in older records"):
        run(daily(topic)).stream(once=True, backfill=True)
