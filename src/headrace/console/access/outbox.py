"""Questions to the databases of outboxes: what waits, which relay has it, what was parked.

The databases are those that the console was started with (`--outbox`); SQLAlchemy is loaded only
then. A password in an address never gets into an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.client.errors import ClientError
from headrace.console.access.parts import Part

if TYPE_CHECKING:
    from headrace.services.outbox.status import Status
    from headrace.services.outbox.store import ParkedRow, Store

Answer = TypeVar("Answer")

MOST_PARKED = 100
# How databases say that a table is missing.
MISSING = ("no such table", "does not exist", "doesn't exist")


class OutboxFailed(ClientError):
    """The error of a database, in one sentence."""


@dataclass(slots=True)
class OutboxFacts:
    status: Status
    parked: list[ParkedRow]  # that a person has to decide on, the oldest first


@dataclass(slots=True)
class Outbox:
    name: str  # its address without the password
    facts: Part[OutboxFacts]


def look_at(url: str) -> Outbox:
    try:
        return Outbox(shown(url), Part(_with(url, _facts)))
    except ClientError as failure:
        return Outbox(shown(url), Part(None, str(failure)))


def retry(url: str, ids: list[int]) -> int:
    def again(store: Store) -> int:
        from headrace.services.outbox.confirmations import Confirmations

        return store.retry(ids) + Confirmations(store).retry(ids)

    return _with(url, again)


def discard(url: str, ids: list[int]) -> int:
    def forget(store: Store) -> int:
        from headrace.services.outbox.confirmations import Confirmations

        return store.forget(ids) + Confirmations(store).forget(ids)

    return _with(url, forget)


def _facts(store: Store) -> OutboxFacts:
    from headrace.services.outbox.confirmations import Confirmations
    from headrace.services.outbox.status import status_of

    status = status_of(store)
    found = store.parked(None, MOST_PARKED) + Confirmations(store).unconfirmed(None, MOST_PARKED)
    return OutboxFacts(status, sorted(found, key=lambda each: each.row.id)[:MOST_PARKED])


def _with(url: str, question: Callable[[Store], Answer]) -> Answer:
    try:
        from sqlalchemy.exc import SQLAlchemyError

        from headrace.services.outbox.engines import engine_for
        from headrace.services.outbox.schema import OutboxError
        from headrace.services.outbox.store import Store
    except ModuleNotFoundError as missing:
        raise OutboxFailed(f"The outbox needs the package {missing.name}.") from None
    try:
        engine = engine_for(url)
        try:
            return question(Store(engine))
        finally:
            engine.dispose()
    except OutboxError as failure:
        raise OutboxFailed(str(failure)) from None
    except SQLAlchemyError as failure:
        said = str(failure).partition("\n")[0]
        if "headrace_outbox" in said and any(each in said for each in MISSING):
            said = "it has no outbox tables, make them with `headrace outbox init`"
        raise OutboxFailed(f"The database does not do that: {said}.") from None


def shown(url: str) -> str:
    """Without what stands before the `@` of its host: a user and perhaps a password."""
    scheme, found, rest = url.partition("://")
    if not found:
        return scheme
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
