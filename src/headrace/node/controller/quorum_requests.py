"""Requests about the quorum itself, which the quorum answers, now or later."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from headrace.node.controller.controller import Controller
from headrace.node.serving.api import Call, WaitingRequest
from headrace.wire.protocol.errors import ErrorCode, KafkaError

# The quorum answers each request itself, after a few seconds at most; this guards against a bug.
LONGEST_WAIT_MS = 60_000


class Asked:
    """One request that the quorum has taken; the client's WaitingRequest waits for it."""

    __slots__ = ("waiting", "answer")

    def __init__(self) -> None:
        self.waiting: dict[WaitingRequest, None] = {}
        self.answer: Any = None


def ask_quorum(controller: Controller, api: ModuleType, request: Any, call: Call) -> Any:
    """Returns the response, or WaitingRequest; raises KafkaError if the request is not for this
    quorum."""
    asked = Asked()

    def answered(response: Any) -> None:
        asked.answer = response
        controller.wake(asked)

    def attempt(expired: bool) -> Any | None:
        if asked.answer is None and expired:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return asked.answer

    controller.log.host.receive(api, request, answered)
    if asked.answer is not None:
        return asked.answer
    wait_ms = LONGEST_WAIT_MS + max(getattr(request, "max_wait_ms", 0), 0)
    return WaitingRequest(attempt, deadline_ms=call.now.monotonic_ms + wait_ms, hangs_on=[asked])
