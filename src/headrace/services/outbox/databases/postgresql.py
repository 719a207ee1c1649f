"""The outbox in PostgreSQL: ids by a sequence, drawn after the transaction has an id of its own.

A plain INSERT is all that a writer does. Only the primary server will do for a relay: a replica's
transactions end at other moments.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import TextClause, text
from sqlalchemy.engine import Connection

from headrace.services.outbox.databases import Horizon, fetched, poll_pause_s
from headrace.services.outbox.stable_ids import StableIds

NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
GATE: tuple[str, ...] = ()
LOCKED_READ = ""
SESSION: tuple[str, ...] = ()
# Only the relay touches sent rows. With 5,000 the table grew while 40,000 rows/s came; not with
# these.
DELETE_AT_ONCE = 20_000
# It neither waits for other sessions nor blocks them: cutting the file's end off would lock the
# table.
VACUUM: str | None = "VACUUM (SKIP_LOCKED, TRUNCATE OFF) headrace_outbox"
TABLE_BYTES = "SELECT pg_total_relation_size('headrace_outbox')"
CHANNEL = "headrace_outbox"
POLL_S = 0.01
INSERT_ONCE = "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"

# The last id is read under the lock of the sequence's page. A plain SELECT last_value is not: each
# 32nd nextval shows the id 32 ahead there while it writes its log record, and ids that had not been
# drawn counted as stable (seen: 15 times in 600,000 reads; it skipped one row of 100,013).
# Volatile, so it stays a subquery of its own: the id is read before the transaction id is drawn.
LAST_ID = "pg_sequence_last_value('headrace_outbox_id_seq'::regclass)"
_POLL = text(
    "SELECT coalesce(last_id, 0),"
    " CASE WHEN last_id > :seen THEN pg_current_xact_id()::text::bigint END,"
    " pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    f" FROM (SELECT {LAST_ID} AS last_id OFFSET 0) AS drawn"
)
# The table's lock is asked for only when transactions elsewhere in the server hold rows up: 219 us.
_HOLDERS = text(
    "SELECT own.transactionid::text::bigint, own.pid FROM pg_locks AS held JOIN pg_locks AS own"
    " ON own.virtualtransaction = held.virtualtransaction AND own.locktype = 'transactionid'"
    " AND own.mode = 'ExclusiveLock' AND own.granted"
    " WHERE held.locktype = 'relation' AND held.mode = 'RowExclusiveLock' AND held.granted"
    " AND held.relation = 'headrace_outbox'::regclass"
)
# Ages and states of other users' sessions are hidden from a user without pg_read_all_stats.
_OLDEST = text(
    "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::int, state"
    " FROM pg_stat_activity WHERE pid = ANY(:pids) ORDER BY xact_start NULLS FIRST LIMIT 1"
)
# A user of prepared transactions drops the trigger: PostgreSQL prepares none that notifies.
_WAKES = text(
    "SELECT 1 FROM pg_trigger WHERE tgname = 'headrace_outbox_wake' AND tgenabled <> 'D'"
    " AND tgrelid = 'headrace_outbox'::regclass"
)


def tables(shards: int) -> list[str]:
    return [
        "CREATE TABLE IF NOT EXISTS headrace_outbox_meta"
        " (name varchar(32) PRIMARY KEY, value varchar(255) NOT NULL)",
        # CACHE 1: with more, a session draws ids that others have passed already.
        "CREATE SEQUENCE IF NOT EXISTS headrace_outbox_id_seq CACHE 1",
        "CREATE TABLE IF NOT EXISTS headrace_outbox ("
        # The transaction id first, then the row's: relays count on that order.
        " id bigint NOT NULL DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL"
        " THEN nextval('headrace_outbox_id_seq') END,"
        " shard smallint NOT NULL DEFAULT 0,"
        " topic varchar(249) NOT NULL,"
        " message_key bytea,"
        " payload bytea,"
        " headers text,"
        " message_id varchar(512),"
        f" created_at bigint NOT NULL DEFAULT {NOW_MS},"
        " PRIMARY KEY (shard, id),"
        f" CONSTRAINT headrace_outbox_shard CHECK (shard >= 0 AND shard < {shards}))",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_parked ("
        " id bigint PRIMARY KEY, shard smallint NOT NULL, topic varchar(1024) NOT NULL,"
        " message_key bytea, payload bytea, headers text, message_id varchar(512),"
        " created_at bigint NOT NULL, state varchar(16) NOT NULL, reason text NOT NULL,"
        " parked_at bigint NOT NULL)",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_confirmations ("
        " message_id varchar(512) PRIMARY KEY, id bigint NOT NULL, shard smallint NOT NULL,"
        " topic varchar(249) NOT NULL, message_key bytea, payload bytea, headers text,"
        " created_at bigint NOT NULL, within_ms bigint NOT NULL, state varchar(16) NOT NULL,"
        " resends int NOT NULL DEFAULT 0, sent_as bigint, due_at bigint)",
        "CREATE INDEX IF NOT EXISTS headrace_outbox_confirmations_due"
        " ON headrace_outbox_confirmations (state, due_at)",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_shards ("
        " shard smallint PRIMARY KEY, sent_id bigint, sent_at bigint, owner varchar(255),"
        " lease_until bigint NOT NULL DEFAULT 0, problem text,"
        " rows_per_s double precision NOT NULL DEFAULT 0)",
        "CREATE TABLE IF NOT EXISTS headrace_outbox_relays"
        " (relay varchar(255) PRIMARY KEY, seen_until bigint NOT NULL)",
        "CREATE OR REPLACE FUNCTION headrace_outbox_wake() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN NOTIFY {CHANNEL}; RETURN NULL; END $$",
        # The same words many times in a transaction are one notification.
        "CREATE TRIGGER headrace_outbox_wake AFTER INSERT ON headrace_outbox"
        " FOR EACH STATEMENT EXECUTE FUNCTION headrace_outbox_wake()",
    ]


_STATE = text(
    "SELECT pg_is_in_recovery(), seqcache,"
    " has_sequence_privilege(seqrelid, 'SELECT') OR has_sequence_privilege(seqrelid, 'USAGE'),"
    " (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid"
    " AND attnum = adnum WHERE adrelid = 'headrace_outbox'::regclass AND attname = 'id')"
    " FROM pg_sequence WHERE seqrelid = 'headrace_outbox_id_seq'::regclass"
)


def fault(connection: Connection) -> str | None:
    replica, cache, readable, default = connection.execute(_STATE).one()
    if replica:
        return "This server is a replica, where transactions end at other moments: use the primary."
    if cache != 1:
        return (
            f"Sessions draw {cache} ids of headrace_outbox_id_seq at once, so rows would be "
            "skipped: ALTER SEQUENCE headrace_outbox_id_seq CACHE 1, and end those sessions."
        )
    if not readable:
        return (
            "This user may not read the sequence: GRANT SELECT ON SEQUENCE headrace_outbox_id_seq."
        )
    words = str(default)
    if not 0 <= words.find("pg_current_xact_id") < words.find("nextval"):
        return (
            "The column id of headrace_outbox has another default than `headrace outbox init` "
            "gives it, so rows would be skipped: `headrace outbox init --print` shows it."
        )
    return None


def make_horizon() -> Horizon:
    return _Horizon()


class _Horizon:
    def __init__(self) -> None:
        self._ids = StableIds()

    def advance(self, connection: Connection) -> int:
        ids = self._ids
        row = connection.execute(_POLL, {"seen": ids.last_seen}).one()
        ids.saw(last_id=row[0], xid=row[1], oldest_open=row[2])
        if ids.waits:
            ids.release(xid for xid, _ in connection.execute(_HOLDERS))
        return ids.up_to

    def held_up_by(self, connection: Connection) -> str | None:
        pids = [pid for _, pid in connection.execute(_HOLDERS)]
        if not pids:
            return None
        if None in pids:
            return "a prepared transaction, see pg_prepared_xacts"
        oldest = connection.execute(_OLDEST, {"pids": pids}).one_or_none()
        if oldest is None:
            return None
        pid, age_s, state = oldest
        if age_s is None:
            return (
                f"process {pid} of PostgreSQL, in a transaction (to see for how long: GRANT "
                "pg_read_all_stats)"
            )
        return f"process {pid} of PostgreSQL, in a transaction for {age_s} s ({state})"


def fetch(connection: Connection, select: TextClause, values: Mapping[str, int]) -> list[Any]:
    """Fetches in PostgreSQL's binary form, if the driver has it: as text a payload is twice as
    long."""
    driver: Any = connection.connection.driver_connection
    if not type(driver).__module__.startswith("psycopg."):
        return fetched(connection, select, values)
    with driver.cursor(binary=True) as cursor:
        cursor.execute(_for_psycopg(select), values)
        return list(cursor.fetchall())


@cache
def _for_psycopg(select: TextClause) -> bytes:
    return re.sub(r":(\w+)", r"%(\1)s", select.text).encode()


def wait_for_rows(connection: Connection, timeout_s: float, idle_s: float) -> None:
    """Waits by LISTEN, if the driver can wait for notifications; otherwise polls soon again."""
    driver: Any = connection.connection.driver_connection
    if "headrace_listens" not in connection.info:
        wakes = hasattr(driver, "notifies") and connection.execute(_WAKES).first() is not None
        connection.info["headrace_listens"] = wakes
        if wakes:
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            return  # what was committed before is looked for first
    if not connection.info["headrace_listens"]:
        time.sleep(min(timeout_s, poll_pause_s(POLL_S, idle_s)))
        return
    for _ in driver.notifies(timeout=timeout_s, stop_after=1):
        pass
