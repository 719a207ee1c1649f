"""The outbox in MariaDB: a writer passes a gate before it inserts, and the relay closes each once.

There are two gates, rows of a small table. A writer takes a shared lock on one of them, whichever
is not being closed, and keeps it until its transaction ends. The relay reads the largest id L, then
locks gate 1 and gate 2, one after the other: a transaction that had drawn an id up to L held one of
them and has ended by then. New writers are never held up for long, because one gate is always open.

Rows are read with a shared lock: a transaction that was prepared (XA) gives the gate back, but it
holds its rows until it is decided. Needs 10.6 (SKIP LOCKED). Not for Galera with several writers,
nor for a replica.
"""

from __future__ import annotations

import time

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

from headrace.services.outbox.databases import NO_GATE, Horizon, fetched, poll_pause_s

NOW_MS = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
GATE: tuple[str, ...] = (
    "SELECT g FROM headrace_outbox_gate ORDER BY g LIMIT 1 LOCK IN SHARE MODE SKIP LOCKED",
    "SELECT g FROM headrace_outbox_gate WHERE g = 1 LOCK IN SHARE MODE",
)
LOCKED_READ = " LOCK IN SHARE MODE"
INSERT_ONCE = "INSERT IGNORE INTO {table} ({columns}) VALUES ({values})"
# One second is the least that can be waited for a lock. UTC: no hour comes twice.
# Locks of neighbouring rows are held as long.
DELETE_AT_ONCE = 5000
VACUUM: str | None = None
SESSION: tuple[str, ...] = (
    "SET time_zone = '+00:00', innodb_lock_wait_timeout = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
TABLE_BYTES = (
    "SELECT data_length + index_length FROM information_schema.tables"
    " WHERE table_schema = database() AND table_name = 'headrace_outbox'"
)
POLL_S = 0.01
LOCK_WAIT_TIMEOUT, DEADLOCK = 1205, 1213
GATES = (1, 2)

_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_CLOSE = text("SELECT g FROM headrace_outbox_gate WHERE g = :gate FOR UPDATE")

fetch = fetched


def tables(shards: int) -> list[str]:
    rows = (
        f" topic varchar(249) {_TEXT} NOT NULL, message_key longblob, payload longblob,"
        f" headers longtext {_TEXT}, message_id varchar(512) {_TEXT},"
    )
    return [
        "CREATE TABLE IF NOT EXISTS headrace_outbox_meta"
        f" (name varchar(32) PRIMARY KEY, value varchar(255) {_TEXT} NOT NULL) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_gate (g int PRIMARY KEY) ENGINE=InnoDB",
        "INSERT IGNORE INTO headrace_outbox_gate VALUES (1), (2)",
        "CREATE TABLE IF NOT EXISTS headrace_outbox ("
        " id bigint NOT NULL AUTO_INCREMENT, shard smallint NOT NULL DEFAULT 0,"
        f"{rows}"
        # Whole seconds: only this function of the clock is right in the hour that comes twice.
        " created_at bigint NOT NULL DEFAULT (UNIX_TIMESTAMP() * 1000),"
        " PRIMARY KEY (shard, id), KEY headrace_outbox_id (id),"
        f" CONSTRAINT headrace_outbox_shard CHECK (shard >= 0 AND shard < {shards})) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_parked ("
        f" id bigint PRIMARY KEY, shard smallint NOT NULL,{rows.replace('249', '1024')}"
        " created_at bigint NOT NULL, state varchar(16) NOT NULL,"
        f" reason longtext {_TEXT} NOT NULL, parked_at bigint NOT NULL) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_confirmations ("
        f" message_id varchar(512) {_TEXT} PRIMARY KEY, id bigint NOT NULL,"
        f" shard smallint NOT NULL, topic varchar(249) {_TEXT} NOT NULL, message_key longblob,"
        f" payload longblob, headers longtext {_TEXT}, created_at bigint NOT NULL,"
        " within_ms bigint NOT NULL, state varchar(16) NOT NULL, resends int NOT NULL DEFAULT 0,"
        " sent_as bigint, due_at bigint, KEY headrace_outbox_confirmations_due (state, due_at))"
        " ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_shards ("
        f" shard smallint PRIMARY KEY, sent_id bigint, sent_at bigint, owner varchar(255) {_TEXT},"
        f" lease_until bigint NOT NULL DEFAULT 0, problem longtext {_TEXT},"
        " rows_per_s double precision NOT NULL DEFAULT 0) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_relays"
        f" (relay varchar(255) {_TEXT} PRIMARY KEY, seen_until bigint NOT NULL) ENGINE=InnoDB",
    ]


def fault(connection: Connection) -> str | None:
    gates = connection.execute(text("SELECT count(*) FROM headrace_outbox_gate")).scalar()
    return NO_GATE if gates != len(GATES) else None


def make_horizon() -> Horizon:
    return _Horizon()


class _Horizon:
    def __init__(self) -> None:
        self._up_to = 0
        self._closing: tuple[int, tuple[int, ...]] | None = None  # L, gates still to be closed

    def advance(self, connection: Connection) -> int:
        if self._closing is None:
            largest = connection.execute(text("SELECT MAX(id) FROM headrace_outbox")).scalar()
            if largest is None or largest <= self._up_to:
                return self._up_to
            self._closing = (largest, GATES)
        largest, gates = self._closing
        while gates:
            if not _closed_once(connection, gates[0]):
                self._closing = (largest, gates)
                return self._up_to
            gates = gates[1:]
        self._up_to, self._closing = largest, None
        return largest

    def held_up_by(self, connection: Connection) -> str | None:
        if self._closing is None:
            return None
        gate = self._closing[1][0]
        return f"a transaction that passed gate {gate} of the outbox and is open, or was prepared"


def _closed_once(connection: Connection, gate: int) -> bool:
    """Returns whether all transactions that were behind the gate are decided."""
    try:
        connection.exec_driver_sql("BEGIN")
        connection.execute(_CLOSE, {"gate": gate})
        connection.exec_driver_sql("COMMIT")
    except OperationalError as failure:
        if failure.orig is not None and failure.orig.args[0] in (LOCK_WAIT_TIMEOUT, DEADLOCK):
            connection.exec_driver_sql("ROLLBACK")
            return False
        raise
    return True


def wait_for_rows(connection: Connection, timeout_s: float, idle_s: float) -> None:
    time.sleep(min(timeout_s, poll_pause_s(POLL_S, idle_s)))
