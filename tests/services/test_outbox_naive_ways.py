"""The ways of reading an outbox that people write first, each with the row that it loses or swaps.

Every story is told step by step with connections of its own. Where the way is told in SQL it is run
as SQL, and the relay's own way beside it: these are the controls of `test_outbox_horizon.py`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import SQLAlchemyError

from headrace.services.outbox.databases import mariadb as mariadb_database
from headrace.services.outbox.databases import postgresql
from tests.services.servers import Mariadb, Postgres
from tests.services.test_outbox_horizon import Story

XMIN = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
HOLDERS = (
    "SELECT 1 FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted"
    " AND relation = 'headrace_outbox'::regclass"
)


@pytest.fixture
def on_postgres(postgres: Postgres) -> Iterator[Story]:
    with Story(postgres.url) as story:
        yield story


def xid(db: Connection) -> int:
    """Of this transaction; it has one after that."""
    return int(db.execute(text("SELECT pg_current_xact_id()::text::bigint")).scalar_one())


def transaction_ids(story: Story) -> dict[str, int]:
    found = story.looking.execute(text("SELECT payload, xmin::text::bigint FROM headrace_outbox"))
    return {bytes(row[0]).decode(): int(row[1]) for row in found}


# ---- PostgreSQL


def test_rows_of_finished_transactions_in_order_of_ids_skip_one(on_postgres: Story) -> None:
    """`WHERE xmin < oldest open ORDER BY id`, going on after the last id."""
    quick, slow = on_postgres.begin(), on_postgres.begin()
    assert xid(quick) < xid(slow)  # the older transaction gets the later row
    on_postgres.send(slow, "first")
    on_postgres.send(quick, "second")
    quick.commit()
    oldest_open = on_postgres.looking.execute(text(XMIN)).scalar_one()
    found = {name for name, each in transaction_ids(on_postgres).items() if each < oldest_open}
    assert found == {"second"}  # it goes on after row 2, and row 1 is never seen
    assert on_postgres.stable() == []
    slow.commit()
    on_postgres.stable()
    assert on_postgres.stable() == ["first", "second"]


def test_rows_in_the_order_of_transaction_ids_are_swapped(on_postgres: Story) -> None:
    """The transaction that began first locks the account last."""
    early, late = on_postgres.begin(), on_postgres.begin()
    assert xid(early) < xid(late)
    locked = text("UPDATE accounts SET version = version + 1 WHERE name = 'a00'")
    late.execute(locked)
    on_postgres.send(late, "first")
    late.commit()
    early.execute(locked)
    on_postgres.send(early, "second")
    early.commit()
    order = sorted(transaction_ids(on_postgres).items(), key=lambda pair: pair[1])
    assert [name for name, _ in order] == ["second", "first"]
    on_postgres.stable()
    assert on_postgres.stable() == ["first", "second"]


def test_the_end_of_a_snapshot_is_no_transaction_id_of_ones_own(on_postgres: Story) -> None:
    """X := xmax of the snapshot that the last id is read with: a writer may come in between."""
    with psycopg.connect(plain(on_postgres)) as reader, on_postgres.engine.connect() as writer:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # keep that snapshot
        [xmax] = one(reader, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        on_postgres.send(writer, "first")
        other = on_postgres.begin()
        on_postgres.send(other, "second")
        other.commit()
        last_id = on_postgres.looking.execute(text(f"SELECT {postgresql.LAST_ID}")).scalar_one()
        oldest_open = on_postgres.looking.execute(text(XMIN)).scalar_one()
        assert xmax <= oldest_open  # so ids up to the last one count as stable,
        assert on_postgres.visible(last_id) == ["second"]  # and the first row is skipped
        assert on_postgres.stable() == []
        writer.commit()
    on_postgres.stable()
    assert on_postgres.stable() == ["first", "second"]


def test_a_sequence_that_hands_out_ids_in_bundles_numbers_later_rows_lower(
    on_postgres: Story,
) -> None:
    on_postgres.looking.execute(text("ALTER SEQUENCE headrace_outbox_id_seq CACHE 20"))
    one, other = on_postgres.begin(), on_postgres.begin()
    on_postgres.send(one, "first")  # draws 1 to 20
    one.commit()
    on_postgres.send(other, "second")  # draws 21 to 40
    other.commit()
    on_postgres.stable()
    assert on_postgres.stable() == ["first", "second"]
    position = on_postgres.source.poll().up_to
    again = on_postgres.begin()  # on a connection that has ids of its own left
    on_postgres.send(again, "third")
    again.commit()
    third = text("SELECT min(id) FROM headrace_outbox WHERE payload = 'third'::bytea")
    drawn = on_postgres.looking.execute(third).scalar_one()
    one.begin()
    on_postgres.send(one, "fourth")
    one.commit()
    assert on_postgres.visible(position)[1:] == ["fourth", "second"], "below what was passed"
    assert drawn > position


def test_locks_and_rows_in_one_statement_skip_a_row(on_postgres: Story) -> None:
    """Its snapshot is older than its look at the locks: who ends in between is in neither."""
    slow, quick = on_postgres.begin(), on_postgres.begin()
    on_postgres.send(slow, "first")
    on_postgres.send(quick, "second")
    quick.commit()
    with (
        psycopg.connect(plain(on_postgres), autocommit=True) as halt,
        psycopg.connect(plain(on_postgres), autocommit=True) as reader,
    ):
        halt.execute("SELECT pg_advisory_lock(7)")
        found: list[list[bytes]] = []

        def read_at_once() -> None:
            """The statement stands still after its snapshot and before its look at the locks."""
            rows = reader.execute(
                "WITH halt AS MATERIALIZED (SELECT pg_advisory_lock_shared(7)),"
                f" held AS MATERIALIZED (SELECT count(*) AS n FROM halt, LATERAL ({HOLDERS}"
                " AND halt IS NOT NULL) AS each)"
                " SELECT payload FROM held, headrace_outbox WHERE held.n = 0 ORDER BY id"
            ).fetchall()
            found.append([row[0] for row in rows])

        reading = threading.Thread(target=read_at_once)
        reading.start()
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while on_postgres.looking.execute(text(waits)).scalar_one() == 0:
            pass
        slow.commit()
        halt.execute("SELECT pg_advisory_unlock(7)")
        reading.join()
    assert found == [[b"second"]]
    on_postgres.stable()
    assert on_postgres.stable() == ["first", "second"]


def test_a_plain_look_at_the_last_id_shows_ids_that_nobody_has_drawn(postgres: Postgres) -> None:
    """Each 32nd nextval shows the id 32 ahead while it writes its log record; so the last id goes
    back for who reads it without the page's lock, as SELECT last_value does. Ours never does."""
    backwards = (
        "DO $$ DECLARE now bigint; before bigint := 0; BEGIN FOR look IN 1..20000 LOOP"
        " {look} IF now < before THEN RAISE EXCEPTION 'backwards'; END IF; before := now;"
        " END LOOP; END $$"
    )
    ours = postgresql.LAST_ID.replace("headrace_outbox_id_seq", "busy")
    url = postgres.url.replace("+psycopg", "")
    stop = threading.Event()

    def draw() -> None:
        with psycopg.connect(url, autocommit=True) as db:
            while not stop.is_set():
                db.execute("SELECT count(nextval('busy')) FROM generate_series(1, 20000)")

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP SEQUENCE IF EXISTS busy")
        db.execute("CREATE SEQUENCE busy CACHE 1")
        db.execute("SELECT nextval('busy')")
        drawing = [threading.Thread(target=draw) for _ in range(2)]
        for thread in drawing:
            thread.start()
        try:
            seen = False
            while not seen:
                db.execute(backwards.format(look=f"now := {ours};"))
                try:
                    db.execute(backwards.format(look="SELECT last_value INTO now FROM busy;"))
                except psycopg.errors.RaiseException:
                    seen = True
        finally:
            stop.set()
            for thread in drawing:
                thread.join()


