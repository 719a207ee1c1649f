"""The broker's state: what its handlers read and change.

Follows the committed metadata image: `image_changed` opens and deletes partitions. Handlers find
leaders in `topics`, wake waiting requests by `partition_changed`, and ask for flushes by
`flush_soon`. No I/O of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from headrace.broker.coordinators import Coordinator
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.groups import GROUP_KEY, GroupCoordinator
from headrace.broker.lost_acknowledgements import Lost
from headrace.broker.partitions import Partitions
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.topics import Topic, Topics
from headrace.broker.transactions import TRANSACTION_KEY, TransactionCoordinator
from headrace.environment import Now
from headrace.metadata import configs
from headrace.metadata.image import MetadataImage, TopicImage
from headrace.protocol.messages.metadata import MetadataResponseTopic
from headrace.replication.partition_leader import PartitionLeader
from headrace.serving.authorization import Authorizer
from headrace.serving.purgatory import Purgatory

log = logging.getLogger(__name__)

QUIET_ABOUT_THE_DISK_MS = 60_000
# For so long after a refusal each batch is written before it is answered (storage/unwritten.py).
CAREFUL_MS = 30_000


class Endpoint(NamedTuple):
    """Where clients of one listener find this broker."""

    host: str
    port: int


class ControllerPort(Protocol):
    """What a broker asks of the controller, wherever it is; answers come when it is committed."""

    def create_topics(self, names: list[str], answer: Callable[[], Any], now: Now) -> Any:
        """Make topics with the settings of the broker; those that cannot be made are left out."""
        ...

    def create_internal_topic(
        self,
        name: str,
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        answer: Callable[[], Any],
        now: Now,
    ) -> Any:
        """A coordinator's topic; one that is there already is left as it is."""
        ...

    def allocate_producer_ids(self, answer: Callable[[int, int], Any], now: Now) -> Any:
        """`answer(first, count)` with a block of ids that nobody else has."""
        ...


