"""Which rows are stable, on the databases themselves; and how the ways without it lose rows.

Each story is told step by step with connections of its own, so nothing depends on chance.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from headrace import Outbox
from headrace.services.outbox import databases
from headrace.services.outbox.source import Source, Stale
from headrace.services.outbox.store import connect
from tests.services.outbox_rounds import Shop
from tests.services.servers import Mariadb, Postgres


class Story:
    """A horizon, and writers with open transactions."""

    def __init__(self, url: str, *, shards: int = 1) -> None:
        self.shop = Shop(url, shards=shards)
        self.engine = create_engine(url, pool_size=10)
        self.looking = connect(self.engine)
        self.source = Source(self.engine)
        self._open: list[Connection] = []

    def begin(self) -> Connection:
        connection = self.engine.connect()
        connection.begin()
        self._open.append(connection)
        return connection

    def send(self, db: Connection, value: str) -> None:
        self.shop.outbox.send(db, "transfers", value)

    def visible(self, up_to: int = 2**62) -> list[str]:
        rows = text("SELECT payload FROM headrace_outbox WHERE id <= :up_to ORDER BY id")
        found = self.looking.execute(rows, {"up_to": up_to})
        return [bytes(row[0]).decode() for row in found]

    def stable(self) -> list[str]:
        """What the relay reads now."""
        stable = self.source.poll()
        place = {"after": 0, "up_to": stable.up_to, "incarnation": stable.incarnation}
        rows, _ = self.source.read(0, most=100, **place)
        return [(row.payload or b"").decode() for row in rows]

    def held_up_by(self) -> str:
        return str(self.source.held_up_by())

    def __enter__(self) -> Story:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()
        for connection in [*self._open, self.looking]:
            connection.close()
        self.engine.dispose()
        self.shop.engine.dispose()


@pytest.fixture
def on_postgres(postgres: Postgres) -> Iterator[Story]:
    with Story(postgres.url) as story:
        yield story


@pytest.fixture
def on_mariadb(mariadb: Mariadb) -> Iterator[Story]:
    with Story(mariadb.url) as story:
        yield story


@pytest.fixture(params=["on_postgres", "on_mariadb"])
def story(request: pytest.FixtureRequest) -> Story:
    found: Story = request.getfixturevalue(request.param)
    return found


def test_a_row_that_commits_late_is_waited_for(story: Story) -> None:
    slow, quick = story.begin(), story.begin()
    story.send(slow, "first")
    story.send(quick, "second")
    quick.commit()
    assert story.visible() == ["second"]  # `id > last` goes on after it, and never sees the first
    assert story.stable() == []
    slow.commit()
    story.stable()  # a look that was under way when the transaction ended
    assert story.stable() == ["first", "second"]


def test_a_row_that_is_rolled_back_holds_nothing_up_any_more(story: Story) -> None:
    slow, quick = story.begin(), story.begin()
    story.send(slow, "never")
    story.send(quick, "second")
    quick.commit()
    assert story.stable() == []
    slow.rollback()
    story.stable()
    assert story.stable() == ["second"]


def test_a_savepoint_that_is_rolled_back_keeps_the_later_row_waiting(story: Story) -> None:
    slow, quick = story.begin(), story.begin()
    savepoint = slow.begin_nested()
    story.send(slow, "never")
    savepoint.rollback()
    story.send(slow, "first")
    story.send(quick, "second")
    quick.commit()
    assert story.stable() == []
    slow.commit()
    story.stable()
    assert story.stable() == ["first", "second"]


def test_new_writers_are_not_held_up_while_an_old_one_is(story: Story) -> None:
    slow = story.begin()
    story.send(slow, "first")
    for number in range(5):
        quick = story.begin()
        story.send(quick, str(number))
        quick.commit()
        assert story.stable() == []
    slow.commit()
    story.stable()
    assert story.stable() == ["first", *"01234"]


# ---- PostgreSQL


def test_a_prepared_transaction_is_waited_for_and_named(postgres: Postgres) -> None:
    with Story(postgres.url) as story:
        story.looking.execute(text("DROP TRIGGER headrace_outbox_wake ON headrace_outbox"))
        late = story.begin()
        story.send(late, "first")
        late.execute(text("PREPARE TRANSACTION 'late'"))
        quick = story.begin()
        story.send(quick, "second")
        quick.commit()
        try:
            assert story.stable() == []
            assert "prepared" in story.held_up_by()
        finally:
            story.looking.execute(text("COMMIT PREPARED 'late'"))
        story.stable()
        assert story.stable() == ["first", "second"]


def test_a_long_writer_elsewhere_in_the_server_is_not_waited_for(on_postgres: Story) -> None:
    elsewhere = on_postgres.begin()
    elsewhere.execute(text("CREATE TEMPORARY TABLE mine (x int)"))
    elsewhere.execute(text("SELECT pg_current_xact_id()"))
    quick = on_postgres.begin()
    on_postgres.send(quick, "first")
    quick.commit()
    on_postgres.stable()
    assert on_postgres.stable() == ["first"]
    elsewhere.rollback()


def test_the_process_that_holds_rows_up_is_named(on_postgres: Story) -> None:
    slow = on_postgres.begin()
    on_postgres.send(slow, "first")
    pid = slow.execute(text("SELECT pg_backend_pid()")).scalar_one()
    on_postgres.stable()
    assert f"process {pid} of PostgreSQL" in on_postgres.held_up_by()
    slow.rollback()


def test_a_row_id_drawn_before_the_transaction_id_would_be_skipped(on_postgres: Story) -> None:
    """Why the table's default is not simply nextval: the window between the two, widened."""
    slow = on_postgres.begin()
    drawn = slow.execute(text("SELECT nextval('headrace_outbox_id_seq')")).scalar_one()
    assert on_postgres.stable() == []
    assert on_postgres.source.poll().up_to >= drawn  # stable, as it seems
    own = "INSERT INTO headrace_outbox (id, topic) VALUES (:id, 'late')"
    slow.execute(text(own), {"id": drawn})
    slow.commit()


