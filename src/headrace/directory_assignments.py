"""A broker tells the controller in which data folder its replicas lie (KIP-858).

The metadata name a folder for each replica, and a replica in a folder that its broker does not have
is not elected. After the loss of a disk the replicas lie in a new folder, which nobody but the
broker knows. Asked for again after a rest until the metadata have it. A broker has one folder.
"""

from __future__ import annotations

import logging

from headrace.broker.controller_channel import ControllerChannel
from headrace.environment import Now
from headrace.metadata.image import MetadataImage
from headrace.protocol.messages import assign_replicas_to_dirs
from headrace.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

log = logging.getLogger(__name__)

REST_MS = 1_000
TIMEOUT_MS = 5_000
MOST_AT_ONCE = 2_000  # replicas of one request, as in Apache's


class DirectoryAssignments:
    __slots__ = ("_channel", "_now", "_node_id", "_directory", "_known", "_wrong", "_next_ms")

    def __init__(
        self, channel: ControllerChannel, now: Now, node_id: int, directory: bytes
    ) -> None:
        self._channel = channel
        self._now = now
        self._node_id = node_id
        self._directory = directory
        self._known: MetadataImage | None = None  # which was looked through
        # Replicas whose folder is another by the metadata, by topic id.
        self._wrong: dict[bytes, list[int]] = {}
        self._next_ms = 0

    def look(self, image: MetadataImage, broker_epoch: int) -> None:
        """`image` has the registration of this start, with this epoch."""
        if self._known is None or self._known.topics is not image.topics:
            self._find_wrong(image)
            self._known = image
        if self._wrong and self._now.monotonic_ms >= self._next_ms:
            self._next_ms = self._now.monotonic_ms + TIMEOUT_MS + REST_MS
            self._channel.ask_once(
                assign_replicas_to_dirs,
                self._request(broker_epoch),
                self._answered,
                timeout_ms=TIMEOUT_MS,
            )

    def _find_wrong(self, image: MetadataImage) -> None:
        before = {} if self._known is None else self._known.topics_by_id
        for topic_id in before.keys() - image.topics_by_id.keys():
            self._wrong.pop(topic_id, None)
        for topic_id, topic in image.topics_by_id.items():
            if before.get(topic_id) is topic:
                continue
            wrong = [
                index
                for index, partition in enumerate(topic.partitions)
                if self._node_id in partition.replicas
                and partition.directories[partition.replicas.index(self._node_id)]
                != self._directory
            ]
            if wrong:
                self._wrong[topic_id] = wrong
            else:
                self._wrong.pop(topic_id, None)

    def _request(self, broker_epoch: int) -> AssignReplicasToDirsRequest:
        directory = RequestDirectoryData(id=self._directory)
        room = MOST_AT_ONCE
        for topic_id, indexes in self._wrong.items():
            named = [RequestPartitionData(index) for index in indexes[:room]]
            directory.topics.append(RequestTopicData(topic_id, named))
            room -= len(named)
            if not room:
                break
        log.info("%d replicas lie in another data folder than known", MOST_AT_ONCE - room)
        return AssignReplicasToDirsRequest(self._node_id, broker_epoch, [directory])

    def _answered(self, response: AssignReplicasToDirsResponse | None) -> None:
        """The metadata will show what became of it."""
        self._next_ms = self._now.monotonic_ms + REST_MS
