"""The differences between databases: the tables, the writer's statements, and which rows are
stable.

Each module has the same names; `of` finds the one of a SQLAlchemy dialect. PostgreSQL 13, MariaDB
10.6 and SQLite 3.35 are the oldest that have what is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sqlalchemy import TextClause
from sqlalchemy.engine import Connection

NAMES = ("postgresql", "mysql", "mariadb", "sqlite")
NO_GATE = (
    "headrace_outbox_gate has lost its rows, and without them rows of the outbox would be skipped: "
    "stop the writers, and run `headrace outbox init DATABASE_URL`."
)


class Horizon(Protocol):
    """Finds the id below which all rows are decided. Lives as long as its connection."""

    def advance(self, connection: Connection) -> int:
        """Looks once. Returns an id that is never smaller than before. Does not wait for long."""
        ...

    def held_up_by(self, connection: Connection) -> str | None:
        """The transaction that keeps rows from being stable, for people; None: there is none."""
        ...


class Database(Protocol):
    """A module of this package."""

    NOW_MS: str  # the database's clock, an expression
    GATE: tuple[str, ...]  # run before the INSERT, until one gives a row
    LOCKED_READ: str  # what a relay's SELECT of rows ends with
    INSERT_ONCE: str
    TABLE_BYTES: str  # a SELECT: what the rows and their indexes take on disk
    DELETE_AT_ONCE: int  # sent rows
    VACUUM: str | None  # makes room of deleted rows usable; None: the database does it by itself
    SESSION: tuple[str, ...]  # what a relay's connection begins with

    def tables(self, shards: int) -> list[str]: ...

    def fault(self, connection: Connection) -> str | None:
        """Returns the first assumption of a relay that does not hold, as a sentence: the relay
        would skip rows, or send none. None if all hold."""
        ...

    def make_horizon(self) -> Horizon: ...

    def fetch(
        self, connection: Connection, select: TextClause, values: Mapping[str, int]
    ) -> list[Any]:
        """Returns the driver's own rows: SQLAlchemy's cost as much as the rest of the reading."""
        ...

    def wait_for_rows(self, connection: Connection, timeout_s: float, idle_s: float) -> None:
        """Returns when a row is committed, or after the time at the latest. `idle_s`: for so long
        no row has come."""
        ...


# If the database sends no notice of new rows, an outbox at rest is polled less often: a look every
# 5 ms took 2.6 % of a core. The first row after a rest waits so long, the next ones do not.
LONGEST_POLL_S = 0.05
IDLE_PER_POLL = 200  # after 2 s of rest every 10 ms, after 10 s every 50 ms


def poll_pause_s(shortest_s: float, idle_s: float) -> float:
    return max(shortest_s, min(LONGEST_POLL_S, idle_s / IDLE_PER_POLL))


def fetched(connection: Connection, select: TextClause, values: Mapping[str, int]) -> list[Any]:
    """`fetch` of most databases."""
    with connection.execute(select, values) as result:
        return list(result.cursor.fetchall())


def of(dialect: str) -> Database:
    from headrace.services.outbox.databases import mariadb, postgresql, sqlite

    match dialect:
        case "postgresql":
            return postgresql
        case "mysql" | "mariadb":
            return mariadb
        case "sqlite":
            return sqlite
    raise ValueError(f"The outbox knows PostgreSQL, MariaDB (MySQL) and SQLite, not {dialect}.")
