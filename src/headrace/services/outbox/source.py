"""The rows of the database as a relay reads them: up to which id they are stable, and then a few.

Two connections live and die together: one looks for the horizon, the other reads. The knowledge of
stable ids is invalid after a restart of the server, because ids that it had drawn and lost are
drawn again. A restart breaks both connections, so rows are only read over a connection that is
older than the answer it relies on; `incarnation` counts the pairs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from headrace.services.outbox import databases
from headrace.services.outbox.databases import Horizon
from headrace.services.outbox.rows import Row
from headrace.services.outbox.shard import Stable
from headrace.services.outbox.store import COLUMNS, connect, rows_of

# So many rows are read without asking for their sizes first: 16 MB, as a rule.
FEW_ROWS = 16
MOST_BYTES = 16 << 20


class Stale(Exception):
    """The connection is another one than the stable id was found with."""


class Source:
    """`poll` and `wait` belong to one thread, `read` to any."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._database = databases.of(engine.dialect.name)
        self._driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self.incarnation = 0
        self._looking: Connection | None = None
        self._reading: Connection | None = None
        self._horizon: Horizon | None = None
        self._lock = threading.Lock()  # guards _reading and incarnation
        self._sizes = text(
            "SELECT id, coalesce(length(payload), 0) FROM headrace_outbox WHERE shard = :shard"
            " AND id > :after AND id <= :up_to ORDER BY id LIMIT :most"
        )
        self._sum = text(
            "SELECT sum(size) FROM (SELECT length(payload) AS size FROM headrace_outbox WHERE"
            " shard = :shard AND id > :after AND id <= :up_to ORDER BY id LIMIT :most) AS found"
        )
        self._select = text(
            f"SELECT {COLUMNS} FROM headrace_outbox WHERE shard = :shard AND id > :after"
            f" AND id <= :up_to ORDER BY id LIMIT :most{self._database.LOCKED_READ}"
        )

    def poll(self) -> Stable:
        """Raises what SQLAlchemy raises; the next call connects again."""
        with self._closing_if_it_fails():
            looking = self._connected()
            assert self._horizon is not None
            return Stable(self._horizon.advance(looking), self.incarnation)

    def held_up_by(self) -> str | None:
        with self._closing_if_it_fails():
            looking = self._connected()
            assert self._horizon is not None
            return self._horizon.held_up_by(looking)

    def wait(self, timeout_s: float, idle_s: float = 0.0) -> None:
        """Waits until a row is committed, or until the timeout. `idle_s`: for so long none has
        come."""
        with self._closing_if_it_fails():
            self._database.wait_for_rows(self._connected(), timeout_s, idle_s)

    @contextmanager
    def _closing_if_it_fails(self) -> Iterator[None]:
        """Closes both connections on an error, also one of the driver itself: for notifications it
        is called without SQLAlchemy."""
        try:
            yield
        except (SQLAlchemyError, OSError):
            self.close()
            raise
        except self._driver_error as failure:
            self.close()
            raise OSError(str(failure)) from failure

    def read(
        self, shard: int, *, after: int, up_to: int, most: int, incarnation: int
    ) -> tuple[list[Row], int]:
        """Returns rows, and the id up to which these are all; at most `most`, and not too many
        bytes."""
        with self._lock:
            if self._reading is None or incarnation != self.incarnation:
                raise Stale
            values = {"shard": shard, "after": after, "up_to": up_to, "most": most}
            try:
                if min(up_to - after, most) > FEW_ROWS:
                    values["up_to"] = self._bounded(self._reading, values)
                rows = rows_of(self._database.fetch(self._reading, self._select, values))
                return rows, rows[-1].id if len(rows) == most else values["up_to"]
            except (SQLAlchemyError, OSError):
                self._drop_reading()
                raise
            except self._driver_error as failure:
                self._drop_reading()
                raise OSError(str(failure)) from failure

    def _bounded(self, reading: Connection, values: dict[str, int]) -> int:
        """The id up to which the rows together are not too large; one row always fits.

        Databases know the length of a value without reading it.
        """
        whole = reading.execute(self._sum, values).scalar()
        if whole is None or whole <= MOST_BYTES:
            return values["up_to"]
        total, before = 0, None
        for row_id, size in reading.execute(self._sizes, values):
            total += size
            if total > MOST_BYTES and before is not None:
                return before
            before = int(row_id)
        return values["up_to"]

    def close(self) -> None:
        with self._lock:
            self._drop_reading()
        looking, self._looking, self._horizon = self._looking, None, None
        _drop(looking)

    def _connected(self) -> Connection:
        """Opens the reading connection first: it must be older than any answer."""
        with self._lock:
            if self._reading is None and self._looking is not None:
                looking, self._looking, self._horizon = self._looking, None, None
                _drop(looking)
            if self._looking is None:
                self._drop_reading()
                self._reading = connect(self._engine)
                self.incarnation += 1
                self._horizon = self._database.make_horizon()
                self._looking = connect(self._engine)
            return self._looking

    def _drop_reading(self) -> None:
        reading, self._reading = self._reading, None
        _drop(reading)


def _drop(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(SQLAlchemyError, OSError):
            connection.invalidate()
            connection.close()
