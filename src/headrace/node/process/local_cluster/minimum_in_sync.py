"""The cluster-wide min.insync.replicas of a cluster that has grown, raised by its controller.

A cluster begins with the minimum of its first size, as a record that wins over the nodes' settings
(KIP-966). After it has grown, its controller sets the minimum of the nodes' settings, but only if
the record still has the value of the former size: an operator's own value stays. A topic with fewer
replicas than the minimum asks for all that it has, so topics of the former size stay writable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.node.controller.features import MIN_IN_SYNC_REPLICAS
from headrace.node.metadata.image import BROKER_RESOURCE
from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.messages.config_record import ConfigRecord

if TYPE_CHECKING:
    from headrace.node.process.server import Server

log = logging.getLogger(__name__)

LOOK_AGAIN_MS = 250


class MinimumInSync:
    def __init__(self, server: Server, former: int, done: Callable[[], None]) -> None:
        """`done` is called once, when the record does not have the former value any more."""
        self._server = server
        self._former = str(former)
        self._done = done

    def look(self) -> None:
        """Raise the minimum if this node is the active controller; every node tries, since any may
        be it."""
        server = self._server
        controller = server.node.controller
        wanted = str(server.settings.values[MIN_IN_SYNC_REPLICAS])
        set_now = controller.committed_image.config(BROKER_RESOURCE, "").get(MIN_IN_SYNC_REPLICAS)
        if set_now != self._former or wanted == self._former:
            self._done()
            return
        is_written = controller.image.config(BROKER_RESOURCE, "").get(MIN_IN_SYNC_REPLICAS)
        if controller.is_active and is_written == self._former:
            record = ConfigRecord(BROKER_RESOURCE, "", MIN_IN_SYNC_REPLICAS, wanted)
            try:
                controller.append([record], server.now)
                log.info("min.insync.replicas of the cluster is raised to %s", wanted)
            except KafkaError as refusal:  # a full disk: again
                log.warning("min.insync.replicas cannot be raised yet: %s", refusal)
        if not server.is_stopping:
            at_ms = server.now.monotonic_ms + LOOK_AGAIN_MS
            server.loop.timers.once(at_ms, self.look)