class Broker:
    __slots__ = (
        "node_id",
        "given",
        "values",
        "purgatory",
        "partitions",
        "topics",
        "fetch_sessions",
        "image",
        "controller",
        "endpoints",
        "controllers",
        "fetch_max_bytes",
        "durable",
        "flushes",
        "producer_ids",
        "served",
        "served_by_controllers",
        "described",
        "encoded_metadata",
        "bytes_out",
        "disk_refusals",
        "disk_refused_ms",
        "unopened",
        "_quiet_until_ms",
        "now",
        "groups",
        "transactions",
        "coordinators",
        "authorizer",
    )

    def __init__(
        self,
        node_id: int,
        given: Mapping[str, str],
        values: Mapping[str, Any],
        purgatory: Purgatory,
        partitions: Partitions,
        *,
        now: Now,
        new_session_id: Callable[[], int],
        new_member_id: Callable[[], str],
        endpoints: dict[str, Endpoint],
        image: MetadataImage,
        controller: ControllerPort,
        flushes: list[Any],
        authorizer: Authorizer | None = None,
        controllers: Mapping[str, Endpoint] | None = None,
    ) -> None:
        self.node_id = node_id
        self.given = given  # the settings this node was started with, as text
        self.values = values  # what holds now, by Kafka's names, typed
        self.purgatory = purgatory
        self.partitions = partitions
        self.endpoints = endpoints  # by listener name
        self.controllers = controllers or {}  # those of controllers
        self.image = image
        self.topics = Topics()
        self.fetch_sessions = FetchSessions(
            values["max.incremental.fetch.session.cache.slots"], new_session_id
        )
        self.fetch_max_bytes: int = values["fetch.max.bytes"]
        self.durable: bool = values["headrace.durability"] == "disk"
        self.controller = controller
        self.producer_ids = ProducerIds(controller)
        self.flushes = flushes  # what wants one; taken by the node at the end of a turn
        self.served: list[tuple[int, int, int]] = []  # API key, lowest and highest version
        self.served_by_controllers: list[tuple[int, int, int]] = []
        # Of this image, by name and operations, as asked for.
        self.described: dict[tuple[str, int], MetadataResponseTopic] = {}
        # Of this image, all topics, by version and listener.
        self.encoded_metadata: dict[tuple[int, str], bytes] = {}
        self.bytes_out = 0
        self.disk_refusals = 0
        self.disk_refused_ms = 0  # when it did so last
        self._quiet_until_ms = 0
        self.unopened: set[bytes] = set()  # ids of topics that had no room for all their folders
        self.authorizer = authorizer  # None: everybody may do everything
        self.now = now
        self.groups = GroupCoordinator(self, new_member_id)
        self.transactions = TransactionCoordinator(self)
        # by FindCoordinator's types
        self.coordinators: dict[int, Coordinator] = {
            GROUP_KEY: self.groups,
            TRANSACTION_KEY: self.transactions,
        }

    def partition_changed(self, leader: PartitionLeader) -> None:
        """Something a fetch or a produce may wait for has happened to this partition."""
        if leader.waiting:
            self.purgatory.wake(leader)
        for session, key in leader.sessions.items():
            entry = session.entries.get(key)
            if entry is not None:
                session.marked[key] = entry
                if session.waiting:
                    self.purgatory.wake(session)

    def disk_refused(self, sentence: str) -> None:
        """Worth a line, but not one for each client that tries again."""
        self.disk_refusals += 1
        self.disk_refused_ms = self.now.monotonic_ms
        if self.disk_refused_ms >= self._quiet_until_ms:
            self._quiet_until_ms = self.disk_refused_ms + QUIET_ABOUT_THE_DISK_MS
            log.error("the disk refuses what is to be kept: %s", sentence)

    def disk_is_quiet(self) -> bool:
        """Nothing was refused for some time: a write may be left for later again."""
        if self.now.monotonic_ms - self.disk_refused_ms < CAREFUL_MS:
            return False
        self._quiet_until_ms = 0
        log.warning("the disk has refused nothing for %d s", CAREFUL_MS // 1_000)
        return True

    def flush_soon(self, leader: PartitionLeader) -> None:
        """Readers and acks=all wait for the disk."""
        if not leader.flush_asked:
            leader.flush_asked = True
            self.flushes.append(leader)

    def coordinator_appended(self, leader: PartitionLeader) -> None:
        """A coordinator has written to its own partition."""
        if leader.waiting or leader.sessions:
            self.partition_changed(leader)
        if not leader.commits_at_once:
            self.flush_soon(leader)

    def logs_were_cut_back(self, logs: Sequence[Any], why: str) -> list[Lost]:
        """The disk has refused what was visible already where appends commit at once. All who wait
        for it are asked before anything else is appended to these logs."""
        lost = []
        cut = {id(log) for log in logs}
        for topic in self.topics.by_name.values():
            for leader in topic.leaders:
                if id(leader.log) in cut:
                    end_offset = leader.log.end_offset
                    leader.high_watermark = min(leader.high_watermark, end_offset)
                    for coordinator in self.coordinators.values():
                        coordinator.log_was_cut_back(leader)
                    self.partition_changed(leader)
                    lost.append(Lost(topic, leader.index, end_offset, why))
        self.purgatory.settle()
        for each in logs:
            each.loss_is_told()
        return lost

    def coordinators_tick(self) -> None:
        for coordinator in self.coordinators.values():
            coordinator.tick(self.now)

    def image_changed(self, image: MetadataImage) -> None:
        """The controller has committed changes."""
        before, self.image = self.image, image
        self.described.clear()
        self.encoded_metadata.clear()
        if self.authorizer is not None:
            self.authorizer.follow(image.acls)
        if before.topics is not image.topics:
            for topic_id in before.topics_by_id.keys() - image.topics_by_id.keys():
                self._remove(before.topics_by_id[topic_id])
            for topic_id, topic in image.topics_by_id.items():
                if before.topics_by_id.get(topic_id) is not topic:
                    self._take_over(topic)
        if before.configs is not image.configs:
            self.values = configs.broker_values(self.given, image.configs)
            for found in self.topics.by_name.values():
                self._configure(found)
        if before.topics is not image.topics:
            self._coordinators_follow(before, image)

    def _coordinators_follow(self, before: MetadataImage, image: MetadataImage) -> None:
        for coordinator in self.coordinators.values():
            coordinator.follow(self.topics.by_name.get(coordinator.topic), self.now)
        gone = {
            topic.name
            for topic_id, topic in before.topics_by_id.items()
            if topic_id not in image.topics_by_id
        }
        if gone:
            self.groups.forget_topics(frozenset(gone))

    def open_what_had_no_room(self) -> None:
        for topic_id in list(self.unopened):
            self._take_over(self.image.topics_by_id[topic_id])
        self._coordinators_follow(self.image, self.image)

    def _take_over(self, described: TopicImage) -> None:
        """New partitions are there when all of them have their folders: what belongs to which
        partition of a coordinator's topic is found by their number."""
        topic = self.topics.by_id.get(described.id) or Topic(described.name, described.id)
        missing = range(len(topic.leaders), len(described.partitions))
        try:
            topic.leaders += [self._lead(described, index) for index in missing]
            self.unopened.discard(described.id)
        except OSError as problem:
            self.unopened.add(described.id)
            self.disk_refused(f"{self.partitions.folder}/{described.name}: {problem.strerror}")
        if topic.leaders:
            self.topics.add(topic)
        for leader, partition in zip(topic.leaders, described.partitions, strict=False):
            leader.begin_epoch(partition.leader_epoch)
            leader.in_sync = len(partition.isr)
        self._configure(topic)

    def _lead(self, described: TopicImage, index: int) -> PartitionLeader:
        epoch = described.partitions[index].leader_epoch
        leader = PartitionLeader(
            described.name,
            described.id,
            index,
            self.partitions.open(described, index, self.image),
            epoch,
            commits_at_once=not self.durable,
            on_progress=self.partition_changed,
        )
        leader.begin_epoch(epoch)
        return leader

    def _configure(self, topic: Topic) -> None:
        settings, min_in_sync = self.partitions.settings_of(topic.name, self.image)
        for leader in topic.leaders:
            leader.log.settings = settings
            leader.min_in_sync = min_in_sync

    def _remove(self, described: TopicImage) -> None:
        self.unopened.discard(described.id)
        topic = self.topics.by_id.get(described.id)
        if topic is not None:
            self.topics.remove(topic)
            for leader in topic.leaders:
                self.partition_changed(leader)  # who waits here learns that the topic is gone
        for index in range(len(described.partitions)):
            self.partitions.delete(described.name, index)
