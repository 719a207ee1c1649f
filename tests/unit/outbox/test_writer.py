"""Writing to the outbox, in SQLite: every kind of connection, and what is refused at once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from headrace import Outbox
from headrace.outbox import OutboxError, alembic
from headrace.services.outbox import schema

NOW_MS = 1_800_000_000_000


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def outbox(engine: Engine) -> Outbox:
    outbox = Outbox(engine, wall_ms=lambda: NOW_MS)
    outbox.create()
    return outbox


def rows(engine: Engine) -> list[dict[str, Any]]:
    with engine.connect() as db:
        found = db.execute(text("SELECT * FROM headrace_outbox ORDER BY id"))
        return [dict(row._mapping) for row in found]


@dataclass
class Transfer:
    account: str
    amount: int


def test_a_message_is_a_row_of_the_caller_s_transaction(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as db:
        outbox.send(db, "transfers", Transfer("account-1", 100), key="account-1")
        outbox.send(db, "transfers", b"raw", key=b"\xff", headers={"a": "b"}, id="t-2")
    with engine.connect() as db:
        outbox.send(db, "transfers", "never committed")
        db.rollback()
    first, second = rows(engine)
    assert (first["topic"], first["message_key"], first["shard"]) == ("transfers", b"account-1", 0)
    assert json.loads(first["payload"]) == {"account": "account-1", "amount": 100}
    assert (second["payload"], second["message_id"]) == (b"raw", "t-2")
    assert json.loads(second["headers"]) == [["a", "b"]]
    assert abs(first["created_at"] / 1000 - datetime.now(UTC).timestamp()) < 3600


def test_sessions_and_plain_drivers_do_as_well(
    engine: Engine, outbox: Outbox, tmp_path: Path
) -> None:
    with Session(engine) as session, session.begin():
        outbox.send(session, "transfers", "orm")
    plain = sqlite3.connect(tmp_path / "shop.db")
    with plain:
        outbox.send(plain, "transfers", "driver", key="k")
    plain.close()
    assert [row["payload"] for row in rows(engine)] == [b"orm", b"driver"]


def test_connections_for_asyncio_are_awaited(
    engine: Engine, outbox: Outbox, tmp_path: Path
) -> None:
    async def story() -> None:
        at = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
        async with at.begin() as db:
            await outbox.send(db, "transfers", "connection")
        async with AsyncSession(at) as session, session.begin():
            await outbox.send(session, "transfers", "session")
        await at.dispose()

    asyncio.run(story())
    assert [row["payload"] for row in rows(engine)] == [b"connection", b"session"]


def test_awaiting_a_plain_send_does_no_harm(engine: Engine, outbox: Outbox) -> None:
    async def story() -> None:
        with engine.begin() as db:
            await outbox.send(db, "transfers", "x")

    asyncio.run(story())
    assert len(rows(engine)) == 1


def test_a_connection_that_commits_by_itself_is_refused(
    engine: Engine, outbox: Outbox, tmp_path: Path
) -> None:
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    with connection as db, pytest.raises(OutboxError, match="begin a transaction"):
        outbox.send(db, "transfers", "x")
    plain = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    with pytest.raises(OutboxError, match="begin a transaction"):
        outbox.send(plain, "transfers", "x")
    plain.execute("BEGIN IMMEDIATE")
    outbox.send(plain, "transfers", "x")
    plain.execute("COMMIT")
    plain.close()
    with pytest.raises(OutboxError, match="not a database connection"):
        outbox.send(engine, "transfers", "x")
    assert len(rows(engine)) == 1


def test_a_delay_counts_from_the_send_not_from_the_relay(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as db:
        outbox.send(db, "orders", "x", key="k", delay=timedelta(minutes=30), id="close-1")
        outbox.send(db, "orders", "x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC))
    first, second = rows(engine)
    assert first["topic"] == second["topic"] == "orders.delay"
    said = dict(json.loads(first["headers"]))
    assert said == {"headrace-deliver-at": str(NOW_MS + 1_800_000), "headrace-id": "close-1"}
    assert first["message_id"] is None  # the delay service makes it ID@DUE
    assert dict(json.loads(second["headers"])) == {"headrace-deliver-at": "1893456000000"}


def test_a_cancel_is_a_row_for_the_companion_with_the_key_of_its_message(
    engine: Engine, outbox: Outbox
) -> None:
    with engine.begin() as db:
        outbox.send(db, "orders", "unpaid?", key="ada", delay="30m", id="close-1")
    with engine.begin() as db:
        outbox.cancel(db, "orders", "close-1", key="ada")
    with engine.connect() as db:
        outbox.cancel(db, "orders", "close-1", key=b"never committed")
        db.rollback()
    sent, cancelled = rows(engine)
    assert cancelled["topic"] == sent["topic"] == "orders.delay"
    assert cancelled["message_key"] == sent["message_key"] == b"ada"
    assert cancelled["shard"] == sent["shard"], "another relay could send the cancel first"
    assert cancelled["payload"] is None
    assert json.loads(cancelled["headers"]) == [["headrace-cancel", "close-1"]]


def test_a_cancel_of_an_asyncio_transaction_is_awaited(outbox: Outbox, tmp_path: Path) -> None:
    async def cancel() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
        async with engine.begin() as db:
            await outbox.cancel(db, "orders", "close-1", key="ada")
        await engine.dispose()

    asyncio.run(cancel())
    assert outbox.engine is not None
    (row,) = rows(outbox.engine)  # type: ignore[arg-type]
    assert row["topic"] == "orders.delay"


@pytest.mark.parametrize(
    ("topic", "id", "key", "reason"),
    [
        ("orders", "close-1", None, "with the key that the record was sent with"),
        ("orders", "", "ada", "id"),
        ("orders", 7, "ada", "An id is text, not int"),
        ("no topic", "close-1", "ada", "no topic"),
        ("orders", "\ud800", "ada", "surrogates"),
        ("orders", "close-1", "\ud800", "surrogates"),
        ("orders", "close-1", "k" * 2_000_000, "larger than the outbox takes"),
    ],
)
def test_a_cancel_that_could_reach_no_message_is_refused(
    engine: Engine, outbox: Outbox, topic: str, id: Any, key: Any, reason: str
) -> None:
    with engine.begin() as db, pytest.raises(OutboxError, match=reason):
        outbox.cancel(db, topic, id, key=key)
    assert rows(engine) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": "no topic"}, "not a valid topic name"),
        ({"value": b"x" * 1_000_001}, "larger than the outbox takes"),
        ({"id": ""}, "An id has 1 to 512"),
        ({"delay": "1h", "deliver_at": 5}, "not both"),
        ({"delay": "soon"}, "not a duration"),
        ({"id": "a\0b"}, "no NUL"),
        ({"value": "half \ud800"}, "not text that can be sent"),
        ({"key": "\ud800"}, "not text that can be sent"),
        ({"confirm_within": "soon"}, "confirm_within: .* not a duration"),
        ({"confirm_within": "0s"}, "more than 0"),
        ({"confirm_within": "1s", "delay": "1s"}, "not for delayed messages"),
        ({"delay": "1h", "id": "a"}, "give the record a key"),
        ({"id": "\ud800"}, "not text that can be sent"),
        ({"topic": None}, "A topic is text, not NoneType"),
        ({"key": 5}, "A key is text or bytes, not int"),
        ({"id": 5}, "An id is text, not int"),
        ({"headers": {"a": 5}}, "A header is text or bytes, not int"),
        ({"headers": [("a",)]}, "Headers are"),
        ({"headers": {5: "a"}}, "A header's name is text, not int"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_would_be_refused_later_is_refused_before_the_commit(
    engine: Engine, outbox: Outbox, given: dict[str, Any], words: str
) -> None:
    with engine.begin() as db, pytest.raises(OutboxError, match=words):
        outbox.send(db, **{"topic": "transfers", "value": "x", **given})
    assert rows(engine) == []


def test_missing_and_foreign_tables_are_told(engine: Engine) -> None:
    outbox = Outbox(engine)
    with engine.begin() as db, pytest.raises(OutboxError, match="headrace outbox init"):
        outbox.send(db, "transfers", "x")
    outbox.create()
    with engine.begin() as db:
        db.execute(text("UPDATE headrace_outbox_meta SET value = '99' WHERE name = 'version'"))
    with engine.begin() as db, pytest.raises(OutboxError, match="install a newer one"):
        Outbox(engine).send(db, "transfers", "x")


def test_the_tables_come_with_the_application_s_own(engine: Engine) -> None:
    metadata = MetaData()
    with engine.connect() as db:
        db.exec_driver_sql("PRAGMA journal_mode = WAL")
    Outbox.add_to(metadata, shards=2)
    metadata.create_all(engine)
    with engine.connect() as db:
        assert schema.facts(db).shards == 2


def test_made_again_the_tables_stay_as_they_are(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as db:
        outbox.send(db, "transfers", "x")
        before = schema.facts(db)
    outbox.create()
    with pytest.raises(OutboxError, match="has 4 shards"):
        outbox.create(shards=8)
    with engine.connect() as db:
        assert schema.facts(db) == before
    assert len(rows(engine)) == 1


def test_no_row_can_be_written_for_a_shard_that_nobody_relays(
    engine: Engine, outbox: Outbox
) -> None:
    stray = text("INSERT INTO headrace_outbox (shard, topic) VALUES (4, 'transfers')")
    with engine.connect() as db, pytest.raises(Exception, match="CHECK"):
        db.execute(stray)


def test_a_view_shows_what_is_sent(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as db:
        for _ in range(2):
            outbox.send(db, "transfers", "x", key="k")
        db.execute(text("UPDATE headrace_outbox_shards SET sent_id = 1"))
    with engine.connect() as db:
        states = db.execute(text("SELECT state FROM headrace_outbox_states ORDER BY id")).all()
    assert [row[0] for row in states] == ["FINISHED", "UNFINISHED"]


def test_debezium_s_header_is_set_and_is_the_message_id(engine: Engine, outbox: Outbox) -> None:
    router = Outbox(format="debezium")
    with engine.begin() as db:
        router.send(db, "orders", "x", key="k", headers={"eventType": "OrderPaid"})
        router.send(db, "orders", "x", key="k", id="own")
    first, second = rows(engine)
    said = dict(json.loads(first["headers"]))
    assert said == {"id": first["message_id"], "eventType": "OrderPaid"}
    assert len(first["message_id"]) == 36
    assert (second["message_id"], json.loads(second["headers"])) == ("own", [["id", "own"]])
    with pytest.raises(ValueError, match="format is"):
        Outbox(format="xml")  # type: ignore[arg-type]


def test_a_migration_makes_the_tables_and_drops_them(engine: Engine) -> None:
    class Operations:
        """As much of Alembic's `op` as is needed."""

        def __init__(self, db: Connection) -> None:
            self.get_bind = lambda: db

    with engine.connect() as db:
        db.exec_driver_sql("PRAGMA journal_mode = WAL")
    with engine.begin() as db:
        alembic.upgrade(Operations(db), shards=2)
        assert schema.facts(db).shards == 2
        alembic.downgrade(Operations(db))
        left = db.execute(text("SELECT name FROM sqlite_master WHERE name LIKE 'headrace%'"))
        assert left.all() == []
