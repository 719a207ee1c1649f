"""`once=Sql(engine)`: the memory of handled messages is in the handler's own database.

Each message leaves a row in `headrace_once`, written in the same transaction as the handler's own
work: both are there or neither, whichever process fails in between. That is strong enough for
money, as long as the whole effect of the handler goes through the `db` that it gets.

A second attempt at the same message, also one that runs at the same moment, finds the row (or waits
for the transaction that writes it, but no longer than `lock_wait`). The database ends the
connection of a worker that is stuck inside its transaction after `longest_pause` (PostgreSQL,
MariaDB): until then its message, and with `order_by="key"` its key, waits. An error of the database
before the handler has begun does not count as a failure of the message: `TryLater`; the same holds
for a connection that is lost inside. Rows older than `keep` are removed now and then.

Takes a SQLAlchemy `Engine` or `AsyncEngine`; tried on PostgreSQL, MariaDB and SQLite.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
    text,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.sql import Delete, Insert
from sqlalchemy.sql.elements import TextClause

from headrace.app.once.memory import OnceAttempt
from headrace.app.once.message_ids import former_id, may_be_known_formerly, was_this
from headrace.app.once.standing_transactions import LOCK_NOT_AVAILABLE, end_standing, sqlstate
from headrace.app.retry import Duration, TryLater, milliseconds

# 255 + 512 characters of four bytes just fit into MySQL's longest key (3,072 bytes).
LONGEST_GROUP = 255
LONGEST_MESSAGE_ID = 512
CLEAN_EVERY_MS = 600_000
# PostgreSQL's states: connection failures, a server that shuts down or starts up, a pause too long.
AWAY_STATES = ("08", "57P", "25P03")
MYSQL = ("mysql", "mariadb")
# The id of the row, one per group, with the time since which ids hold the topic (`message_ids.py`).
# No message has this id: the ids of messages hold a "/".
TOPIC_IDS_SINCE = "headrace: topics in ids since"

# The older form of a message's id, if it has one, and the time when the record was written.
Former = tuple[str | None, int | None]


class Sql:
    """Handles each message once: its id is stored in the handler's database transaction."""

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        *,
        keep: Duration = "30d",
        lock_wait: Duration = "5s",
        longest_pause: Duration = "5m",
        table: str = "headrace_once",
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._engine = engine
        self._keep_ms = milliseconds(keep, "keep")
        self._lock_wait_ms = milliseconds(lock_wait, "lock_wait")
        self._longest_pause_ms = milliseconds(longest_pause, "longest_pause")
        self._now_ms = now_ms
        self._clean_at_ms = 0
        self._metadata = MetaData()
        self.table = Table(
            table,
            self._metadata,
            Column("group_id", _exact(LONGEST_GROUP), primary_key=True),
            Column("message_id", _exact(LONGEST_MESSAGE_ID), primary_key=True),
            Column("handled_at", BigInteger, nullable=False, index=True),  # milliseconds
        )
        self._topic_ids_since_ms: dict[str, int] = {}  # by group; a group in it is ready
        self._ready_lock = threading.Lock()
        self._ready_async = asyncio.Lock()

    def refusal(self, *, asynchronous: bool) -> str | None:
        if asynchronous and not isinstance(self._engine, AsyncEngine):
            return "once=Sql of an async handler needs an AsyncEngine (create_async_engine)."
        if not asynchronous and isinstance(self._engine, AsyncEngine):
            return (
                "once=Sql of a plain function needs an Engine (create_engine), not an AsyncEngine."
            )
        return None

    def prepare(self, group: str) -> None:
        """Does nothing yet: the database may still be away, and the first attempt creates the
        table."""
        if len(group) > LONGEST_GROUP:
            raise ValueError(f"with once=Sql a group's name has at most {LONGEST_GROUP} characters")

    def attempt(
        self, group: str, message_id: str, written_at_ms: int | None = None
    ) -> AbstractContextManager[OnceAttempt]:
        assert isinstance(self._engine, Engine), "the app asked `refusal` first"
        return self._attempt(
            self._engine, self._row(group, message_id), _former(message_id, written_at_ms)
        )

    def attempt_async(
        self, group: str, message_id: str, written_at_ms: int | None = None
    ) -> AbstractAsyncContextManager[OnceAttempt]:
        assert isinstance(self._engine, AsyncEngine), "the app asked `refusal` first"
        return self._attempt_async(
            self._engine, self._row(group, message_id), _former(message_id, written_at_ms)
        )

    def _row(self, group: str, message_id: str) -> dict[str, Any]:
        return {
            "group_id": group,
            "message_id": _key(message_id),
            "handled_at": self._now_ms(),
        }

    def close(self) -> None:
        """Does nothing: the engine belongs to the caller, who closes it."""

    # ---- one attempt

    @contextmanager
    def _attempt(
        self, engine: Engine, row: dict[str, Any], former: Former
    ) -> Iterator[OnceAttempt]:
        try:
            self._make_ready(engine, row["group_id"])
            connection = engine.connect()
        except (SQLAlchemyError, OSError) as away:
            raise _try_later(away) from away
        entered = False
        try:
            with connection.begin():
                duplicate = self._is_known(connection, row, former)
                entered = True
                yield OnceAttempt(duplicate, None if duplicate else connection)
        except (SQLAlchemyError, OSError) as failure:
            if not entered:
                self._topic_ids_since_ms.clear()  # perhaps the table was dropped
            if sqlstate(failure) == LOCK_NOT_AVAILABLE and not entered:
                with suppress(SQLAlchemyError, OSError), connection.begin():
                    self._end_standing(connection)
            if _is_away(failure, inside_handler=entered):
                raise _try_later(failure) from failure
            raise
        finally:
            connection.close()
        if (cleaning := self._cleaning()) is not None:
            with suppress(SQLAlchemyError, OSError), engine.begin() as connection:
                connection.execute(cleaning)  # if it fails, the next one does it

    @asynccontextmanager
    async def _attempt_async(
        self, engine: AsyncEngine, row: dict[str, Any], former: Former
    ) -> AsyncIterator[OnceAttempt]:
        try:
            await self._make_ready_async(engine, row["group_id"])
            connection = await engine.connect()
        except (SQLAlchemyError, OSError) as away:
            raise _try_later(away) from away
        entered = False
        try:
            async with connection.begin():
                duplicate = await connection.run_sync(self._is_known, row, former)
                entered = True
                yield OnceAttempt(duplicate, None if duplicate else connection)
        except (SQLAlchemyError, OSError) as failure:
            if not entered:
                self._topic_ids_since_ms.clear()  # perhaps the table was dropped
            if sqlstate(failure) == LOCK_NOT_AVAILABLE and not entered:
                with suppress(SQLAlchemyError, OSError):
                    async with connection.begin():
                        await connection.run_sync(self._end_standing)
            if _is_away(failure, inside_handler=entered):
                raise _try_later(failure) from failure
            raise
        finally:
            await connection.close()
        if (cleaning := self._cleaning()) is not None:
            with suppress(SQLAlchemyError, OSError):
                async with engine.begin() as connection:
                    await connection.execute(cleaning)

    def _is_known(self, connection: Connection, row: dict[str, Any], former: Former) -> bool:
        """Write the row; returns whether the message was handled before."""
        if (limits := self._limits(connection.dialect)) is not None:
            connection.execute(limits)
        return not self._claim(connection, row) or self._was_known(connection, row, former)

    def _was_known(self, connection: Connection, row: dict[str, Any], former: Former) -> bool:
        """Whether it was handled under the older form of its id, when ids had no topic id."""
        (older, written_at_ms), group = former, row["group_id"]
        since_ms = self._topic_ids_since_ms.get(group, 0)
        if older is None or not may_be_known_formerly(written_at_ms, since_ms):
            return False
        handled_at_ms = self._handled_at(connection, group, older)
        return handled_at_ms is not None and was_this(written_at_ms, handled_at_ms)

    def _handled_at(self, connection: Connection, group: str, message_id: str) -> int | None:
        columns = self.table.c
        of_message = (columns.group_id == group) & (columns.message_id == message_id)
        found: int | None = connection.scalar(select(columns.handled_at).where(of_message))
        return found

    def _claim(self, connection: Connection, row: dict[str, Any]) -> bool:
        """Write the row; False if it was there. Waits for another attempt that is writing it."""
        statement = self._insert_if_absent(connection.dialect.name)
        if statement is not None:
            # Without the option SQLAlchemy keeps no row count of an INSERT on PostgreSQL.
            counted = statement.values(**row).execution_options(preserve_rowcount=True)
            return connection.execute(counted).rowcount == 1
        try:
            with connection.begin_nested():
                connection.execute(insert(self.table).values(**row))
        except IntegrityError:
            return False
        return True

    def _limits(self, dialect: Dialect) -> TextClause | None:
        """One statement for both limits; on MySQL and MariaDB in whole seconds and for the
        session."""
        lock_ms, pause_ms = self._lock_wait_ms, self._longest_pause_ms
        if dialect.name == "postgresql":
            return text(
                f"SELECT set_config('lock_timeout', '{lock_ms}', true),"
                f" set_config('idle_in_transaction_session_timeout', '{pause_ms}', true)"
            )
        if dialect.name in MYSQL:
            limits = f"SET innodb_lock_wait_timeout = {_whole_seconds(lock_ms)}"
            if getattr(dialect, "is_mariadb", False):  # MySQL has no such limit
                limits += f", idle_transaction_timeout = {_whole_seconds(pause_ms)}"
            return text(limits)
        return None

    def _end_standing(self, connection: Connection) -> None:
        end_standing(connection, self.table.name, self._longest_pause_ms)

    def _insert_if_absent(self, dialect: str) -> Insert | None:
        match dialect:
            case "postgresql":
                return postgresql.insert(self.table).on_conflict_do_nothing()
            case "sqlite":
                return sqlite.insert(self.table).on_conflict_do_nothing()
            case "mysql" | "mariadb":
                return mysql.insert(self.table).prefix_with("IGNORE")
        return None

    # ---- the table and its age

    def _make_ready(self, engine: Engine, group: str) -> None:
        with self._ready_lock:
            if group not in self._topic_ids_since_ms:
                with engine.begin() as connection:
                    self._create_table(connection)
                with engine.begin() as connection:
                    self._topic_ids_since_ms[group] = self._begin_group(connection, group)

    async def _make_ready_async(self, engine: AsyncEngine, group: str) -> None:
        async with self._ready_async:
            if group not in self._topic_ids_since_ms:
                async with engine.begin() as connection:
                    await connection.run_sync(self._create_table)
                async with engine.begin() as connection:
                    since_ms = await connection.run_sync(self._begin_group, group)
                    self._topic_ids_since_ms[group] = since_ms

    def _begin_group(self, connection: Connection, group: str) -> int:
        """The time since which the group's ids hold topic ids; writes down the present time if no
        worker has written one."""
        now_ms = self._now_ms()
        row = {"group_id": group, "message_id": TOPIC_IDS_SINCE, "handled_at": now_ms}
        since_ms = self._handled_at(connection, group, TOPIC_IDS_SINCE)
        if since_ms is not None or self._claim(connection, row):
            return now_ms if since_ms is None else since_ms
        return now_ms  # another worker wrote it a moment ago

    def _create_table(self, connection: Connection) -> None:
        """Several workers may start at once: the second one finds the table."""
        try:
            with connection.begin_nested():
                self._metadata.create_all(connection)
        except DBAPIError:
            if not connection.dialect.has_table(connection, self.table.name):
                raise

    def _cleaning(self) -> Delete | None:
        now_ms = self._now_ms()
        if now_ms < self._clean_at_ms:
            return None
        self._clean_at_ms = now_ms + CLEAN_EVERY_MS
        columns = self.table.c
        is_old = columns.handled_at < now_ms - self._keep_ms
        return delete(self.table).where(is_old & (columns.message_id != TOPIC_IDS_SINCE))


