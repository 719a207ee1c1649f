"""The interface of `once=`: a memory of handled messages, so that none has its effect twice.

The worker opens an attempt for each message, around the handler. An implementation of `Once`
decides how strong the memory is: in the handler's own database transaction (`Sql`) or beside it
(`Redis`). When the store is away it raises `TryLater`: that does not count as a failure of the
message.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(slots=True)
class OnceAttempt:
    """The result for the worker when an attempt is opened."""

    duplicate: bool  # handled before: the handler is not called, the record is done
    db: Any = None  # the argument for a handler with a parameter `db`


@runtime_checkable
class Once(Protocol):
    """Remembers handled messages. Leaving the block of an attempt without an exception makes the
    effect, and the memory of it, permanent; leaving it with an exception undoes both. `attempt` is
    for plain functions, `attempt_async` for coroutines.
    """

    def refusal(self, *, asynchronous: bool) -> str | None:
        """Why it cannot serve handlers of this kind, as a sentence; None if it can."""
        ...

    def prepare(self, group: str) -> None:
        """Called once before the first message, on any thread: check or create what is needed."""
        ...

    def attempt(
        self, group: str, message_id: str, written_at_ms: int | None = None
    ) -> AbstractContextManager[OnceAttempt]:
        """One attempt of a plain function, on its thread. Entering and leaving may raise TryLater.

        `written_at_ms` is the record's own time: it decides whether an entry under an older form of
        the id (`message_ids.former_id`) can be this record.
        """
        ...

    def attempt_async(
        self, group: str, message_id: str, written_at_ms: int | None = None
    ) -> AbstractAsyncContextManager[OnceAttempt]:
        """The same for a coroutine, on its loop."""
        ...

    def close(self) -> None:
        """Called once after the last message."""
        ...
