"""The events of an app for observers: metrics, traces, tests.

`Stats` counts in plain slots and costs next to nothing; exporters of metrics read them at each
scrape. An `Observer` is called for each attempt and each outcome; an app without observers builds
nothing for them. Observers must be quick and must not raise: their exceptions are logged and then
ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from headrace.app.message import Message
    from headrace.app.subscription import Subscription
    from headrace.client.records import HeaderList

log = logging.getLogger("headrace.app")

# handled: done. duplicate: `once=` has it already. retried: will be tried again. parked: in the
# dead letters. dropped: failed for good, and the subscription has no dead letters.
Outcome = Literal["handled", "duplicate", "retried", "parked", "dropped"]


@dataclass(slots=True)
class Stats:
    """The counters of one subscription since the app began."""

    received: int = 0  # read, also from the retry topic
    handled: int = 0
    failed: int = 0  # attempts that failed
    put_off: int = 0  # attempts delayed by TryLater, because something is away
    retried: int = 0
    parked: int = 0
    duplicates: int = 0
    published: int = 0
    in_flight: int = 0  # attempts under way
    busy_seconds: float = 0.0  # of all attempts together
    last_parked_at_ms: int = 0  # 0: never


class Observer:
    """Base class for observers of an app: inherit and override what you need."""

    def around(
        self, subscription: Subscription, message: Message
    ) -> AbstractContextManager[None] | None:
        """Entered before the handler and left after it, in its own context; None for no context."""
        return None

    def ended(
        self,
        subscription: Subscription,
        message: Message,
        outcome: Outcome,
        error: BaseException | None,
        seconds: float,
    ) -> None:
        """Called after an attempt, with its outcome."""

    def headers(self, subscription: Subscription, message: Message) -> HeaderList:
        """Headers to add to records that are written for a message: copies for retry, dead letters,
        published records. Called within `around`.
        """
        return []

    def sending(self) -> HeaderList:
        """Headers to add to records of `app.send`, called in the caller's context."""
        return []


@contextmanager
def forgiven(observer: Observer) -> Iterator[None]:
    """Ignore an observer's exceptions: observing must not change what happens."""
    try:
        yield
    except Exception:  # any exception of a user's observer
        log.exception("an observer failed: %s", type(observer).__name__)
