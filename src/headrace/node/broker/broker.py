"""The broker's state: its handlers read and change it.

Follows the committed metadata image: `image_changed` has partitions opened and deleted, in slices
(`changes`). Handlers find leaders in `topics`, wake waiting requests by `partition_changed`, and
ask for flushes by `flush_soon`. No I/O of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.environment import Now, Peers
from headrace.node.broker.cluster.controller_port import ControllerPort
from headrace.node.broker.cluster.endpoint import Endpoint
from headrace.node.broker.coordinators.confirmed_reads import ConfirmedReads
from headrace.node.broker.coordinators.coordinators import Coordinator
from headrace.node.broker.coordinators.groups import GROUP_KEY, GroupCoordinator
from headrace.node.broker.coordinators.producer_ids import ProducerIds
from headrace.node.broker.coordinators.share_state_access import ShareStateAccess
from headrace.node.broker.coordinators.share_states import SHARE_KEY
from headrace.node.broker.coordinators.transactions import TRANSACTION_KEY, TransactionCoordinator
from headrace.node.broker.records.fetch_sessions import FetchSessions
from headrace.node.broker.replicas.in_sync_upkeep import InSyncUpkeep
from headrace.node.broker.replicas.partitions import Partitions
from headrace.node.broker.replicas.replica_fetching import ReplicaFetching, inter_broker_listener
from headrace.node.broker.replicas.start_offsets import StartOffsets
from headrace.node.broker.replicas.topics import Topic, Topics
from headrace.node.broker.share.led_partitions import LedSharePartitions
from headrace.node.broker.share.letter_store import LetterStore
from headrace.node.metadata import configs
from headrace.node.metadata.config_definitions.cluster import RACK_AWARE
from headrace.node.metadata.image import (
    TOPIC_RESOURCE,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    tells_clients_the_same,
)
from headrace.node.replication.leadership_handover import decline, unfit_to_lead
from headrace.node.replication.replica import PartitionLeader, PartitionReplica
from headrace.node.replication.this_broker import ThisBroker, replication_settings
from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.authorization import Authorizer
from headrace.node.serving.purgatory import Purgatory
from headrace.node.serving.slices import FairLane, Lane
from headrace.wire.protocol.messages.metadata import MetadataResponseTopic

if TYPE_CHECKING:
    from headrace.node.broker.folders.folder_moves import FolderMoves
    from headrace.node.broker.folders.refusing_folders import RefusingFolders

log = logging.getLogger(__name__)

QUIET_ABOUT_THE_DISK_MS = 60_000
# For so long after a refusal each batch is written before it is answered
# (storage/durability/unwritten.py).
CAREFUL_MS = 30_000
# Partitions that get their roles in one step: 5 us each, 80 us for one that begins to lead.
FOLLOWED_AT_ONCE = 20


class Broker:
    __slots__ = (
        "node_id",
        "this",
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
        "active_controller_id",
        "fetch_max_bytes",
        "durable",
        "flushes",
        "start_offsets",
        "producer_ids",
        "served",
        "served_by_controllers",
        "at_hand",
        "described",
        "encoded_metadata",
        "bytes_out",
        "disk_refusals",
        "disk_refused_ms",
        "is_left_behind",
        "changes",
        "loads",
        "chores",
        "unopened",
        "_quiet_until_ms",
        "now",
        "groups",
        "transactions",
        "share_states",
        "coordinators",
        "authorizer",
        "in_sync_upkeep",
        "incarnation_id",
        "is_member",
        "inter_broker_listener",
        "replica_fetching",
        "selects_by_rack",
        "tells_followers_at_once",
        "folder_moves",
        "refusing_folders",
        "confirmed_reads",
        "shared",
        "letter_store",
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
        peers: Peers | None = None,
    ) -> None:
        """`peers` None: there are no other nodes."""
        self.node_id = node_id
        self.given = given  # the settings at the start, as text
        self.values = values  # the settings in effect, by Kafka's names, typed
        self.purgatory = purgatory
        self.partitions = partitions
        partitions.folders.cordon(values["cordoned.log.dirs"])
        self.endpoints = endpoints  # by listener name
        self.controllers = controllers or {}  # endpoints of controllers
        # The node that leads the metadata quorum; -1: not known.
        self.active_controller_id: Callable[[], int] = lambda: node_id
        self.image = image
        # This broker as its replicas see it.
        self.this = ThisBroker(node_id, settings=replication_settings(values))
        self.inter_broker_listener = inter_broker_listener(values)
        self.selects_by_rack = values["replica.selector.class"] == RACK_AWARE
        # Consumers read from followers too, and must not wait for the followers' next fetch.
        self.tells_followers_at_once = self.selects_by_rack
        self.topics = Topics()
        self.fetch_sessions = FetchSessions(
            values["max.incremental.fetch.session.cache.slots"], new_session_id
        )
        self.fetch_max_bytes: int = values["fetch.max.bytes"]
        self.durable: bool = values["headrace.durability"] == "disk"
        self.controller = controller
        self.producer_ids = ProducerIds(controller, purgatory)
        self.flushes = flushes  # logs that want a flush; taken by the node at the end of a turn
        self.start_offsets = StartOffsets(
            partitions.start_checkpoints, flushes, purgatory.wake, partitions.failures
        )
        self.served: list[tuple[int, int, int]] = []  # API key, lowest and highest version
        self.served_by_controllers: list[tuple[int, int, int]] = []
        # By name, operations and listener of a request: the description of this topic with these
        # brokers.
        self.described: dict[
            tuple[str, int, str, bool], tuple[TopicImage, MetadataResponseTopic]
        ] = {}
        self.at_hand: dict[str, Any] = {}  # for this image, by listener: see brokers_at_hand.py
        # Encoded answers with all topics of this image, by version and listener.
        self.encoded_metadata: dict[tuple[int, str], bytes] = {}
        self.bytes_out = 0
        self.disk_refusals = 0
        self.disk_refused_ms = 0  # time of the last refusal
        # Returns whether the disk refuses the cluster's metadata, so that the image is out of date.
        self.is_left_behind: Callable[[], bool] = lambda: False
        self._quiet_until_ms = 0
        self.changes = Lane()  # what the image changes in files, done in slices
        self.loads = Lane()  # loading of the coordinators' state
        self.chores = FairLane()  # work of the coordinators: markers, offsets of deleted topics
        self.unopened: set[bytes] = set()  # ids of topics whose files did not all fit on the disk
        self.authorizer = authorizer  # None: every client may do everything
        self.now = now
        self.incarnation_id: bytes | None = None  # of this start; None: it is not checked
        self.is_member = True  # whether the metadata has this start's registration
        self.in_sync_upkeep = InSyncUpkeep(self)
        self.replica_fetching = ReplicaFetching(self, peers)
        self.folder_moves: FolderMoves  # set by the node: they need flushes
        self.refusing_folders: RefusingFolders  # set by the node
        self.confirmed_reads = ConfirmedReads(purgatory)
        self.groups = GroupCoordinator(self, new_member_id)
        self.transactions = TransactionCoordinator(self)
        self.share_states = ShareStateAccess(self)
        settings_of = self.groups.share_settings
        self.letter_store = LetterStore(self)
        self.shared = LedSharePartitions(
            self.share_states, settings_of, purgatory, now, self.letter_store
        )
        # by FindCoordinator's key types
        self.coordinators: dict[int, Coordinator] = {
            GROUP_KEY: self.groups,
            TRANSACTION_KEY: self.transactions,
            SHARE_KEY: self.share_states.here,
        }

    @property
    def peers(self) -> Peers | None:
        """Returns the connections to other nodes; None: there are no other nodes."""
        return self.replica_fetching.peers

    @property
    def share_groups_served(self) -> bool:
        return self.image.serves_share_groups

    @property
    def streams_groups_served(self) -> bool:
        return self.image.serves_streams_groups and "streams" in self.groups.settings().protocols

    def partition_changed(self, leader: PartitionLeader) -> None:
        """Call after a change that a fetch or a produce may wait for."""
        if leader.waiting:
            self.purgatory.wake(leader)
        for session, key in leader.sessions.items():
            entry = session.entries.get(key)
            if entry is not None:
                session.marked[key] = entry
                if session.waiting:
                    self.purgatory.wake(session)

    def replica_progressed(self, replica: PartitionReplica) -> None:
        """Call when its high watermark has moved or its role has changed. Followers read to the end
        of the log, so the high watermark alone does not wake them: the next answer carries it."""
        if replica.leading is None or self.tells_followers_at_once:
            self.partition_changed(replica)
            return
        if replica.waiting:
            self.purgatory.wake(replica)
        for session, key in replica.sessions.items():
            entry = session.entries.get(key)
            if entry is not None:
                session.marked[key] = entry
                if session.waiting and not session.is_followers:
                    self.purgatory.wake(session)

    def disk_refused(self, sentence: str) -> None:
        """Log a refused write, at most once in QUIET_ABOUT_THE_DISK_MS."""
        self.disk_refusals += 1
        self.disk_refused_ms = self.now.monotonic_ms
        if self.disk_refused_ms >= self._quiet_until_ms:
            self._quiet_until_ms = self.disk_refused_ms + QUIET_ABOUT_THE_DISK_MS
            log.error("the disk refuses writes: %s", sentence)

    def append_refused(self, folder: str, problem: OSError) -> None:
        """The disk has refused a write to the log in `folder`."""
        self.disk_refused(f"{folder}: {problem.strerror or problem}")
        self.refusing_folders.refused(folder, problem)

    def require_current_image(self) -> None:
        """Send the client to another broker if this one does not learn of new leaders. A client
        that gets its answers here would ask for ever: some ask the broker that they have a
        connection to."""
        if self.is_left_behind():
            raise ClosesConnection(
                "a question about leaders: the disk refuses the cluster's metadata, so what this "
                "broker knows is out of date"
            )

    def disk_is_quiet(self) -> bool:
        """Returns whether nothing was refused for some time: writes may be deferred again."""
        if self.now.monotonic_ms - self.disk_refused_ms < CAREFUL_MS:
            return False
        self._quiet_until_ms = 0
        log.warning("the disk has refused nothing for %d s", CAREFUL_MS // 1_000)
        return True

    def commit_soon(self, leader: PartitionLeader) -> None:
        """Call after an append that is not committed yet: wakes followers, or schedules a flush."""
        for session, key in leader.sessions.items():
            if session.is_followers and (entry := session.entries.get(key)) is not None:
                session.marked[key] = entry
                if session.waiting:
                    self.purgatory.wake(session)
        if leader.leading is not None and leader.leading.waiting:
            self.purgatory.wake(leader.leading)
        if leader.is_durable:
            self.flush_soon(leader)
        else:
            leader.advance()

    def flush_soon(self, leader: PartitionLeader) -> None:
        """Schedule a flush, for which readers and acks=all wait."""
        if not leader.flush_asked:
            leader.flush_asked = True
            self.flushes.append(leader)

    def coordinator_appended(self, leader: PartitionLeader) -> None:
        """Call after a coordinator has written to its own partition."""
        if not leader.commits_at_once:
            self.commit_soon(leader)
        elif leader.waiting or leader.sessions:
            self.partition_changed(leader)

    def tick(self) -> None:
        """Periodic work of coordinators, in-sync replicas and followers."""
        self.coordinators_tick()
        self.in_sync_upkeep.tick(self.now)
        self.replica_fetching.go_on()

    def coordinators_tick(self) -> None:
        for coordinator in self.coordinators.values():
            coordinator.tick(self.now)
        self.share_states.tick(self.now)
        self.letter_store.tick()

    def image_changed(self, image: MetadataImage) -> None:
        """The controller has committed changes. Their effects on files are done in slices, in the
        order of the changes: a topic may be deleted and created again meanwhile."""
        before, self.image = self.image, image
        self.this.brokers = image.brokers
        me = self._own_registration(image)
        if me is not None:
            self.this.epoch = me.epoch  # a broker whose id another start has taken keeps its epoch
        if not tells_clients_the_same(before, image):
            # New objects: an answer in slices that began before this image continues with the old
            # ones.
            self.at_hand, self.encoded_metadata = {}, {}
        if before.brokers is not image.brokers:
            self.described.clear()
        if self.authorizer is not None:
            self.authorizer.follow(image.acls)
        if not self.is_member:
            self._delete_gone(before, image)
            if me is None:
                return
            self.is_member, before = True, MetadataImage(image.cluster_id)
        if before.brokers is not image.brokers:
            self.in_sync_upkeep.brokers_changed(before, image)
        if before.topics is not image.topics:
            self._follow_topics(before, image)
        if before.configs is not image.configs:
            self._follow_configs(before, image)

    def _own_registration(self, image: MetadataImage) -> BrokerImage | None:
        """Returns the registration of this start. An earlier one does not count: this start may
        have lost data that the roles of that one rely on, and the controller does not know it yet.
        """
        me = image.brokers.get(self.node_id)
        if me is None or self.incarnation_id not in (None, me.incarnation_id):
            return None
        return me

    def await_registration(self, incarnation_id: bytes) -> None:
        """Take no role before the metadata have the registration of this start."""
        self.incarnation_id = incarnation_id
        self.is_member = False

    @property
    def applied_offset(self) -> int:
        """Returns the offset up to which the metadata log's changes to partitions have been
        applied."""
        return self.changes.oldest_mark - 1 if self.changes else self.image.offset

    def _follow_topics(self, before: MetadataImage, image: MetadataImage) -> None:
        self._delete_gone(before, image)
        for topic_id, topic in image.topics_by_id.items():
            if before.topics_by_id.get(topic_id) is not topic:
                self.changes.add(self._take_over(topic_id), image.offset)
        # Last: a coordinator may have markers to write to the partitions of any other topic.
        self.changes.add(self._finish_change(), image.offset)

    def _delete_gone(self, before: MetadataImage, image: MetadataImage) -> None:
        gone = before.topics_by_id.keys() - image.topics_by_id.keys()
        for topic_id in gone:
            described = before.topics_by_id[topic_id]
            self._retire(described)
            self.changes.add(self._delete_files(described), image.offset)
        if gone:
            self.described.clear()
            self.coordinators_follow()
            names = frozenset(before.topics_by_id[topic_id].name for topic_id in gone)
            self.groups.forget_topics(names)
            self.share_states.forget_topics(frozenset(gone))

    def _follow_configs(self, before: MetadataImage, image: MetadataImage) -> None:
        """Apply new settings. Topics inherit from brokers: if only topics have changed, others are
        skipped."""
        cordoned = self.values["cordoned.log.dirs"]
        self.values = configs.broker_values(self.given, image.configs)
        if self.values["cordoned.log.dirs"] != cordoned:
            self.partitions.folders.cordon(self.values["cordoned.log.dirs"])
        self.replica_fetching.quotas.follow(image.configs)
        changed = {
            key
            for key in before.configs.keys() | image.configs.keys()
            if before.configs.get(key) is not image.configs.get(key)
        }
        if any(kind != TOPIC_RESOURCE for kind, _ in changed):
            affected = list(self.topics.by_name.values())
        else:
            names = (name for _, name in changed)
            affected = [self.topics.by_name[name] for name in names if name in self.topics.by_name]
        for topic in affected:
            self._configure(topic)

    def coordinators_follow(self) -> None:
        for coordinator in self.coordinators.values():
            coordinator.follow(self.topics.by_name.get(coordinator.topic), self.now)
        self.shared.follow(self.topics)

    def open_what_had_no_room(self) -> None:
        for topic_id in list(self.unopened):
            self.changes.add(self._take_over(topic_id), self.image.offset)
        self.changes.add(self._finish_change(), self.image.offset)

    def _finish_change(self) -> Iterator[None]:
        """Called when all replicas have the roles that the image gives them."""
        self.coordinators_follow()
        self.replica_fetching.go_on()
        yield

    def _take_over(self, topic_id: bytes) -> Iterator[None]:
        """Open the logs of a topic's new replicas here, one in each step. Clients see them when all
        have their folders, since the partition of a coordinator's topic is found by the number of
        partitions. A topic that is deleted meanwhile is left as it is: the deletion comes next. A
        node that is killed meanwhile does the same when it starts again."""
        described = self.image.topics_by_id.get(topic_id)
        if described is None:
            return
        topic = self.topics.by_id.get(topic_id) or Topic(described.name, topic_id)
        opened: dict[int, PartitionReplica] = {}
        try:
            for index, partition in enumerate(described.partitions):
                if self.node_id not in partition.replicas or topic.has(index):
                    continue
                if self.partitions.is_offline(described, index, self.image):
                    topic.offline |= {index}
                    continue
                opened[index] = self._open(described, index)
                if partition.leader == self.node_id:  # writes a file: here, one in each step
                    opened[index].begin_epoch(partition.leader_epoch)
                yield
                if topic_id not in self.image.topics_by_id:
                    return  # `_delete_files` comes next
            self.unopened.discard(topic_id)
        except OSError as problem:
            opened.clear()
            self.unopened.add(topic_id)
            self.partitions.failures.met(problem.filename, problem)
            self.disk_refused(f"{problem.filename or described.name}: {problem.strerror}")
        else:
            topic.replicas += [None] * (len(described.partitions) - len(topic.replicas))
        for index, replica in opened.items():
            if self.partitions.is_offline(described, index, self.image):  # since it was opened
                topic.offline |= {index}
            else:
                topic.replicas[index] = replica
        self._configure(topic)
        for index in opened:  # before anybody finds them: they lead until they are told otherwise
            self._follow_partition(topic, index, described.partitions[index])
        if topic.replicas:
            self.topics.add(topic)
        yield from self._follow_partitions(topic)

    def _follow_partitions(self, topic: Topic) -> Iterator[None]:
        """Give replicas the roles of the present image, which may change between two steps. A new
        leader writes a file, so each step takes few partitions."""
        for first in range(0, len(topic.replicas), FOLLOWED_AT_ONCE):
            described = self.image.topics_by_id.get(topic.id)
            if described is None:
                return  # `_delete_files` comes next
            last = min(first + FOLLOWED_AT_ONCE, len(topic.replicas), len(described.partitions))
            for index in range(first, last):
                self._follow_partition(topic, index, described.partitions[index])
            yield

    def _follow_partition(self, topic: Topic, index: int, partition: PartitionImage) -> None:
        replica = topic.replicas[index]
        if replica is None:
            if topic.offline and self.node_id not in partition.replicas:
                topic.offline -= {index}
            return
        before = replica.following
        try:
            replica.follow(partition, self.now.monotonic_ms)
        except OSError as problem:
            self.unopened.add(topic.id)
            self.partitions.failures.met(replica.log.folder, problem)
            self.append_refused(replica.log.folder, problem)
            decline(replica, partition)
            return
        if replica.following is not None or before is not None:
            self.replica_fetching.follow(replica)
        if replica.leading is not None and unfit_to_lead(replica):
            self.this.looks_soon = True
        if self.node_id not in partition.replicas:  # the partition has moved to other brokers
            self.replica_fetching.forget(replica)
            topic.replicas[index] = None
            self.partitions.delete(topic.name, index)

    def _open(self, described: TopicImage, index: int) -> PartitionReplica:
        partition = described.partitions[index]
        # Without other replicas all of the log is committed; else followers have to confirm it.
        shared = len(partition.replicas) > 1
        return PartitionReplica(
            described.name,
            described.id,
            index,
            self.partitions.open(described, index, self.image),
            partition.leader_epoch,
            commits_at_once=not self.durable,
            on_progress=self.replica_progressed,
            broker=self.this,
            high_watermark=self.partitions.high_watermark(described, index) if shared else None,
        )

    def _configure(self, topic: Topic) -> None:
        settings, min_in_sync = self.partitions.settings_of(topic.name, self.image)
        for replica in topic.here():
            replica.log.settings = settings
            replica.require_in_sync(min_in_sync)

    def _retire(self, described: TopicImage) -> None:
        """Remove the topic, so that requests do not find it any more."""
        self.unopened.discard(described.id)
        topic = self.topics.by_id.get(described.id)
        if topic is not None:
            self.topics.remove(topic)
            for replica in topic.here():
                self.replica_fetching.forget(replica)
                self.partition_changed(replica)  # waiting requests learn that the topic is deleted

    def _delete_files(self, described: TopicImage) -> Iterator[None]:
        """Delete the files in steps. After a kill, the next start finds the rest as strays."""
        for index in range(len(described.partitions)):
            self.partitions.delete(described.name, index)
            yield
