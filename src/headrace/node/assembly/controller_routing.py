"""How requests for the controller find the active one, in a cluster of several nodes.

A client may ask any broker: if the controller in this process is the active one, it answers;
otherwise the request is forwarded (`broker/cluster/forwarding.py`), also if the controller is
deposed while the request waits. A client of a controller's own listener is another node, and gets
NOT_CONTROLLER: it looks for the active one itself. A change that only the receiving broker can
judge (whether it could use its new settings) is refused there before it is forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from copy import copy
from dataclasses import dataclass, replace
from types import GeneratorType
from typing import Any

from headrace.node.broker.cluster.forwarding import Forwarding, timeout_of
from headrace.node.controller.handlers import alter_configs, incremental_alter_configs
from headrace.node.controller.refusals import REFUSALS
from headrace.node.serving.api import Api, Call, WaitingRequest
from headrace.node.serving.chain import chain
from headrace.node.serving.envelopes import enclose
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.errors import ErrorCode, KafkaError

REFUSED_AHEAD: dict[int, Callable[[Any, Any, Call], Any | None]] = {
    module.API.messages.API_KEY: module.refused_ahead
    for module in (alter_configs, incremental_alter_configs)
}
NOT_CONTROLLER = KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")

Handler = Callable[[Any, Any, Call], Any]


@dataclass(slots=True, frozen=True)
class ControllerRouting:
    listeners: frozenset[str]  # those of controllers
    is_active: Callable[[], bool]  # whether the controller in this process is the active one
    forwarding: Forwarding
    purgatory: Purgatory

    def routed(self, api: Api) -> Api:
        """Returns the API with a handler that lets the active controller answer, wherever it
        runs."""
        large = api.handle_large
        return replace(
            api,
            handle=self._routed(api, api.handle),
            handle_large=None if large is None else self._routed(api, large),
        )

    def _routed(self, api: Api, inner: Handler) -> Handler:
        def handle(owner: Any, request: Any, call: Call) -> Any:
            if call.session.listener in self.listeners:
                refuse = _refusal_of(api, request)
                if not self.is_active():
                    return refuse(NOT_CONTROLLER)
                return self._guarded(lambda: inner(owner, request, call), refuse)
            return self._for_client(api, inner, owner, request, call)

        return handle

    def _for_client(self, api: Api, inner: Handler, owner: Any, request: Any, call: Call) -> Any:
        refuse = _refusal_of(api, request)
        refused_ahead = REFUSED_AHEAD.get(api.messages.API_KEY)
        if refused_ahead is not None:
            refused = refused_ahead(owner, request, call)
            if refused is not None:
                return refused
        timeout_ms = timeout_of(request)
        # A request may have to be forwarded after it has waited here; its frame is no longer there
        # then.
        enclosed, version = enclose(call), call.version

        def hand_on(refusal: KafkaError) -> Any:
            if refusal.code != ErrorCode.NOT_CONTROLLER:
                return refuse(refusal)
            forwarded = self.forwarding.send(api, version, enclosed, timeout_ms)
            return self._guarded(lambda: forwarded, refuse)

        if not self.is_active():
            return hand_on(NOT_CONTROLLER)
        return self._guarded(lambda: inner(owner, request, call), hand_on)

    def _guarded(self, answering: Callable[[], Any], refused: Callable[[KafkaError], Any]) -> Any:
        """The answer, or what `refused` makes of a refusal, whenever it comes."""
        try:
            answer = answering()
        except KafkaError as refusal:
            return refused(refusal)
        if isinstance(answer, WaitingRequest):
            attempt = answer.attempt

            def attempt_it(expired: bool) -> Any | None:
                try:
                    return attempt(expired)
                except KafkaError as refusal:
                    return refusal

            answer.attempt = attempt_it
            return chain(
                self.purgatory,
                answer,
                lambda found: refused(found) if isinstance(found, KafkaError) else found,
            )
        if type(answer) is GeneratorType:
            return self._guarded_steps(answer, refused)
        return answer

    def _guarded_steps(
        self, steps: Generator[None, None, Any], refused: Callable[[KafkaError], Any]
    ) -> Generator[None, None, Any]:
        try:
            answer = yield from steps
        except KafkaError as refusal:
            return refused(refusal)
        return self._guarded(lambda: answer, refused)


def _refusal_of(api: Api, request: Any) -> Callable[[KafkaError], Any]:
    """Returns how this request is refused as a whole, even if its handler has changed the request
    by then."""
    refuse = REFUSALS.get(api.messages.API_KEY)
    asked = copy(request)

    def refused(refusal: KafkaError) -> Any:
        if refuse is None:
            raise refusal
        return refuse(asked, refusal)

    return refused