def test_a_message_that_is_sent_before_the_row_is_locked_is_swapped(on_postgres: Story) -> None:
    """No relay can know: the guide says to lock first."""
    hasty, other = on_postgres.begin(), on_postgres.begin()
    change = text("UPDATE accounts SET version = version + 1 WHERE name = 'a00' RETURNING version")
    on_postgres.send(hasty, "hasty")
    other.execute(change)
    on_postgres.send(other, "other")
    other.commit()
    assert hasty.execute(change).scalar_one() == 2  # it came second,
    hasty.commit()
    on_postgres.stable()
    assert on_postgres.stable() == ["hasty", "other"]  # and is told first


def test_a_writer_in_another_database_is_not_waited_for(
    postgres: Postgres, on_postgres: Story
) -> None:
    """It holds the server's oldest transaction id all the same."""
    on_postgres.looking.execute(text("DROP DATABASE IF EXISTS elsewhere"))
    on_postgres.looking.execute(text("CREATE DATABASE elsewhere"))
    url = make_url(postgres.url).set(database="elsewhere", drivername="postgresql")
    with psycopg.connect(url.render_as_string()) as elsewhere:
        [open_] = one(elsewhere, "SELECT pg_current_xact_id()::text::bigint")
        quick = on_postgres.begin()
        on_postgres.send(quick, "first")
        quick.commit()
        assert on_postgres.looking.execute(text(XMIN)).scalar_one() == open_
        on_postgres.stable()
        assert on_postgres.stable() == ["first"]


