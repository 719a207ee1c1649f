"""A standby controller registers with the active one (KIP-919).

It registers once per start, so that tools find all controllers and the feature levels that each
supports. It repeats the request after a pause until the metadata has the registration: a request in
flight or a refused one does not count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.environment import Now
from headrace.node.broker.cluster.controller_channel import ControllerChannel
from headrace.node.controller.members.brokers import Membership
from headrace.node.metadata.features import SERVED_FEATURES
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import controller_registration
from headrace.wire.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

log = logging.getLogger(__name__)

REST_MS = 1_000
TIMEOUT_MS = 5_000
IN_PASSING = (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class StandbyRegistration:
    __slots__ = ("_channel", "_membership", "_now", "_image", "_next_ms", "_said")

    def __init__(
        self,
        channel: ControllerChannel,
        membership: Membership,
        now: Now,
        image: Callable[[], MetadataImage],
    ) -> None:
        """`image` is what this node knows to be committed."""
        self._channel = channel
        self._membership = membership
        self._now = now
        self._image = image
        self._next_ms = 0
        self._said: str | None = None

    def look(self) -> None:
        if self._now.monotonic_ms >= self._next_ms and not self._is_known():
            # No other one is sent before this one is over.
            self._next_ms = self._now.monotonic_ms + TIMEOUT_MS + REST_MS
            self._channel.ask_once(
                controller_registration, self._request(), self._answered, timeout_ms=TIMEOUT_MS
            )

    def _is_known(self) -> bool:
        known = self._image().controllers.get(self._membership.node_id)
        own = self._membership.controller_incarnation_id
        return known is not None and known.incarnation_id == own

    def _request(self) -> ControllerRegistrationRequest:
        membership = self._membership
        return ControllerRegistrationRequest(
            controller_id=membership.node_id,
            incarnation_id=membership.controller_incarnation_id,
            listeners=[
                Listener(point.name, point.host, point.port, point.security_protocol)
                for point in membership.controller_endpoints
            ],
            features=[Feature(name, *levels) for name, levels in SERVED_FEATURES.items()],
        )

    def _answered(self, response: ControllerRegistrationResponse | None) -> None:
        self._next_ms = self._now.monotonic_ms + REST_MS
        if response is None or response.error_code in IN_PASSING:
            return
        sentence = response.error_message or f"error {response.error_code}"
        if sentence != self._said:
            self._said = sentence
            log.warning("the active controller does not register this one: %s", sentence)