def _exact(length: int) -> String:
    """Text that is equal only to itself: MySQL compares without case by default."""
    binary = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(binary, *MYSQL)


def _whole_seconds(ms: int) -> int:
    return max(1, -(-ms // 1000))


def _key(message_id: str) -> str:
    """A form of the id that every database can store in its column and compare: PostgreSQL does not
    accept NUL or lone surrogates, MySQL ignores a space at the end.
    """
    plain = message_id.isprintable() and not message_id.endswith(" ")
    if len(message_id) <= LONGEST_MESSAGE_ID and plain:
        return message_id
    raw = message_id.encode(errors="surrogatepass")
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def _former(message_id: str, written_at_ms: int | None) -> Former:
    older = former_id(message_id)
    return (None if older is None else _key(older)), written_at_ms


def _is_away(failure: Exception, *, inside_handler: bool) -> bool:
    """Whether the database is away: before the handler every error means that, inside it only a
    lost connection."""
    if not inside_handler:
        return not isinstance(failure, DataError)
    if not isinstance(failure, DBAPIError):
        return False
    return failure.connection_invalidated or sqlstate(failure).startswith(AWAY_STATES)


def _try_later(why: Exception) -> TryLater:
    return TryLater(f"the database of once= cannot be used now: {_first_line(why)}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
