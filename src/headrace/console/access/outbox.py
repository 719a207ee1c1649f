"""Questions to the databases of outboxes: what waits, which relay has it, what was parked.

The databases are those that the console was started with (`--outbox`); SQLAlchemy is loaded only
then. A password in an address never gets into an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.console.access.parts import Part
from headrace.operations import outboxes

if TYPE_CHECKING:
    from headrace.services.outbox.status import Status
    from headrace.services.outbox.store import ParkedRow

MOST_PARKED = 100


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
        return Outbox(shown(url), Part(_facts(url)))
    except ClientError as failure:
        return Outbox(shown(url), Part(None, str(failure)))


def retry(url: str, ids: list[int]) -> int:
    with outboxes.opened(url) as store:
        return outboxes.retry(store, ids)


def discard(url: str, ids: list[int]) -> int:
    with outboxes.opened(url) as store:
        return outboxes.discard(store, ids)


def _facts(url: str) -> OutboxFacts:
    with outboxes.opened(url) as store:
        from headrace.services.outbox.status import status_of

        return OutboxFacts(status_of(store), outboxes.set_aside(store, None, MOST_PARKED))


def shown(url: str) -> str:
    """Returns the URL without the part before the `@` of its host: a user and perhaps a
    password."""
    scheme, found, rest = url.partition("://")
    if not found:
        return scheme
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
