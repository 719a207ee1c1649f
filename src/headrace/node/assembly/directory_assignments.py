"""A broker reports to the controller in which data folder each of its replicas is (KIP-858).

The metadata name a folder for each replica, and a replica in a folder that its broker does not have
is not elected. A broker with several folders chooses one for each new replica, and after the loss
of a disk its replicas are in a new folder: only the broker knows which. If a folder fails before
its replicas were reported, they are reported with the failed folder. A report is repeated after a
pause until the metadata have it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from headrace.environment import Now
from headrace.node.broker.folders.data_folders import DataFolders
from headrace.node.metadata.image import MetadataImage, TopicImage
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

log = logging.getLogger(__name__)

Answered = Callable[[AssignReplicasToDirsResponse | None], None]
Ask = Callable[[AssignReplicasToDirsRequest, Answered], None]

REST_MS = 1_000
TIMEOUT_MS = 5_000
MOST_AT_ONCE = 2_000  # replicas of one request, as in Apache's


class DirectoryAssignments:
    __slots__ = ("_ask", "_now", "_node_id", "_folders", "_known", "_moves", "_wrong", "_next_ms")

    def __init__(self, ask: Ask, now: Now, node_id: int, folders: DataFolders) -> None:
        self._ask = ask
        self._now = now
        self._node_id = node_id
        self._folders = folders
        self._known: MetadataImage | None = None  # which was looked through
        self._moves = 0  # of replicas between folders, when they were looked through
        # Replicas whose folder is another by the metadata, by topic id: index and directory.
        self._wrong: dict[bytes, list[tuple[int, bytes]]] = {}
        self._next_ms = 0

    def look(self, image: MetadataImage, broker_epoch: int) -> None:
        """`image` has the registration of this start, with this epoch, and has been applied, so
        that every replica has its folder."""
        if self._moves != self._folders.moves:
            self._known, self._moves = None, self._folders.moves
        if self._known is None or self._known.topics is not image.topics:
            self._find_wrong(image)
            self._known = image
        if self._wrong and self._now.monotonic_ms >= self._next_ms:
            self._next_ms = self._now.monotonic_ms + TIMEOUT_MS + REST_MS
            self._ask(self._request(broker_epoch), self._answered)

    def _find_wrong(self, image: MetadataImage) -> None:
        before = {} if self._known is None else self._known.topics_by_id
        for topic_id in before.keys() - image.topics_by_id.keys():
            self._wrong.pop(topic_id, None)
        for topic_id, topic in image.topics_by_id.items():
            if before.get(topic_id) is topic:
                continue
            wrong = list(self._wrong_of(topic))
            if wrong:
                self._wrong[topic_id] = wrong
            else:
                self._wrong.pop(topic_id, None)

    def _wrong_of(self, topic: TopicImage) -> Iterator[tuple[int, bytes]]:
        for index, partition in enumerate(topic.partitions):
            if self._node_id in partition.replicas:
                directory = self._folders.directory_of(topic.name, index)
                known = partition.directories[partition.replicas.index(self._node_id)]
                if directory is not None and directory != known:
                    yield index, directory

    def _request(self, broker_epoch: int) -> AssignReplicasToDirsRequest:
        directories: dict[bytes, RequestDirectoryData] = {}
        room = MOST_AT_ONCE
        for topic_id, wrong in self._wrong.items():
            topics: dict[bytes, RequestTopicData] = {}
            for index, directory in wrong[:room]:
                if directory not in topics:
                    topics[directory] = RequestTopicData(topic_id, [])
                    named = directories.setdefault(directory, RequestDirectoryData(directory, []))
                    named.topics.append(topics[directory])
                topics[directory].partitions.append(RequestPartitionData(index))
                room -= 1
            if not room:
                break
        log.info("%d replicas lie in another data folder than known", MOST_AT_ONCE - room)
        return AssignReplicasToDirsRequest(self._node_id, broker_epoch, [*directories.values()])

    def _answered(self, response: AssignReplicasToDirsResponse | None) -> None:
        """The metadata will show what became of it."""
        self._next_ms = self._now.monotonic_ms + REST_MS
