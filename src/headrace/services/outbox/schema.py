"""The outbox's tables: how they are created, and the facts that a writer needs.

`headrace_outbox_meta` holds the version of the tables, the outbox's own id (a part of message ids
and positions: an outbox that is created again is another one) and the number of shards. Its rows
are written last, so tables that are only half made count as missing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import text
from sqlalchemy.engine import Connection

from headrace.services.outbox import databases

VERSION = 3  # 2: headrace_outbox_confirmations; 3: rows_per_s of headrace_outbox_shards
SHARDS = 4
MOST_SHARDS = 1024
READ_META = "SELECT name, value FROM headrace_outbox_meta"
VIEW = (
    "headrace_outbox_states AS SELECT o.id, o.shard, o.topic, o.message_key, o.message_id,"
    " o.created_at, CASE WHEN p.id IS NOT NULL THEN 'PARKED' WHEN o.id <= s.sent_id"
    " THEN 'FINISHED' ELSE 'UNFINISHED' END AS state"
    " FROM headrace_outbox o JOIN headrace_outbox_shards s ON s.shard = o.shard"
    " LEFT JOIN headrace_outbox_parked p ON p.id = o.id"
)
CREATE_VIEW = {"sqlite": "CREATE VIEW IF NOT EXISTS "}


class OutboxError(Exception):
    """A call was refused; the text says why, and what to do."""


@dataclass(slots=True, frozen=True)
class Facts:
    outbox_id: str
    shards: int


class Maker(Protocol):
    """A connection that makes tables; `?` is the placeholder of a value."""

    dialect: str

    def run(self, sql: str, values: Sequence[Any] = ()) -> None: ...

    def query(self, sql: str) -> list[Sequence[Any]]: ...


def statements(dialect: str, shards: int = SHARDS) -> list[str]:
    """Everything but the rows of `headrace_outbox_meta`."""
    if not 1 <= shards <= MOST_SHARDS:
        raise OutboxError(f"An outbox has 1 to {MOST_SHARDS} shards, not {shards}.")
    found = databases.of(dialect).tables(shards)
    found.append(CREATE_VIEW.get(dialect, "CREATE OR REPLACE VIEW ") + VIEW)
    return found


TABLES = ("parked", "confirmations", "shards", "relays", "gate", "meta")


def drop_statements(dialect: str) -> list[str]:
    """Everything that `create` makes."""
    found = ["DROP VIEW IF EXISTS headrace_outbox_states", "DROP TABLE IF EXISTS headrace_outbox"]
    found += [f"DROP TABLE IF EXISTS headrace_outbox_{name}" for name in TABLES]
    if dialect == "postgresql":
        found += ["DROP SEQUENCE IF EXISTS headrace_outbox_id_seq"]
        found += ["DROP FUNCTION IF EXISTS headrace_outbox_wake()"]
    return found


def create(connection: Connection, shards: int | None = None) -> Facts:
    """Make what is missing, also in tables of an older version. Existing tables stay, with their
    number of shards."""
    there = connection.dialect.has_table(connection, "headrace_outbox_meta")
    return make(_Alchemy(connection), there=there, shards=shards)


def make(db: Maker, *, there: bool, shards: int | None = None) -> Facts:
    """`there`: the table `headrace_outbox_meta` is there."""
    insert_once = databases.of(db.dialect).INSERT_ONCE
    known = read(db.query(READ_META), oldest=1) if there else None
    if known is not None and shards is not None and known.shards != shards:
        raise OutboxError(
            f"The outbox of this database has {known.shards} shards; their number does not change."
        )
    chosen = known.shards if known is not None else shards or SHARDS
    for statement in statements(db.dialect, chosen):
        if statement.startswith("PRAGMA journal_mode") and _writes_ahead(db):
            continue
        if statement.startswith("CREATE TRIGGER") and (known is not None or _has_trigger(db)):
            continue  # one that somebody dropped stays dropped
        db.run(statement)
    if "rows_per_s" not in _columns(db, "headrace_outbox_shards"):
        added = "ALTER TABLE headrace_outbox_shards ADD COLUMN rows_per_s double precision"
        db.run(f"{added} NOT NULL DEFAULT 0")
    number = insert_once.format(table="headrace_outbox_shards", columns="shard", values="?")
    for shard in range(chosen):
        db.run(number, (shard,))
    if known is None:
        fresh = {"version": VERSION, "outbox": secrets.token_urlsafe(9), "shards": chosen}
        meta = insert_once.format(
            table="headrace_outbox_meta", columns="name, value", values="?, ?"
        )
        for name, value in fresh.items():
            db.run(meta, (name, str(value)))
    else:  # last: tables that are only half brought up count as older ones
        brought_up = "UPDATE headrace_outbox_meta SET value = ? WHERE name = 'version'"
        db.run(brought_up, (str(VERSION),))
    found = read(db.query(READ_META))
    assert found is not None, "its rows were written above"
    return found


def facts(connection: Connection) -> Facts:
    """Raises OutboxError if the tables are missing or of another version."""
    known = _known(connection)
    if known is None:
        raise missing()
    return known


def missing() -> OutboxError:
    return OutboxError(
        "This database has no outbox tables: make them with `headrace outbox init DATABASE_URL`."
    )


def _known(connection: Connection) -> Facts | None:
    if not connection.dialect.has_table(connection, "headrace_outbox_meta"):
        return None
    return read(connection.exec_driver_sql(READ_META).all())


def read(rows: Iterable[Sequence[str]], oldest: int = VERSION) -> Facts | None:
    """None: the tables were not made to the end."""
    meta = {str(row[0]): str(row[1]) for row in rows}
    if not {"version", "outbox", "shards"} <= meta.keys():
        return None
    try:
        version, shards = int(meta["version"]), int(meta["shards"])
    except ValueError as wrong:
        raise OutboxError(f"headrace_outbox_meta of this database is damaged: {wrong}.") from wrong
    if not 1 <= shards <= MOST_SHARDS:
        raise OutboxError(f"headrace_outbox_meta of this database is damaged: {shards} shards.")
    if version < oldest:
        raise OutboxError(
            f"The outbox tables of this database are of version {version}, and this Headrace needs "
            f"{VERSION}: run `headrace outbox init DATABASE_URL`."
        )
    if version > VERSION:
        raise OutboxError(
            f"The outbox tables of this database are of version {version}, and this Headrace knows "
            f"{VERSION}: install a newer one."
        )
    return Facts(meta["outbox"], shards)


def _has_trigger(db: Maker) -> bool:
    """PostgreSQL has no CREATE TRIGGER IF NOT EXISTS. Another schema may have an outbox too."""
    own = "tgname = 'headrace_outbox_wake' AND tgrelid = 'headrace_outbox'::regclass"
    return bool(db.query(f"SELECT 1 FROM pg_trigger WHERE {own}"))


def _columns(db: Maker, table: str) -> set[str]:
    if db.dialect == "sqlite":
        found = db.query(f"SELECT name FROM pragma_table_info('{table}')")
    else:
        where = f"FROM information_schema.columns WHERE table_name = '{table}'"
        here = "current_schema()" if db.dialect == "postgresql" else "database()"
        found = db.query(f"SELECT column_name {where} AND table_schema = {here}")
    return {str(row[0]) for row in found}


def _writes_ahead(db: Maker) -> bool:
    return str(db.query("PRAGMA journal_mode")[0][0]).lower() == "wal"


class _Alchemy:
    """A connection of SQLAlchemy as a Maker."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self.dialect = connection, connection.dialect.name

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        if not values:
            self._connection.exec_driver_sql(sql)
            return
        named = sql
        for number in range(len(values)):
            named = named.replace("?", f":v{number}", 1)
        given = {f"v{number}": value for number, value in enumerate(values)}
        self._connection.execute(text(named), given)

    def query(self, sql: str) -> list[Sequence[Any]]:
        return list(self._connection.exec_driver_sql(sql).all())
