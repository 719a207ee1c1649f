"""The types of `db` that an application may give: its own connection, in its own transaction.

SQLAlchemy's connections and sessions, also those for asyncio; connections of the drivers
themselves: psycopg, PyMySQL and similar ones, sqlite3; and Django's. A connection with autocommit
is refused: the row would be there without the change that it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, Protocol

from sqlalchemy import TextClause, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from headrace.services.outbox.schema import OutboxError

# driver: (dialect, placeholder)
DRIVERS = {
    "psycopg": ("postgresql", "%s"),
    "psycopg2": ("postgresql", "%s"),
    "pymysql": ("mysql", "%s"),
    "MySQLdb": ("mysql", "%s"),
    "mariadb": ("mysql", "?"),
    "mysql": ("mysql", "%s"),
    "sqlite3": ("sqlite", "?"),
    "_sqlite3": ("sqlite", "?"),
}
NO_TRANSACTION = (
    "This connection commits each statement by itself: begin a transaction, or the message would "
    "not be one with your change."
)
SERVER_STATUS_IN_TRANS = 1  # of MySQL's protocol


class Handle(Protocol):
    """A connection in a transaction, whatever its kind."""

    dialect: str

    def run(self, sql: str, values: Sequence[Any] = ()) -> None: ...

    def query(self, sql: str) -> list[Sequence[Any]]: ...


class AlchemyHandle:
    def __init__(self, given: Connection | Session | scoped_session[Session]) -> None:
        connection = given if isinstance(given, Connection) else _of_session(given)
        if _alchemy_commits_by_itself(connection):
            raise OutboxError(NO_TRANSACTION)
        self._connection = connection
        self.dialect = connection.dialect.name

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        statement = _alchemy_text(sql, len(values))
        self._connection.execute(statement, {f"v{i}": value for i, value in enumerate(values)})

    def query(self, sql: str) -> list[Sequence[Any]]:
        return list(self._connection.execute(_alchemy_text(sql, 0)).all())


class DriverHandle:
    def __init__(self, connection: Any) -> None:
        driver = type(connection).__module__.partition(".")[0]
        self.dialect, self._placeholder = DRIVERS[driver]
        if iscoroutinefunction(type(connection).commit):
            raise OutboxError(
                f"A {driver}.{type(connection).__qualname__} is one for asyncio: give an "
                "AsyncConnection of SQLAlchemy, or a plain connection."
            )
        if _commits_by_itself(connection):
            raise OutboxError(NO_TRANSACTION)
        self._connection = connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql.replace("?", self._placeholder), tuple(values))
        finally:
            cursor.close()

    def query(self, sql: str) -> list[Sequence[Any]]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql)
            return [_plain(row) for row in cursor.fetchall()]
        finally:
            cursor.close()


class DjangoHandle:
    """A handle for a connection as Django wraps it: `django.db.connection`,
    `connections["other"]`."""

    def __init__(self, connection: Any, *, in_transaction: bool = True) -> None:
        if in_transaction and not connection.in_atomic_block:
            raise OutboxError(
                "This connection commits each statement by itself: send inside of "
                "transaction.atomic(), or the message would not be one with your change."
            )
        self.dialect = str(connection.vendor)
        self._connection = connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql.replace("?", "%s") if values else sql, tuple(values) or None)

    def query(self, sql: str) -> list[Sequence[Any]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())


def handle_of(db: Any) -> Handle:
    if isinstance(db, Connection | Session | scoped_session):
        return AlchemyHandle(db)
    if hasattr(db, "vendor") and hasattr(db, "in_atomic_block"):
        return DjangoHandle(db)
    if type(db).__module__.partition(".")[0] in DRIVERS and hasattr(db, "cursor"):
        return DriverHandle(db)
    raise OutboxError(
        f"A {type(db).__module__}.{type(db).__qualname__} is not a database connection that the "
        "outbox knows: give a Connection or Session of SQLAlchemy, a connection of Django, or one "
        "of psycopg, PyMySQL or sqlite3."
    )


def run_sync_of(db: Any) -> Callable[..., Any] | None:
    """The function that runs a plain function in the transaction of a connection or session for
    asyncio; None for others."""
    if isinstance(db, async_scoped_session):
        db = db()
    if isinstance(db, AsyncConnection | AsyncSession):
        found: Callable[..., Any] = db.run_sync
        return found
    return None


def _of_session(given: Session | scoped_session[Session]) -> Connection:
    """Flush the session first, as before a query: an UPDATE locks the rows that the message is
    about, and only then may the message get its id."""
    session = given() if isinstance(given, scoped_session) else given
    if session.autoflush and not session._flushing:
        session.flush()
    return session.connection()


_texts: dict[tuple[str, int], TextClause] = {}


def _alchemy_text(sql: str, values: int) -> TextClause:
    """The statement with placeholders. There are few and they repeat, so SQLAlchemy compiles each
    once."""
    found = _texts.get((sql, values))
    if found is None:
        named = sql
        for number in range(values):
            named = named.replace("?", f":v{number}", 1)
        found = _texts[sql, values] = text(named)
    return found


def _plain(row: Any) -> Sequence[Any]:
    """A row as a sequence: a cursor of the application may return dictionaries."""
    return list(row.values()) if isinstance(row, dict) else row


def _alchemy_commits_by_itself(connection: Connection) -> bool:
    """Whether it commits by itself: by its option, or by the state of the driver's connection."""
    asked = connection.get_execution_options().get("isolation_level")
    if asked is not None:
        return bool(asked == "AUTOCOMMIT")
    own = connection.connection
    return _commits_by_itself(own.dbapi_connection) or _commits_by_itself(own.driver_connection)


def _commits_by_itself(connection: Any) -> bool:
    if hasattr(connection, "in_transaction"):  # sqlite3; `autocommit` since Python 3.12
        alone = connection.isolation_level is None
        alone = alone or getattr(connection, "autocommit", None) is True
        return alone and not connection.in_transaction
    if hasattr(connection, "info") and hasattr(connection.info, "transaction_status"):  # psycopg
        return bool(connection.autocommit) and int(connection.info.transaction_status) == 0
    if hasattr(connection, "server_status") and hasattr(connection, "get_autocommit"):  # PyMySQL
        in_transaction = connection.server_status & SERVER_STATUS_IN_TRANS
        return bool(connection.get_autocommit()) and not in_transaction
    return getattr(connection, "autocommit", False) is True
