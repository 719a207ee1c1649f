"""Forwards requests that only the active controller can answer.

The client's request waits as if it were answered here. While there is no controller, or another one
takes over, the request is sent again after a pause until its time is up: then the client gets
REQUEST_TIMED_OUT. So a request may be carried out and still be answered so, as with any lost
answer; a repeated CreateTopics of the client then gets TOPIC_ALREADY_EXISTS.
"""

from __future__ import annotations

from typing import Any

from headrace.environment import Now
from headrace.node.broker.cluster.controller_channel import ControllerChannel
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.envelopes import disclose, enclose
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import envelope
from headrace.wire.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

LANE = "forwarding"
# For requests without a timeout field; the default of Kafka's request.timeout.ms.
USUAL_TIMEOUT_MS = 30_000
LONGEST_TIMEOUT_MS = 600_000
# Errors that mean: ask the active controller.
ASK_AGAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class Forwarded:
    """A request that is forwarded; its client's WaitingRequest waits for it."""

    __slots__ = ("waiting", "answer")

    def __init__(self) -> None:
        self.waiting: dict[WaitingRequest, None] = {}
        self.answer: Any = None  # or a KafkaError


class Forwarding:
    def __init__(self, channel: ControllerChannel, purgatory: Purgatory, now: Now) -> None:
        self._channel = channel
        self._purgatory = purgatory
        self._now = now

    def forward(self, api: Api, request: Any, call: Call) -> WaitingRequest:
        return self.send(api, call.version, enclose(call), timeout_of(request))

    def send(
        self, api: Api, version: int, enclosed: EnvelopeRequest, timeout_ms: int
    ) -> WaitingRequest:
        forwarded = Forwarded()

        def answered(answer: EnvelopeResponse | None) -> None:
            if answer is None:
                return  # `attempt` expires by itself
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

        # Clients share the connection and are answered in order: one that has little time must not
        # end it, else the others' requests would be carried out a second time.
        self._channel.ask(
            envelope,
            enclosed,
            answered,
            is_answer=_is_final,
            timeout_ms=timeout_ms,
            patience_ms=USUAL_TIMEOUT_MS,
        )
        deadline_ms = self._now.monotonic_ms + timeout_ms
        return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[forwarded])


def _is_final(answer: EnvelopeResponse) -> bool:
    return answer.error_code not in ASK_AGAIN


def timeout_of(request: Any) -> int:
    """Returns the time that the client waits, within bounds, in milliseconds."""
    wanted: int = getattr(request, "timeout_ms", USUAL_TIMEOUT_MS)
    return min(max(wanted, 1), LONGEST_TIMEOUT_MS)
