"""Several requests to other brokers, which a client's request waits for together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from headrace.environment import Now
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import Purgatory
from headrace.node.serving.slices import FairLane
from headrace.wire.protocol.errors import KafkaError

Key = TypeVar("Key")
Reply = Callable[[Any], None]

ASKED_AT_ONCE = 100  # more are asked between other requests; one takes up to 0.1 ms


class WaitingBroker(Protocol):
    """The parts of a broker that a wait for several replies needs."""

    purgatory: Purgatory
    chores: FairLane
    now: Now
    values: Mapping[str, Any]


class Replies:
    __slots__ = ("found", "missing", "waiting", "_wake")

    def __init__(self, missing: int, wake: Callable[[Any], None]) -> None:
        self.found: dict[Any, Any] = {}
        self.missing = missing
        self.waiting: dict[WaitingRequest, None] = {}
        self._wake = wake

    def take(self, key: Any, answer: Any) -> None:
        self.found[key] = answer
        self.missing -= 1
        if not self.missing:
            self._wake(self)


def ask_each(
    broker: WaitingBroker, keys: Iterable[Key], ask: Callable[[Key, Reply], None]
) -> Any | WaitingRequest:
    """Returns the answers by key, now or later; answers that did not come in time are left out."""
    wanted = list(keys)
    replies = Replies(len(wanted), broker.purgatory.wake)

    def steps() -> Any:
        for key in wanted:
            ask(key, partial(replies.take, key))
            yield

    if len(wanted) <= ASKED_AT_ONCE:
        for _ in steps():
            pass
    else:
        broker.chores.add(steps())
    if not replies.missing:
        return replies.found

    def attempt(expired: bool) -> Any | None:
        return None if replies.missing and not expired else replies.found

    # Each answer comes within the time of a request, or a little later; see share_state_access.py.
    deadline_ms = broker.now.monotonic_ms + 2 * broker.values["request.timeout.ms"]
    return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[replies])


def answered_once(answer: Any | WaitingRequest) -> Any | WaitingRequest:
    """Returns an answer that is computed once: a wait that is tried again after its answer repeats
    that answer and does nothing."""
    if isinstance(answer, WaitingRequest):
        attempt, known = answer.attempt, list[Any]()

        def attempt_once(expired: bool) -> Any | None:
            if not known:
                try:
                    found = attempt(expired)
                except KafkaError as refusal:
                    found = refusal
                if found is None:
                    return None
                known.append(found)
            if isinstance(known[0], KafkaError):
                raise known[0]
            return known[0]

        answer.attempt = attempt_once
    return answer


def go_on_without_client(purgatory: Purgatory, answer: Any | WaitingRequest) -> None:
    """Wait for an answer that no connection asked for; refusals are ignored."""
    if isinstance(answer, WaitingRequest):
        answer.complete = _raise_bugs
        purgatory.add(answer)


def _raise_bugs(answer: Any) -> None:
    if isinstance(answer, Exception) and not isinstance(answer, KafkaError):
        raise answer
