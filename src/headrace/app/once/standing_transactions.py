"""Ends idle transactions of PostgreSQL where the server itself would wait for ever.

`idle_in_transaction_session_timeout` counts only between two exchanges. asyncpg prepares a
statement and executes it later without a Sync between the two; a worker that is halted just there
leaves its session `active`, waiting for the client, and its locks stay. A worker that has waited
for such a lock in vain ends those sessions, and logs it: only sessions that have written to the
table of `once=`, belong to the same database and role, and have got nothing from their client for
`longest_pause`. PostgreSQL lets a role end its own sessions, so no right is needed.
"""

from __future__ import annotations

import logging

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

log = logging.getLogger("headrace.app")

LOCK_NOT_AVAILABLE = "55P03"

END_STANDING = """
SELECT pg_terminate_backend(session.pid)
FROM pg_stat_activity AS session
JOIN pg_locks AS held ON held.pid = session.pid
WHERE held.relation = to_regclass(:table) AND held.mode = 'RowExclusiveLock' AND held.granted
  AND session.datname = current_database() AND session.usename = current_user
  AND session.state = 'active' AND session.wait_event = 'ClientRead'
  AND session.state_change < clock_timestamp() - make_interval(secs => :seconds)
"""


def sqlstate(failure: Exception) -> str:
    """The SQLSTATE of a refusal by the database; empty for any other failure."""
    if not isinstance(failure, DBAPIError):
        return ""
    found = getattr(failure.orig, "sqlstate", None) or getattr(failure.orig, "pgcode", None)
    return str(found or "")


def end_standing(connection: Connection, table: str, longest_pause_ms: int) -> None:
    about = {"table": f'"{table}"', "seconds": longest_pause_ms / 1000}
    if ended := len(connection.execute(text(END_STANDING), about).all()):
        log.warning(
            "ended %d transactions of once= that stood still inside a statement for %g s",
            ended,
            longest_pause_ms / 1000,
        )
