"""Finds brokers whose process has ended, before their session times out.

A broker is suspected by the active controller when the connection of its heartbeats has ended, when
its heartbeats are overdue, or when this controller has just become the active one and has not heard
of it yet. The controller sends a suspect an ApiVersions request. If its host refuses the
connection, no process listens at that address: the broker's process has ended, and the broker is
fenced at once. Silence proves nothing (a halted process, a cut cable), so then the session decides,
as in Apache Kafka. Fencing a broker that is alive after all costs a change of leaders and no
record: its next heartbeat unfences it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.environment import Address, Now, Peers
from headrace.node.controller.controller import Controller
from headrace.node.controller.handlers.broker_heartbeat import heartbeat
from headrace.node.metadata.image import BrokerImage
from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.messages import api_versions
from headrace.wire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

log = logging.getLogger(__name__)

LANE = "alive"
TIMEOUT_MS = 1_000
REST_MS = 200  # between two questions to the same suspect


class BrokerProbes:
    __slots__ = ("is_refused", "_peers", "_controller", "_listener", "_now", "_next_ms")

    def __init__(self, peers: Peers, controller: Controller, listener: str, now: Now) -> None:
        """`listener` is that of brokers for each other."""
        # Returns whether the host of an address has refused the last connection to it.
        self.is_refused: Callable[[Address], bool] = lambda address: False
        self._peers = peers
        self._controller = controller
        self._listener = listener
        self._now = now
        self._next_ms: dict[int, int] = {}  # when a suspect may be asked again

    def look(self) -> None:
        controller, now_ms = self._controller, self._now.monotonic_ms
        if not controller.is_active:
            return
        for broker in controller.sessions.suspects(controller.image, now_ms):
            address = self._address_of(broker)
            if (
                broker.id == controller.settings.node_id
                or address is None
                or now_ms < self._next_ms.get(broker.id, 0)
            ):
                continue
            # No other one is sent before this one is over.
            self._next_ms[broker.id] = now_ms + TIMEOUT_MS + REST_MS
            self._ask(broker, address)

    def _ask(self, broker: BrokerImage, address: Address) -> None:
        def answered(response: ApiVersionsResponse | None) -> None:
            self._next_ms[broker.id] = self._now.monotonic_ms + REST_MS
            if response is None and self.is_refused(address) and self._controller.is_active:
                self._fence(broker)

        self._peers.ask(
            address,
            LANE,
            api_versions,
            ApiVersionsRequest(),
            answered,
            timeout_ms=TIMEOUT_MS,
            newest=0,
        )

    def _fence(self, broker: BrokerImage) -> None:
        """Fence the broker with a heartbeat as the broker itself would send it; the epoch excludes
        a later start."""
        request = BrokerHeartbeatRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            current_metadata_offset=self._controller.image.offset,
            want_fence=True,
        )
        try:
            heartbeat(self._controller, request, self._now)
        except KafkaError:
            return  # another start of it is registered by now
        log.warning(
            "broker %d has ended: no process listens at its address; it is fenced", broker.id
        )

    def _address_of(self, broker: BrokerImage) -> Address | None:
        for endpoint in broker.endpoints:
            if endpoint.name == self._listener:
                return Address(endpoint.host, endpoint.port, endpoint.name)
        return None
