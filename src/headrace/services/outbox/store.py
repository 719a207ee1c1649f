"""The data of a relay in the database: leases, hints, parked rows; and the deletion of sent rows.

Every call is one short transaction. All times are the database's own, in milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, bindparam, text
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Row as SqlRow

from headrace.foreign_text import escaped
from headrace.services.outbox import databases, schema
from headrace.services.outbox.rows import Row
from headrace.services.outbox.shares import Lease

COLUMNS = "id, topic, message_key, payload, headers, message_id, created_at"
# Counts characters as given; escaped they are more.
LONGEST_REASON = 1_000
PARKED_COLUMNS = f"{COLUMNS}, shard, state, reason, parked_at"
# A relay that was not seen for so long is forgotten; its leases ended long before.
FORGET_RELAYS_MS = 3_600_000
IDS_AT_ONCE = 1000

POISON = "poison"  # it cannot be sent
WAITING = "waiting"  # an earlier row of its key is parked
RETRY = "retry"  # a user wants it sent again

# A waiting row may go when no earlier row of its key is poison any more. The first poison of each
# key is found once: asked for each row, 10,000 waiting rows took PostgreSQL 6 s.
_READY = (
    f"SELECT {', '.join('p.' + name for name in COLUMNS.split(', '))}"
    " FROM headrace_outbox_parked p LEFT JOIN (SELECT message_key, MIN(id) AS first_id FROM"
    " headrace_outbox_parked WHERE shard = :shard AND state = 'poison' GROUP BY message_key) e"
    " ON e.message_key = p.message_key WHERE p.shard = :shard AND (p.state = 'retry' OR"
    " (p.state = 'waiting' AND (e.first_id IS NULL OR e.first_id > p.id)))"
    " ORDER BY p.id LIMIT :most"
)


@dataclass(slots=True)
class ParkedRow:
    row: Row
    shard: int
    state: str
    reason: str
    parked_ms: int


@dataclass(slots=True)
class View:
    """The other relays, as a relay sees them."""

    now_ms: int
    leases: list[Lease]
    relays: dict[str, int]  # and until when each is there


class Store:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.database = databases.of(engine.dialect.name)
        self._now = self.database.NOW_MS

    def facts(self) -> schema.Facts:
        with self.engine.connect() as db:
            return schema.facts(db)

    def sound(self) -> schema.Facts:
        """Returns the facts; raises OutboxError also if a relay could not rely on these tables."""
        with self.engine.connect() as db:
            found = schema.facts(db)
            fault = self.database.fault(db)
        if fault is not None:
            raise schema.OutboxError(fault)
        return found

    # ---- leases

    def look(self, relay: str, lease_ms: int) -> View:
        """Notes that this relay is alive, and returns which others are."""
        insert = self.database.INSERT_ONCE.format(
            table="headrace_outbox_relays", columns="relay, seen_until", values=":relay, 0"
        )
        with self.engine.begin() as db:
            db.execute(text(insert), {"relay": relay})
            seen = f"UPDATE headrace_outbox_relays SET seen_until = {self._now} + :lease_ms"
            db.execute(text(f"{seen} WHERE relay = :relay"), {"relay": relay, "lease_ms": lease_ms})
            old = f"DELETE FROM headrace_outbox_relays WHERE seen_until < {self._now} - :age_ms"
            db.execute(text(old), {"age_ms": FORGET_RELAYS_MS})
        with self.engine.connect() as db:
            now_ms = int(db.execute(text(f"SELECT {self._now}")).scalar_one())
            shards = db.execute(
                text("SELECT shard, owner, lease_until FROM headrace_outbox_shards ORDER BY shard")
            )
            leases = [Lease(int(row[0]), row[1], int(row[2])) for row in shards]
            alive = (
                "SELECT relay, seen_until FROM headrace_outbox_relays WHERE seen_until > :now_ms"
            )
            found = db.execute(text(alive), {"now_ms": now_ms})
            relays = {str(row[0]): int(row[1]) for row in found}
        return View(now_ms, leases, relays)

    def take(self, shard: int, relay: str, lease_ms: int) -> bool:
        """Takes or keeps a lease; False if another relay has it."""
        taken = (
            f"UPDATE headrace_outbox_shards SET owner = :relay,"
            f" lease_until = {self._now} + :lease_ms WHERE shard = :shard AND"
            f" (owner IS NULL OR owner = :relay OR lease_until <= {self._now})"
        )
        values = {"relay": relay, "lease_ms": lease_ms, "shard": shard}
        return self._run(taken, values) > 0

    def release(self, shard: int, relay: str) -> None:
        self._run(
            "UPDATE headrace_outbox_shards SET owner = NULL, lease_until = 0"
            " WHERE shard = :shard AND owner = :relay",
            {"shard": shard, "relay": relay},
        )

    def bury(self, relay: str, seen_until: int) -> bool:
        """Frees the shards of a relay that is dead, unless it has written since."""
        gone = text(
            "DELETE FROM headrace_outbox_relays WHERE relay = :relay AND seen_until = :seen_until"
        )
        freed = text(
            "UPDATE headrace_outbox_shards SET owner = NULL, lease_until = 0 WHERE owner = :relay"
        )
        with self.engine.begin() as db:
            if db.execute(gone, {"relay": relay, "seen_until": seen_until}).rowcount == 0:
                return False
            db.execute(freed, {"relay": relay})
            return True

    def leave(self, relay: str) -> None:
        self._run("DELETE FROM headrace_outbox_relays WHERE relay = :relay", {"relay": relay})

    # ---- hints

    def hint(self, shard: int) -> int | None:
        with self.engine.connect() as db:
            found = db.execute(
                text("SELECT sent_id FROM headrace_outbox_shards WHERE shard = :shard"),
                {"shard": shard},
            ).scalar_one()
        return None if found is None else int(found)

    def save_hint(self, shard: int, sent_id: int) -> None:
        """How far the cluster has committed. It never goes back."""
        self._run(
            f"UPDATE headrace_outbox_shards SET sent_id = :sent_id, sent_at = {self._now}"
            " WHERE shard = :shard AND (sent_id IS NULL OR sent_id < :sent_id)",
            {"shard": shard, "sent_id": sent_id},
        )

    def force_hint(self, shard: int, sent_id: int) -> None:
        """Sets the hint, also backwards: an operator has decided where a shard continues."""
        self._run(
            "UPDATE headrace_outbox_shards SET sent_id = :sent_id, problem = NULL"
            " WHERE shard = :shard",
            {"shard": shard, "sent_id": sent_id},
        )

    def save_problem(self, shard: int, problem: str | None) -> None:
        self._run(
            "UPDATE headrace_outbox_shards SET problem = :problem WHERE shard = :shard",
            {"shard": shard, "problem": None if problem is None else _sentence(problem)},
        )

    def save_rate(self, shard: int, rows_per_s: float) -> None:
        self._run(
            "UPDATE headrace_outbox_shards SET rows_per_s = :rate WHERE shard = :shard",
            {"shard": shard, "rate": rows_per_s},
        )

    def row(self, shard: int, row_id: int) -> Row | None:
        with self.engine.connect() as db:
            found = db.execute(
                text(f"SELECT {COLUMNS} FROM headrace_outbox WHERE shard = :shard AND id = :id"),
                {"shard": shard, "id": row_id},
            ).one_or_none()
        return None if found is None else row_of(found)

    def rows(self, shard: int, after: int, up_to: int, parked: Sequence[int]) -> list[Row]:
        """Those between two positions, and these parked ones as far as they still are parked."""
        between = (
            f"SELECT {COLUMNS} FROM headrace_outbox WHERE shard = :shard AND id > :after"
            " AND id <= :up_to ORDER BY id"
        )
        some = text(f"SELECT {COLUMNS} FROM headrace_outbox_parked WHERE id IN :ids").bindparams(
            bindparam("ids", expanding=True)
        )
        with self.engine.connect() as db:
            values = {"shard": shard, "after": after, "up_to": up_to}
            found = list(db.execute(text(between), values))
            if parked:
                found += db.execute(some, {"ids": list(parked)})
        return [row_of(row) for row in found]

    # ---- parked rows

    def park(self, shard: int, rows: Sequence[tuple[Row, str, bool]]) -> None:
        """Parks each row once, even after a crash: a row that is there stays as it is."""
        insert = self.database.INSERT_ONCE.format(
            table="headrace_outbox_parked",
            columns=PARKED_COLUMNS,
            values=":id, :topic, :key, :payload, :headers, :message_id, :created, :shard, :state,"
            f" :reason, {self._now}",
        )
        values = [
            {
                "id": row.id,
                "topic": row.topic,
                "key": row.key,
                "payload": row.payload,
                "headers": row.headers,
                "message_id": row.message_id,
                "created": row.created_ms,
                "shard": shard,
                "state": WAITING if waits else POISON,
                "reason": _sentence(reason),
            }
            for row, reason, waits in rows
        ]
        not_sent = "DELETE FROM headrace_outbox_confirmations WHERE sent_as IN :ids"
        with self.engine.begin() as db:
            db.execute(text(insert), values)
            _run_for(db, not_sent, [row.id for row, _, _ in rows])

    def repark(self, row_id: int, reason: str) -> None:
        self._run(
            "UPDATE headrace_outbox_parked SET state = 'poison', reason = :reason WHERE id = :id",
            {"id": row_id, "reason": _sentence(reason)},
        )

    def forget(self, row_ids: Sequence[int]) -> int:
        with self.engine.begin() as db:
            return _run_for(db, "DELETE FROM headrace_outbox_parked WHERE id IN :ids", row_ids)

    def ready(self, shard: int, most: int) -> list[Row]:
        with self.engine.connect() as db:
            found = db.execute(text(_READY), {"shard": shard, "most": most})
            return [row_of(row) for row in found]

    def blocked(self, shard: int) -> dict[bytes, int]:
        """Keys with parked rows, and the first of them."""
        with self.engine.connect() as db:
            keys = db.execute(
                text(
                    "SELECT message_key, MIN(id) FROM headrace_outbox_parked"
                    " WHERE shard = :shard AND message_key IS NOT NULL GROUP BY message_key"
                ),
                {"shard": shard},
            )
            return {_bytes(row[0]) or b"": int(row[1]) for row in keys}

    def parked(self, row_id: int | None = None, most: int = 100) -> list[ParkedRow]:
        one = "" if row_id is None else " WHERE id = :id"
        found = f"SELECT {PARKED_COLUMNS} FROM headrace_outbox_parked{one} ORDER BY id LIMIT :most"
        values = {"most": most} | ({} if row_id is None else {"id": row_id})
        with self.engine.connect() as db:
            return [
                ParkedRow(row_of(row), int(row[7]), str(row[8]), str(row[9]), int(row[10]))
                for row in db.execute(text(found), values)
            ]

    def retry(self, row_ids: Sequence[int]) -> int:
        """Lets the shard's relay send them again. Returns how many of them are parked."""
        wanted = "UPDATE headrace_outbox_parked SET state = 'retry' WHERE id IN :ids"
        with self.engine.begin() as db:
            return _run_for(db, wanted, row_ids)

    def retry_all(self, topic: str | None = None) -> int:
        """All rows that cannot be sent, or those for a topic; how many they are."""
        one = "" if topic is None else " AND topic = :topic"
        wanted = (
            f"UPDATE headrace_outbox_parked SET state = '{RETRY}' WHERE state = '{POISON}'{one}"
        )
        return self._run(wanted, {} if topic is None else {"topic": topic})

    # ---- sent rows

    def clean(
        self, shard: int, *, after: int, before: int, keep_ms: int, most: int
    ) -> tuple[int, int] | None:
        """Delete some sent rows in a range of ids: the last of them and how many there were; None
        if there were none.

        The row `before` stays: it proves the position. `after` spares the database a walk over
        what was deleted before. Kept rows are not walked over either, or a turn would take longer
        than a lease: if the first one is too young, the others are.
        """
        range_ = "FROM headrace_outbox WHERE shard = :shard AND id > :after AND id < :before"
        aged = f"created_at < {self._now} - :keep_ms"
        values = {"shard": shard, "after": after, "before": before, "keep_ms": keep_ms}
        first = text(f"SELECT {aged} {range_} ORDER BY id LIMIT 1")
        some = f"SELECT id, created_at {range_} ORDER BY id LIMIT :most"
        last_of = f"SELECT max(id) FROM ({some}) AS first_rows"
        with self.engine.connect() as db:
            if keep_ms and not db.execute(first, values).scalar():
                return None
            old = text(f"{last_of} WHERE {aged}" if keep_ms else last_of)
            last = db.execute(old, values | {"most": most}).scalar()
        if last is None:
            return None
        deleted = self._run(
            "DELETE FROM headrace_outbox WHERE shard = :shard AND id > :after AND id <= :last",
            {"shard": shard, "after": after, "last": last},
        )
        return int(last), deleted

    def vacuum(self) -> None:
        """A relay without the right to gets a warning of the database, and autovacuum does it."""
        if self.database.VACUUM is not None:
            with connect(self.engine) as db:
                db.exec_driver_sql(self.database.VACUUM)

    def _run(self, statement: str, values: dict[str, Any]) -> int:
        with self.engine.begin() as db:
            return db.execute(text(statement), values).rowcount


