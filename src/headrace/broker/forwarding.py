"""Requests that only the active controller can answer, handed on to it by this broker.

The client waits on its connection as if it were answered here. While there is no controller, or
another one takes over, the request is sent again after a rest until its time is up: then the client
is told REQUEST_TIMED_OUT. So a request may be carried out and answered so, as with any answer that
is lost; CreateTopics sent once more by the client then says that the topic is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.environment import Address, Now, Peers
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.messages import envelope
from headrace.protocol.messages.envelope import EnvelopeResponse
from headrace.serving.api import Api, Call, Parked
from headrace.serving.envelopes import disclose, enclose
from headrace.serving.purgatory import Purgatory

LANE = "forwarding"
REST_MS = 100
# Of requests that name no time of their own; as Kafka's request.timeout.ms.
USUAL_TIMEOUT_MS = 30_000
LONGEST_TIMEOUT_MS = 600_000
# Answers that say: ask the controller that there is now.
ASK_AGAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class Forwarded:
    """One request on its way; its client's place in line hangs on it."""

    __slots__ = ("waiting", "answer")

    def __init__(self) -> None:
        self.waiting: dict[Parked, None] = {}
        self.answer: Any = None  # or a KafkaError


class Forwarding:
    def __init__(
        self,
        peers: Peers,
        controller: Callable[[], Address | None],
        purgatory: Purgatory,
        now: Now,
    ) -> None:
        """`controller` is where the active one listens, as far as this node knows."""
        self._peers = peers
        self._controller = controller
        self._purgatory = purgatory
        self._now = now

    def forward(self, api: Api, request: Any, call: Call) -> Parked:
        enclosed = enclose(api.messages, request, call)
        version, forwarded = call.version, Forwarded()
        deadline_ms = self._now.monotonic_ms + _timeout_ms(request)

        def send() -> None:
            left_ms = deadline_ms - self._now.monotonic_ms
            place = self._controller()
            if place is None:
                self._later(send, deadline_ms)
            elif left_ms > 0:
                self._peers.ask(place, LANE, envelope, enclosed, answered, timeout_ms=left_ms)

        def answered(answer: EnvelopeResponse | None) -> None:
            if answer is None or answer.error_code in ASK_AGAIN:
                self._later(send, deadline_ms)
                return
            try:
                forwarded.answer = disclose(api.messages, version, answer)
            except KafkaError as refusal:
                forwarded.answer = refusal
            self._purgatory.wake(forwarded)

        def attempt(expired: bool) -> Any | None:
            if forwarded.answer is None and expired:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "No controller has answered in time.")
            if isinstance(forwarded.answer, KafkaError):
                raise forwarded.answer
            return forwarded.answer

        send()
        return Parked(attempt, deadline_ms=deadline_ms, hangs_on=[forwarded])

    def _later(self, send: Callable[[], None], deadline_ms: int) -> None:
        at_ms = self._now.monotonic_ms + REST_MS
        if at_ms >= deadline_ms:
            return

        def rested(answer: Any) -> None:
            send()

        rest = Parked(lambda expired: expired or None, deadline_ms=at_ms, hangs_on=[])
        rest.complete = rested
        self._purgatory.park(rest)


def _timeout_ms(request: Any) -> int:
    wanted: int = getattr(request, "timeout_ms", USUAL_TIMEOUT_MS)
    return min(max(wanted, 1), LONGEST_TIMEOUT_MS)