def test_ids_that_a_crash_has_lost_are_drawn_again_and_nothing_is_skipped(
    postgres: Postgres,
) -> None:
    with Story(postgres.url) as story:
        source = story.source
        with story.engine.begin() as db:
            story.send(db, "first")
        for _ in range(40):
            lost = story.begin()
            story.send(lost, "never")
            lost.rollback()
            lost.close()
        source.poll()
        before = source.poll()
        postgres.stop()
        postgres.start()
        asked = {"after": 0, "up_to": before.up_to, "most": 9, "incarnation": before.incarnation}
        with pytest.raises(SQLAlchemyError):  # the connection that was open at the time is gone
            source.read(0, **asked)
        after = source.poll()
        assert after.incarnation != before.incarnation
        with pytest.raises(Stale):
            source.read(0, **asked)


def test_a_server_that_goes_while_the_relay_waits_for_a_row_is_found_again(
    postgres: Postgres,
) -> None:
    """The driver is asked for notifications itself, so the failure is the driver's own."""
    with Story(postgres.url) as story:
        source = story.source
        source.poll()
        source.wait(0)  # it listens now
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                source.wait(60)
            except BaseException as failure:  # noqa: BLE001 - which one is the question
                failures.append(failure)

        waiting = threading.Thread(target=wait)
        waiting.start()
        postgres.stop()
        postgres.start()
        waiting.join()
        assert [isinstance(each, SQLAlchemyError | OSError) for each in failures] == [True]
        assert story.stable() == []


# ---- MariaDB


def test_a_writer_that_passes_no_gate_would_be_skipped(on_mariadb: Story) -> None:
    slow, quick = on_mariadb.begin(), on_mariadb.begin()
    slow.execute(text("INSERT INTO headrace_outbox (topic, payload) VALUES ('t', 'first')"))
    on_mariadb.send(quick, "second")
    quick.commit()
    up_to = on_mariadb.source.poll().up_to
    assert on_mariadb.visible(up_to) == ["second"]  # it seems stable, and is not
    slow.commit()
    assert on_mariadb.visible(up_to) == ["first", "second"]


def test_a_prepared_xa_transaction_is_waited_for(on_mariadb: Story) -> None:
    late = on_mariadb.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    late.execute(text("XA START 'late'"))
    for gate in databases.of("mariadb").GATE:
        if late.execute(text(gate)).all():
            break
    late.execute(text("INSERT INTO headrace_outbox (topic, payload) VALUES ('t', 'first')"))
    late.execute(text("XA END 'late'"))
    late.execute(text("XA PREPARE 'late'"))
    quick = on_mariadb.begin()
    on_mariadb.send(quick, "second")
    quick.commit()
    try:
        # Preparing gives the gate back, but not the row: the relay's read waits for it.
        assert on_mariadb.visible() == ["second"]
        with pytest.raises(OperationalError, match="Lock wait timeout"):
            on_mariadb.stable()
    finally:
        late.execute(text("XA COMMIT 'late'"))
        late.close()
    assert on_mariadb.stable() == ["first", "second"]


# ---- the drivers themselves


def test_a_plain_connection_of_the_driver_does_as_well(
    postgres: Postgres, mariadb: Mariadb
) -> None:
    import psycopg
    import pymysql

    for url, driver in ((postgres.url, "psycopg"), (mariadb.url, "pymysql")):
        shop = Shop(url)
        if driver == "psycopg":
            plain = psycopg.connect(url.replace("+psycopg", ""))
        else:
            plain = pymysql.connect(
                host="127.0.0.1", port=mariadb.port, user="root", database="shop"
            )
        Outbox().send(plain, "transfers", b"\x00\xff", key=b"\x80", headers={"a": "\u00e9"})
        plain.commit()
        plain.close()
        assert stored(shop.engine) == [(b"\x80", b"\x00\xff", '[["a", "\u00e9"]]')]
        shop.engine.dispose()


def stored(engine: Engine) -> list[tuple[bytes, bytes, str]]:
    with engine.connect() as db:
        rows = db.execute(text("SELECT message_key, payload, headers FROM headrace_outbox"))
        return [(bytes(row[0]), bytes(row[1]), row[2]) for row in rows]
