"""After a data folder has failed, the broker drops its replicas there and reports it to the
controller.

The node checks once per turn, after its writes, so that answers which rest on lost batches have
been taken back. The controller elects other leaders for the partitions that were led from that
folder (KIP-858). When no folder is left the node ends, as it does when its only disk fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.node.broker.broker import Broker
from headrace.node.broker.replicas.lost_replicas import take_offline
from headrace.node.broker.replicas.partitions import Partitions
from headrace.wire.protocol.errors import KafkaError

log = logging.getLogger(__name__)


class FolderWatch:
    __slots__ = ("_partitions", "_broker", "_tell", "_nothing_left", "_untold")

    def __init__(
        self,
        partitions: Partitions,
        broker: Broker,
        *,
        tell: Callable[[bytes], None],
        nothing_left: Callable[[OSError], None],
    ) -> None:
        """`tell` reports a failed directory to the controller; it raises KafkaError if that is not
        possible now."""
        self._partitions = partitions
        self._broker = broker
        self._tell = tell
        self._nothing_left = nothing_left
        self._untold: list[bytes] = []

    def look(self) -> None:
        folders, failures = self._partitions.folders, self._partitions.failures
        for path in failures.take():
            problem = failures.known[path]
            if path not in folders.online:
                continue
            take_offline(self._broker, folders.fail(path, problem.strerror or str(problem)))
            self._untold.append(folders.failed_directories[path])
            if not folders.online:
                self._nothing_left(problem)
        self.tell()

    def tell(self) -> None:
        """The assignments that the controller does not know yet; sent again every second, for its
        disk may be full."""
        try:
            while self._untold:
                self._tell(self._untold[0])
                del self._untold[0]
        except KafkaError as refusal:
            log.warning(
                "a failed data folder could not be reported to the controller yet: %s", refusal
            )