def _run_for(db: Connection, statement: str, ids: Sequence[int]) -> int:
    """In pieces: a database takes no statement with more than some ten thousand values."""
    asked = text(statement).bindparams(bindparam("ids", expanding=True))
    pieces = (list(ids[at : at + IDS_AT_ONCE]) for at in range(0, len(ids), IDS_AT_ONCE))
    return sum(db.execute(asked, {"ids": some}).rowcount for some in pieces)


def _sentence(reason: str) -> str:
    """A reason as every database can keep it: parts of the row are in it, and PostgreSQL knows no
    NUL and no half of a surrogate pair."""
    said = escaped(reason[:LONGEST_REASON])
    return said if len(reason) <= LONGEST_REASON else f"{said} ..."


def rows_of(found: Iterable[Any]) -> list[Row]:
    """Returns the Row of each of many rows with exactly COLUMNS."""
    rows = [Row(*fields) for fields in found]
    for row in rows:
        if row.payload.__class__ is not bytes:
            row.payload = _bytes(row.payload)
        if row.key.__class__ is not bytes:
            row.key = _bytes(row.key)
        if row.topic.__class__ is not str or row.created_ms.__class__ is not int:
            row.topic, row.created_ms = _text(row.topic) or "", _number(row.created_ms)
        if row.headers is not None or row.message_id is not None:
            row.headers, row.message_id = _text(row.headers), _text(row.message_id)
    return rows


def row_of(found: SqlRow[Any]) -> Row:
    return rows_of([tuple(found)[:7]])[0]


def _bytes(value: Any) -> bytes | None:
    """SQLite keeps what it was given: a plain INSERT may have written text, or a number."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return str(value).encode()


def _text(value: Any) -> str | None:
    """Returns text, as `_bytes` returns bytes. What is not text then is not a record either, and is
    parked with its reason. Different bytes become different texts: a message id names one
    message."""
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else -1


def connect(engine: Engine) -> Connection:
    """A connection that a relay keeps: each statement is a transaction of its own."""
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    for statement in databases.of(engine.dialect.name).SESSION:
        connection.exec_driver_sql(statement)
    return connection
