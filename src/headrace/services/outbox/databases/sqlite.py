"""The outbox in SQLite: one writer at a time, so rows become visible in the order of their ids.

AUTOINCREMENT, because without it the id of a deleted row is given again. Write-ahead logging,
because otherwise the relay's reads and the application's writes block each other; `init` turns it
on. A program that begins its transactions with BEGIN IMMEDIATE meets no "database is locked".
"""

from __future__ import annotations

import time

from sqlalchemy import text
from sqlalchemy.engine import Connection

from headrace.services.outbox.databases import Horizon, fetched, poll_pause_s

NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
GATE: tuple[str, ...] = ()
LOCKED_READ = ""
# Writers wait meanwhile.
DELETE_AT_ONCE = 5000
VACUUM: str | None = None
SESSION: tuple[str, ...] = ("PRAGMA busy_timeout = 30000",)
INSERT_ONCE = "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"
# The size of the whole file: SQLite does not report the size of one table.
TABLE_BYTES = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
POLL_S = 0.005

fetch = fetched


def tables(shards: int) -> list[str]:
    return [
        "PRAGMA journal_mode = WAL",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_meta"
        " (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS headrace_outbox ("
        " id INTEGER PRIMARY KEY AUTOINCREMENT,"
        f" shard INTEGER NOT NULL DEFAULT 0 CHECK (shard >= 0 AND shard < {shards}),"
        " topic TEXT NOT NULL, message_key BLOB, payload BLOB, headers TEXT, message_id TEXT,"
        f" created_at INTEGER NOT NULL DEFAULT ({NOW_MS}))",
        "CREATE INDEX IF NOT EXISTS headrace_outbox_by_shard ON headrace_outbox (shard, id)",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_parked ("
        " id INTEGER PRIMARY KEY, shard INTEGER NOT NULL, topic TEXT NOT NULL, message_key BLOB,"
        " payload BLOB, headers TEXT, message_id TEXT, created_at INTEGER NOT NULL,"
        " state TEXT NOT NULL, reason TEXT NOT NULL, parked_at INTEGER NOT NULL)",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_confirmations ("
        " message_id TEXT PRIMARY KEY, id INTEGER NOT NULL, shard INTEGER NOT NULL,"
        " topic TEXT NOT NULL, message_key BLOB, payload BLOB, headers TEXT,"
        " created_at INTEGER NOT NULL, within_ms INTEGER NOT NULL, state TEXT NOT NULL,"
        " resends INTEGER NOT NULL DEFAULT 0, sent_as INTEGER, due_at INTEGER)",
        "CREATE INDEX IF NOT EXISTS headrace_outbox_confirmations_due"
        " ON headrace_outbox_confirmations (state, due_at)",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_shards ("
        " shard INTEGER PRIMARY KEY, sent_id INTEGER, sent_at INTEGER, owner TEXT,"
        " lease_until INTEGER NOT NULL DEFAULT 0, problem TEXT,"
        " rows_per_s double precision NOT NULL DEFAULT 0)",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_relays"
        " (relay TEXT PRIMARY KEY, seen_until INTEGER NOT NULL)",
    ]


def fault(connection: Connection) -> str | None:
    made = text("SELECT sql FROM sqlite_master WHERE name = 'headrace_outbox'")
    if "AUTOINCREMENT" in str(connection.execute(made).scalar()).upper():
        return None
    return (
        "The table headrace_outbox was made without AUTOINCREMENT: ids of deleted rows would come "
        "again, and their rows be skipped. `headrace outbox init --print` shows how it is made."
    )


def make_horizon() -> Horizon:
    return _Horizon()


class _Horizon:
    def __init__(self) -> None:
        self._up_to = 0

    def advance(self, connection: Connection) -> int:
        largest = connection.execute(text("SELECT MAX(id) FROM headrace_outbox")).scalar()
        self._up_to = max(self._up_to, largest or 0)
        return self._up_to

    def held_up_by(self, connection: Connection) -> str | None:
        return None


def wait_for_rows(connection: Connection, timeout_s: float, idle_s: float) -> None:
    time.sleep(min(timeout_s, poll_pause_s(POLL_S, idle_s)))
