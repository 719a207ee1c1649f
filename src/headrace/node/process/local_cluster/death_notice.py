"""Word of a broker's death, from its parent to the active controller: by a living node.

A heartbeat in the dead one's name that asks to be fenced, with the epoch that died (KIP-631): its
partitions get other leaders at once and not after `broker.session.timeout.ms`. A successor of the
dead node has another epoch, so a late notice affects no node. It is repeated while there is no
active controller, and not longer than a session lasts: then the controller notices by itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from headrace.node.process.server import Server

log = logging.getLogger(__name__)

AGAIN_MS = 100
# There is no active controller now, or it was not reached.
NOT_HEARD = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class DeathNotice:
    def __init__(self, server: Server, broker_id: int, broker_epoch: int) -> None:
        self._server = server
        session_ms = server.settings.values["broker.session.timeout.ms"]
        self._until_ms = server.now.monotonic_ms + session_ms
        self._request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=broker_epoch, want_fence=True
        )

    def send(self) -> None:
        links = self._server.node.links
        if links is not None and not self._server.is_stopping:
            links.port.heartbeat(self._request, self._answered, self._server.now)

    def _answered(self, response: Any) -> None:
        now_ms = self._server.now.monotonic_ms
        if response is not None and response.error_code not in NOT_HEARD:
            log.info("the controller knows that broker %d has died", self._request.broker_id)
        elif now_ms < self._until_ms:
            self._server.loop.timers.once(now_ms + AGAIN_MS, self.send)
