"""What is given as `db`: transactions that are none are refused, and sessions are flushed first."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, String, create_engine, event, text
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from headrace import Outbox
from headrace.outbox import OutboxError


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    balance: Mapped[int]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Account(name="ada", balance=500))
    yield engine
    engine.dispose()


@pytest.fixture
def outbox(engine: Engine) -> Outbox:
    outbox = Outbox(engine)
    outbox.create()
    return outbox


def count(engine: Engine) -> int:
    with engine.connect() as db:
        return int(db.execute(text("SELECT count(*) FROM headrace_outbox")).scalar_one())


def test_an_engine_that_commits_by_itself_is_refused(engine: Engine, outbox: Outbox) -> None:
    by_itself = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with by_itself.begin() as db, pytest.raises(OutboxError, match="begin a transaction"):
        outbox.send(db, "transfers", "x")
    with Session(by_itself) as session, session.begin():  # noqa: SIM117 - the refusal is inside
        with pytest.raises(OutboxError, match="begin a transaction"):
            outbox.send(session, "transfers", "x")
    with by_itself.connect().execution_options(isolation_level="SERIALIZABLE") as db:
        outbox.send(db, "transfers", "x")
        db.rollback()
    by_itself.dispose()
    assert count(engine) == 0


def test_an_engine_for_asyncio_that_commits_by_itself_is_refused(
    engine: Engine, outbox: Outbox
) -> None:
    async def story() -> None:
        url = engine.url.set(drivername="sqlite+aiosqlite")
        by_itself = create_async_engine(url, isolation_level="AUTOCOMMIT")
        async with by_itself.begin() as db:
            with pytest.raises(OutboxError, match="begin a transaction"):
                await outbox.send(db, "transfers", "x")
        await by_itself.dispose()

    asyncio.run(story())
    assert count(engine) == 0


def test_a_transaction_that_the_program_began_itself_is_one(engine: Engine, outbox: Outbox) -> None:
    """SQLAlchemy's own recipe for BEGIN IMMEDIATE: the driver begins nothing."""
    immediate = create_engine(engine.url)

    @event.listens_for(immediate, "connect")
    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None

    event.listen(immediate, "begin", lambda db: db.exec_driver_sql("BEGIN IMMEDIATE"))
    with immediate.begin() as db:
        outbox.send(db, "transfers", "x")
    immediate.dispose()
    assert count(engine) == 1


def statements(engine: Engine) -> list[str]:
    """What is run from now on: the kinds of statements that change something."""
    said: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def about(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("SELECT"):
            said.append(statement.split()[0])

    return said


@pytest.mark.parametrize("scoped", [False, True])
def test_what_a_session_has_changed_is_written_before_its_message(
    engine: Engine, outbox: Outbox, scoped: bool
) -> None:
    """The UPDATE locks the account. After the message it would come too late: two transactions of
    one account could draw their ids in the other order."""
    session = scoped_session(sessionmaker(engine)) if scoped else Session(engine)
    said = statements(engine)
    with session.begin():
        account = session.get_one(Account, "ada")
        account.balance -= 100
        outbox.send(session, "transfers", {"balance": account.balance}, key="ada")
    session.close()
    assert said == ["UPDATE", "INSERT"]


def test_a_session_that_is_flushing_or_does_not_flush_by_itself_is_left_alone(
    engine: Engine, outbox: Outbox
) -> None:
    said = statements(engine)
    with Session(engine) as session, session.begin():
        account = session.get_one(Account, "ada")
        event.listen(session, "after_flush", lambda *_: outbox.send(session, "flushed", "x"))
        account.balance -= 100
        with session.no_autoflush:
            outbox.send(session, "transfers", "x")
    assert said == ["INSERT", "UPDATE", "INSERT"]


def test_a_scoped_session_for_asyncio_does_as_well(engine: Engine, outbox: Outbox) -> None:
    async def story() -> None:
        at = create_async_engine(engine.url.set(drivername="sqlite+aiosqlite"))
        session = async_scoped_session(async_sessionmaker(at), scopefunc=lambda: None)
        async with session.begin():
            await outbox.send(session, "transfers", "x")
        await session.close()
        await at.dispose()

    asyncio.run(story())
    assert count(engine) == 1


def test_a_driver_s_own_connection_for_asyncio_is_refused(outbox: Outbox) -> None:
    """Its statements would wait for ever for somebody to await them, and no row be written."""
    connection = object.__new__(psycopg.AsyncConnection)
    with pytest.raises(OutboxError, match="AsyncConnection of SQLAlchemy"):
        outbox.send(connection, "transfers", "x")


def test_sessions_for_asyncio_flush_first_too(engine: Engine, outbox: Outbox) -> None:
    async def story() -> list[str]:
        at = create_async_engine(engine.url.set(drivername="sqlite+aiosqlite"))
        said = statements(at.sync_engine)
        async with AsyncSession(at) as session, session.begin():
            account = await session.get_one(Account, "ada")
            account.balance -= 100
            await outbox.send(session, "transfers", "x", key="ada")
        await at.dispose()
        return said

    assert asyncio.run(story()) == ["UPDATE", "INSERT"]
