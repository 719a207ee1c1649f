"""The messages that wait for a confirmation: a table in the outbox's own database.

A row that asks for a confirmation is kept here before it is sent. Its time begins when it has been
sent (`start_clocks`), and ends when it is confirmed. Unconfirmed by then it is sent again: one
transaction counts it here and writes a row with the same message id and the header
`headrace-confirm` to the outbox, which the relay sends as any other. After the last resend it stays
here as `unconfirmed`, for a person.

Every call is one short transaction. Time is an argument, in milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, text
from sqlalchemy.engine import Connection

from headrace.services.outbox.rows import Asked, Row, headers_to, record_of
from headrace.services.outbox.store import ParkedRow, Store, rows_of
from headrace.wire.contract import durations

WAITS = "open"  # for its confirmation
UNCONFIRMED = "unconfirmed"  # no confirmation came, and nothing more is done
MOST_AT_ONCE = 500

_INSERT_ROW = text(
    "INSERT INTO headrace_outbox (shard, topic, message_key, payload, headers, message_id)"
    " SELECT shard, topic, message_key, payload, headers, message_id"
    " FROM headrace_outbox_confirmations WHERE message_id = :message_id"
)


@dataclass(slots=True)
class Due:
    message_id: str
    id: int  # of the row that was sent first
    topic: str
    resends: int
    due_ms: int


class Confirmations:
    def __init__(self, store: Store) -> None:
        self._engine, self._database = store.engine, store.database

    # ---- what a relay does

    def track(self, outbox_id: str, shard: int, rows: Iterable[tuple[Row, Asked]]) -> None:
        """Keeps rows before they are sent. A resend is kept only if the first sending still is: one
        that was confirmed meanwhile is not waited for."""
        once = self._database.INSERT_ONCE.format(
            table="headrace_outbox_confirmations",
            columns="message_id, id, shard, topic, message_key, payload, headers, created_at,"
            " within_ms, state, sent_as",
            values=":message_id, :id, :shard, :topic, :key, :payload, :headers, :created,"
            f" :within_ms, '{WAITS}', :id",
        )
        given = list(rows)
        values = [
            {
                "message_id": asked.message_id,
                "id": row.id,
                "shard": shard,
                "topic": row.topic,
                "key": row.key,
                "payload": row.payload,
                "headers": headers_to(record_of(row, outbox_id).headers),
                "created": row.created_ms,
                "within_ms": asked.within_ms,
            }
            for row, asked in given
            if asked.within_ms is not None
        ]
        sent_later = text(
            "UPDATE headrace_outbox_confirmations SET sent_as = :id, due_at = NULL,"
            f" resends = CASE WHEN state = '{WAITS}' THEN resends ELSE 0 END, state = '{WAITS}'"
            " WHERE message_id = :message_id AND (sent_as IS NULL OR sent_as < :id)"
        )
        named = [{"id": row.id, "message_id": asked.message_id} for row, asked in given]
        with self._engine.begin() as db:
            if values:
                db.execute(text(once), values)
            db.execute(sent_later, named)

    def any_open(self) -> bool:
        found = f"SELECT 1 FROM headrace_outbox_confirmations WHERE state = '{WAITS}' LIMIT 1"
        with self._engine.connect() as db:
            return db.execute(text(found)).first() is not None

    def now_ms(self) -> int:
        with self._engine.connect() as db:
            return int(db.execute(text(f"SELECT {self._database.NOW_MS}")).scalar_one())

    def start_clocks(self, now_ms: int) -> None:
        """Starts the time limit of the rows sent by now, by the hint in the database."""
        self._run(
            "UPDATE headrace_outbox_confirmations SET due_at = :now_ms + within_ms"
            f" WHERE state = '{WAITS}' AND due_at IS NULL AND sent_as <= (SELECT s.sent_id FROM"
            " headrace_outbox_shards s WHERE s.shard = headrace_outbox_confirmations.shard)",
            now_ms=now_ms,
        )

    def confirmed(self, message_ids: Sequence[str]) -> int:
        """Notes that messages were confirmed. Returns how many of them were waited for. Works also
        after the last resend."""
        deleted = text("DELETE FROM headrace_outbox_confirmations WHERE message_id IN :ids")
        count = 0
        for begin in range(0, len(message_ids), MOST_AT_ONCE):
            some = list(message_ids[begin : begin + MOST_AT_ONCE])
            with self._engine.begin() as db:
                count += db.execute(
                    deleted.bindparams(bindparam("ids", expanding=True)), {"ids": some}
                ).rowcount
        return count

    def due(self, now_ms: int, most: int = MOST_AT_ONCE) -> list[Due]:
        found = text(
            "SELECT message_id, id, topic, resends, due_at FROM headrace_outbox_confirmations"
            f" WHERE state = '{WAITS}' AND due_at <= :now_ms ORDER BY due_at, id LIMIT :most"
        )
        with self._engine.connect() as db:
            rows = db.execute(found, {"now_ms": now_ms, "most": most})
            return [Due(str(r[0]), int(r[1]), str(r[2]), int(r[3]), int(r[4])) for r in rows]

    def resend(self, due: Due) -> bool:
        """Counts the resend and writes the message to the outbox again. False: it was confirmed or
        resent meanwhile."""
        with self._engine.begin() as db:
            if not self._claimed(db, due, "resends = resends + 1, due_at = NULL, sent_as = NULL"):
                return False
            self._write_again(db, due.message_id)
        return True

    def give_up(self, due: Due) -> bool:
        """Ends waiting: it was sent for the last time, and its time is over. False: it was
        confirmed meanwhile."""
        with self._engine.begin() as db:
            return self._claimed(db, due, f"state = '{UNCONFIRMED}'")

    def _claimed(self, db: Connection, due: Due, change: str) -> bool:
        """Changes a row that waits, and returns whether it did. If two relays want to, the second
        finds another `due_at`."""
        claim = text(
            f"UPDATE headrace_outbox_confirmations SET {change} WHERE message_id = :message_id"
            f" AND state = '{WAITS}' AND due_at = :due_ms"
        )
        values = {"message_id": due.message_id, "due_ms": due.due_ms}
        return db.execute(claim, values).rowcount == 1

    def _write_again(self, db: Connection, message_id: str) -> None:
        for gate in self._database.GATE:
            if db.execute(text(gate)).first() is not None:
                break
        db.execute(_INSERT_ROW, {"message_id": message_id})

    # ---- what people do

    def counts(self) -> tuple[int, int]:
        """Returns how many wait for their confirmation, and how many are given up as
        unconfirmed."""
        with self._engine.connect() as db:
            found = db.execute(
                text("SELECT state, count(*) FROM headrace_outbox_confirmations GROUP BY state")
            )
            states = {str(row[0]): int(row[1]) for row in found}
        return states.get(WAITS, 0), states.get(UNCONFIRMED, 0)

    def unconfirmed(
        self, row_id: int | None = None, most: int = 100, *, topic: str | None = None
    ) -> list[ParkedRow]:
        one = "" if row_id is None else " AND id = :id"
        one += "" if topic is None else " AND topic = :topic"
        found = text(
            "SELECT id, topic, message_key, payload, headers, message_id, created_at, shard,"
            " resends, within_ms, due_at FROM headrace_outbox_confirmations"
            f" WHERE state = '{UNCONFIRMED}'{one} ORDER BY id LIMIT :most"
        )
        values: dict[str, Any] = {"most": most} | ({} if row_id is None else {"id": row_id})
        if topic is not None:
            values["topic"] = topic
        with self._engine.connect() as db:
            return [_as_parked(tuple(row)) for row in db.execute(found, values)]

    def retry(self, row_ids: Sequence[int]) -> int:
        """Sends unconfirmed messages once more, with as many resends as a new one."""
        count = 0
        for row_id in row_ids:
            for each in self.unconfirmed(row_id):
                assert each.row.message_id is not None
                with self._engine.begin() as db:
                    opened = text(
                        f"UPDATE headrace_outbox_confirmations SET state = '{WAITS}', resends = 0,"
                        " due_at = NULL, sent_as = NULL WHERE message_id = :message_id"
                        f" AND state = '{UNCONFIRMED}'"
                    )
                    named = {"message_id": each.row.message_id}
                    if db.execute(opened, named).rowcount == 1:
                        self._write_again(db, each.row.message_id)
                        count += 1
        return count

    def retry_all(self, topic: str | None = None) -> int:
        count = 0
        while found := self.unconfirmed(most=MOST_AT_ONCE, topic=topic):
            count += self.retry([each.row.id for each in found])
        return count

    def forget(self, row_ids: Sequence[int]) -> int:
        """Deletes unconfirmed messages; nothing is kept of them."""
        return sum(
            self._run(
                "DELETE FROM headrace_outbox_confirmations WHERE id = :id"
                f" AND state = '{UNCONFIRMED}'",
                id=row_id,
            )
            for row_id in row_ids
        )

    def _run(self, statement: str, **values: Any) -> int:
        with self._engine.begin() as db:
            return db.execute(text(statement), values).rowcount


def _as_parked(found: tuple[Any, ...]) -> ParkedRow:
    """Returns the form that `headrace outbox list` shows, beside the rows that could not be
    sent."""
    [row] = rows_of([found[:7]])
    shard, resends, within_ms, due_ms = (int(each) for each in found[7:])
    times = "once" if resends == 0 else f"{resends + 1} times"
    reason = f"sent {times}, never confirmed within {durations.write(within_ms)}"
    return ParkedRow(row, shard, UNCONFIRMED, reason, due_ms)
