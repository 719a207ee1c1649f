"""Requests of this broker to the active controller, whichever node that is at the moment.

A request is sent again after a rest while there is no controller, or the one that was asked is not
the active one any more, until its time is up. A node that stays silent is not waited for once
another one is the active controller (`moved`). So a request may be carried out twice, as with any
lost answer: the caller must be able to handle that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.environment import Address, Now, Peers
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.purgatory import Purgatory

REST_MS = 100


class Question:
    """One request under way; `address` is the controller that has it now, None between two
    attempts."""

    __slots__ = (
        "messages",
        "request",
        "answered",
        "is_answer",
        "deadline_ms",
        "patience_ms",
        "address",
        "attempt",
    )

    def __init__(
        self,
        messages: Any,
        request: Any,
        answered: Callable[[Any], None],
        is_answer: Callable[[Any], bool],
        deadline_ms: int,
        patience_ms: int,
    ) -> None:
        self.messages = messages
        self.request = request
        self.answered = answered
        self.is_answer = is_answer
        self.deadline_ms = deadline_ms  # it is not sent again after it
        self.patience_ms = patience_ms  # so long its connection stays, whatever its own time
        self.address: Address | None = None
        self.attempt = 0  # answers to an earlier attempt do not count


class ControllerChannel:
    """`lane` keeps its requests in order, and apart from those of other channels."""

    __slots__ = ("_peers", "_controller", "_purgatory", "_now", "_lane", "_open")

    def __init__(
        self,
        peers: Peers,
        controller: Callable[[], Address | None],
        purgatory: Purgatory,
        now: Now,
        lane: str,
    ) -> None:
        """`controller` returns the address of the active controller, as far as this node knows."""
        self._peers = peers
        self._controller = controller
        self._purgatory = purgatory
        self._now = now
        self._lane = lane
        self._open: dict[Question, None] = {}

    def ask(
        self,
        messages: Any,
        request: Any,
        answered: Callable[[Any], None],
        *,
        is_answer: Callable[[Any], bool],
        timeout_ms: int,
        patience_ms: int = 0,
    ) -> None:
        """`answered` is called once, in a later turn: with a response that satisfies `is_answer`,
        or with None when the time is up. An answer that cannot be read means that another node
        should be asked.

        An answer that does not come in time ends the connection, and so all other requests on it,
        which are then sent again. `patience_ms` is for requests that do not choose their own time:
        the connection is kept at least that long, and None may come as much later.
        """
        deadline_ms = self._now.monotonic_ms + timeout_ms
        question = Question(messages, request, answered, is_answer, deadline_ms, patience_ms)
        self._open[question] = None
        self._send(question)

    def ask_once(
        self, messages: Any, request: Any, answered: Callable[[Any], None], *, timeout_ms: int
    ) -> None:
        """For callers that retry by themselves: `answered` gets None also if no controller is
        known."""
        address = self._controller()
        if address is None:
            self._later(self._now.monotonic_ms, lambda: answered(None))
        else:
            self._peers.ask(address, self._lane, messages, request, answered, timeout_ms=timeout_ms)

    def moved(self) -> None:
        """Another node has become the active controller."""
        address = self._controller()
        for question in list(self._open):
            if address is not None and question.address not in (None, address):
                self._send(question)

    def _send(self, question: Question) -> None:
        left_ms = question.deadline_ms - self._now.monotonic_ms
        address = self._controller()
        if address is None or left_ms <= 0:
            self._send_later(question)
            return
        question.address = address
        question.attempt += 1
        attempt = question.attempt

        def answered(response: Any) -> None:
            if question.attempt == attempt and question in self._open:
                self._answered(question, response)

        self._peers.ask(
            address,
            self._lane,
            question.messages,
            question.request,
            answered,
            timeout_ms=max(left_ms, question.patience_ms),
        )

    def _answered(self, question: Question, response: Any) -> None:
        if response is None or not question.is_answer(response):
            self._send_later(question)
        else:
            del self._open[question]
            question.answered(response)

    def _send_later(self, question: Question) -> None:
        question.address = None
        now_ms = self._now.monotonic_ms
        if now_ms + REST_MS < question.deadline_ms:
            self._later(now_ms + REST_MS, lambda: self._send(question))
            return

        def give_up() -> None:
            if question in self._open:  # its answer may have come after all
                del self._open[question]
                question.answered(None)

        self._later(max(question.deadline_ms, now_ms), give_up)

    def _later(self, at_ms: int, do: Callable[[], None]) -> None:
        rest = WaitingRequest(lambda expired: expired or None, deadline_ms=at_ms, hangs_on=[])
        rest.complete = lambda _: do()
        self._purgatory.add(rest)