def test_a_horizon_that_outlives_a_crash_skips_rows(postgres: Postgres) -> None:
    """Ids whose log records had not reached the disk are drawn again."""
    with Story(postgres.url) as story:
        with story.engine.begin() as db:
            story.send(db, "first")
        writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
        os.kill(story.looking.execute(text(writer)).scalar_one(), signal.SIGSTOP)
        lost = story.begin()
        for _ in range(70):
            story.send(lost, "never")
        lost.rollback()
        story.source.poll()
        horizon = story.source.poll().up_to
        assert horizon >= 71
        postgres.kill()
        postgres.start()
        with create_engine(postgres.url).begin() as db:
            story.send(db, "second")
            drawn = db.execute(text("SELECT max(id) FROM headrace_outbox")).scalar_one()
        assert drawn <= horizon  # below what was passed
        with pytest.raises(SQLAlchemyError):
            story.source.poll()
        story.stable()
        assert story.stable() == ["first", "second"]  # over new connections, with a new horizon


# ---- MariaDB


def test_locking_the_tail_alone_skips_a_row_beside_a_gap_locker(mariadb: Mariadb) -> None:
    """`id > last LOCK IN SHARE MODE` waits for rows that are there and undecided. One that has its
    id and waits for a gap is not there yet."""
    with Story(mariadb.url, shards=2) as story:
        insert = text("INSERT INTO headrace_outbox (shard, topic, payload) VALUES (:n, 't', :p)")
        with story.engine.begin() as db:
            db.execute(insert, [{"n": 0, "p": "a"}, {"n": 1, "p": "b"}])
        gap = story.begin()  # REPEATABLE READ: the gap behind the last row of shard 0
        gap.execute(text("SELECT id FROM headrace_outbox WHERE shard = 0 AND id > 0 FOR UPDATE"))
        late, quick = story.begin(), story.begin()
        for gate in mariadb_database.GATE:
            if late.execute(text(gate)).all():
                break
        inserting = threading.Thread(target=late.execute, args=(insert, {"n": 0, "p": "first"}))
        inserting.start()  # draws id 3, and waits
        waits = text("SELECT count(*) FROM information_schema.innodb_lock_waits")
        while story.looking.execute(waits).scalar_one() == 0:
            # InnoDB shows the same picture again to whoever asks within 100 ms of the last look.
            time.sleep(0.2)
        quick.execute(insert, {"n": 1, "p": "second"})
        quick.commit()
        tail = text("SELECT payload FROM headrace_outbox WHERE id > 2 LOCK IN SHARE MODE")
        found = [bytes(row[0]) for row in story.looking.execute(tail)]
        assert found == [b"second"]  # it goes on after id 4, and id 3 is never seen
        before = story.source.poll().up_to
        assert before <= 2
        gap.rollback()
        inserting.join()
        late.commit()
        story.source.poll()
        assert story.source.poll().up_to == 4
        assert story.visible() == ["a", "b", "first", "second"]


# ---- SQLite


def test_without_autoincrement_the_id_of_a_removed_row_is_given_again(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as db:
        for table, kind in (("plain", ""), ("ours", "AUTOINCREMENT")):
            db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY {kind}, payload)")
            db.execute(f"INSERT INTO {table} (payload) VALUES ('first')")
            db.execute(f"DELETE FROM {table}")  # sent, and removed
            db.execute(f"INSERT INTO {table} (payload) VALUES ('second')")
        assert db.execute("SELECT payload FROM plain WHERE id > 1").fetchall() == []
        assert db.execute("SELECT payload FROM ours WHERE id > 1").fetchall() == [("second",)]


def test_a_transaction_that_begins_as_a_reader_meets_a_locked_database(tmp_path: Path) -> None:
    """BEGIN IMMEDIATE, says the guide."""
    first, second = (sqlite3.connect(tmp_path / "shop.db", timeout=0.1) for _ in range(2))
    for db in (first, second):
        db.isolation_level = None
    first.execute("PRAGMA journal_mode = WAL")
    first.execute("CREATE TABLE t (x)")
    for db in (first, second):
        db.execute("BEGIN")
        db.execute("SELECT * FROM t").fetchall()
    first.execute("INSERT INTO t VALUES (1)")
    first.execute("COMMIT")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        second.execute("INSERT INTO t VALUES (2)")
    second.execute("ROLLBACK")
    second.execute("BEGIN IMMEDIATE")
    second.execute("INSERT INTO t VALUES (2)")
    second.execute("COMMIT")
    first.close()
    second.close()


def plain(story: Story) -> str:
    return story.shop.url.replace("+psycopg", "")


def one(db: psycopg.Connection, query: str) -> tuple[int, ...]:
    found = db.execute(query.encode()).fetchone()
    assert found is not None
    return tuple(int(each) for each in found)
