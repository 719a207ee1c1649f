"""The outbox of a database: rows that need a person's decision, and the decisions.

Two tables have such rows, parked ones and those that were never confirmed; here they are one list.
SQLAlchemy is loaded when a database is opened. No error shows the password in the address.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.installation import how_to_add

if TYPE_CHECKING:
    from headrace.services.outbox.confirmations import Confirmations
    from headrace.services.outbox.store import ParkedRow, Store

# The errors of SQLite, PostgreSQL and MariaDB for a missing table; other refusals name it too.
MISSING = ("no such table", "does not exist", "doesn't exist")


class OutboxFailed(ClientError):
    """A package is missing, or the database refuses."""


@contextmanager
def opened(url: str, *, makes_file: bool = False) -> Iterator[Store]:
    """The store of an outbox. `makes_file`: SQLite may create its file."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise OutboxFailed(how_to_add("The outbox needs", "SQLAlchemy", "sql"))
    from sqlalchemy.exc import SQLAlchemyError

    from headrace.services.outbox import schema
    from headrace.services.outbox.engines import engine_for, first_line, require_file
    from headrace.services.outbox.schema import OutboxError
    from headrace.services.outbox.store import Store

    try:
        engine = engine_for(url)
        if not makes_file:
            require_file(engine)
        try:
            yield Store(engine)
        finally:
            engine.dispose()
    except OutboxError as failure:
        raise OutboxFailed(str(failure)) from failure
    except SQLAlchemyError as failure:
        said = first_line(failure).rstrip(".")
        if "headrace_outbox" in said and any(each in said for each in MISSING):
            raise OutboxFailed(str(schema.missing())) from failure
        raise OutboxFailed(f"The database refuses: {said}.") from failure


def set_aside(store: Store, row_id: int | None, most: int) -> list[ParkedRow]:
    """The rows that need a person's decision, the oldest first; one id, or all."""
    store.facts()
    found = store.parked(row_id, most) + _confirmations(store).unconfirmed(row_id, most)
    return sorted(found, key=lambda each: each.row.id)[:most]


def retry(store: Store, ids: list[int]) -> int:
    """Let the relay send these rows again; returns how many."""
    return store.retry(ids) + _confirmations(store).retry(ids)


def retry_all(store: Store, topic: str | None) -> int:
    store.facts()
    return store.retry_all(topic) + _confirmations(store).retry_all(topic)


def discard(store: Store, ids: list[int]) -> int:
    """Delete these rows; returns how many."""
    return store.forget(ids) + _confirmations(store).forget(ids)


def _confirmations(store: Store) -> Confirmations:
    from headrace.services.outbox.confirmations import Confirmations

    return Confirmations(store)
