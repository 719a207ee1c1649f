"""The state of a cluster: its nodes, its quorum and the lag of each member, and problems.

Partitions are counted by what an operator acts on: without a leader (they cannot be read or
written), under min ISR (acks=all is refused), under-replicated (the next failure may hurt), with
one replica (a failure loses it), not led by the preferred leader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from headrace.client.admin.cluster import Cluster, LogFolder, Quorum, QuorumReplica, late_answer
from headrace.client.admin.placement.reassignments import Reassignments
from headrace.client.admin.placement.replicas import PartitionReplicas, Replicas
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, explain, kafka_error
from headrace.client.records import TopicPartition
from headrace.client.wire import require_no_error
from headrace.wire.protocol.messages import describe_cluster

CONFIGS_AT_ONCE = 500
# A controller fetches at least every half second; one that is not a broker is never fenced.
SILENT_AFTER_MS = 10_000


@dataclass(slots=True)
class NodeStatus:
    id: int
    address: str | None  # None: a controller that is not a broker
    rack: str | None
    roles: list[str]
    fenced: bool
    leads: int = 0
    replicas: int = 0
    metadata_lag: int | None = None  # records of the metadata log; None: unknown
    # The leader of the quorum does not hear it. Brokers that are registered are fenced instead.
    silent: bool = False
    # It gets no new partitions (KIP-1066): it is drained, or leaves.
    cordoned: bool = False


@dataclass(slots=True)
class ReplicaOutOfSync:
    """A replica that is not in the ISR, and the reason as far as the cluster reports it."""

    place: TopicPartition
    broker: int
    why: str


@dataclass(slots=True)
class ClusterStatus:
    id: str
    nodes: list[NodeStatus]
    leader: int | None  # of the quorum: the active controller
    leader_epoch: int | None
    high_watermark: int | None
    voters: list[int]
    observers: list[int]
    partitions: int = 0
    offline: list[TopicPartition] = field(default_factory=list)
    under_min_isr: list[TopicPartition] = field(default_factory=list)
    under_replicated: list[TopicPartition] = field(default_factory=list)
    single_replica: list[TopicPartition] = field(default_factory=list)
    not_preferred: list[TopicPartition] = field(default_factory=list)
    moving: list[TopicPartition] = field(default_factory=list)
    offline_folders: list[LogFolder] = field(default_factory=list)
    full_folders: list[LogFolder] = field(default_factory=list)
    out_of_sync: list[ReplicaOutOfSync] = field(default_factory=list)
    # Why no controller answers: then everything else is the brokers' last knowledge.
    no_controller: str | None = None

    @property
    def leader_skew_percent(self) -> int:
        """How much more the busiest broker leads than its share, in percent of the share."""
        leads = [node.leads for node in self.nodes if "broker" in node.roles and not node.fenced]
        if not leads or not sum(leads):
            return 0
        return round(100 * (max(leads) * len(leads) / sum(leads) - 1))

    @property
    def is_well(self) -> bool:
        troubles = self.offline, self.under_min_isr, self.under_replicated
        folders = self.offline_folders, self.full_folders
        is_led = self.no_controller is None
        # A silent observer is not missed: it has ended, and the quorum forgets it after 5 minutes.
        away = any(node.fenced or (node.silent and node.roles) for node in self.nodes)
        return is_led and not any(troubles) and not any(folders) and not away


def read_status(connection: ClientSettings) -> ClusterStatus:
    cluster = Cluster(connection)
    described = cluster.describe()
    brokers = _brokers(cluster)
    quorum, no_controller = _quorum(cluster)
    partitions = Replicas(connection).all()
    minimums = _minimums(connection, {each.place.topic for each in partitions})
    moving: list[TopicPartition] = []
    if no_controller is None:  # else it would be waited for again
        moving = [each.place for each in Reassignments(connection).all()]
    status = judge(described.id, brokers, quorum, partitions, minimums, moving)
    folders = cluster.folders_with(_missing_by_broker(partitions))
    for node in status.nodes:
        theirs = [folder for folder in folders if folder.broker == node.id]
        node.cordoned = bool(theirs) and all(folder.cordoned for folder in theirs)
    status.offline_folders = [folder for folder in folders if folder.failure is not None]
    status.full_folders = [folder for folder in folders if folder.is_full]
    status.out_of_sync = explain_missing(partitions, status.nodes, folders)
    status.no_controller = no_controller
    return status


def judge(
    cluster_id: str,
    brokers: Sequence[describe_cluster.DescribeClusterBroker],
    quorum: Quorum | None,
    partitions: Sequence[PartitionReplicas],
    minimums: Mapping[str, int],
    moving: Sequence[TopicPartition] = (),
) -> ClusterStatus:
    """Find the problems. Pure. `minimums` are the topics' min.insync.replicas."""
    status = ClusterStatus(
        cluster_id,
        _nodes(brokers, quorum, partitions),
        leader=None if quorum is None else quorum.leader,
        leader_epoch=None if quorum is None else quorum.leader_epoch,
        high_watermark=None if quorum is None else quorum.high_watermark,
        voters=[] if quorum is None else [voter.id for voter in quorum.voters],
        observers=[] if quorum is None else [each.id for each in quorum.observers],
        partitions=len(partitions),
        moving=list(moving),
    )
    for each in partitions:
        # A minimum above the number of replicas asks for all of them (KIP-966).
        minimum = min(minimums.get(each.place.topic, 1), len(each.replicas))
        if each.leader is None:
            status.offline.append(each.place)
        elif each.leader != each.replicas[0]:
            status.not_preferred.append(each.place)
        if len(each.isr) < minimum:
            status.under_min_isr.append(each.place)
        if each.missing:
            status.under_replicated.append(each.place)
        if len(each.replicas) == 1:
            status.single_replica.append(each.place)
    return status


def explain_missing(
    partitions: Iterable[PartitionReplicas],
    nodes: Iterable[NodeStatus],
    folders: Sequence[LogFolder],
) -> list[ReplicaOutOfSync]:
    """Why replicas are not in the ISR. Pure. `folders` has only brokers that answered."""
    alive = {node.id for node in nodes if "broker" in node.roles and not node.fenced}
    by_broker: dict[int, list[LogFolder]] = {}
    for folder in folders:
        by_broker.setdefault(folder.broker, []).append(folder)
    return [
        ReplicaOutOfSync(
            each.place, broker, _why_missing(each, broker, alive, by_broker.get(broker))
        )
        for each in partitions
        for broker in each.missing
    ]


def _why_missing(
    partition: PartitionReplicas, broker: int, alive: set[int], folders: list[LogFolder] | None
) -> str:
    if broker not in alive:
        return "the broker is down"
    if folders is None:
        return "the broker does not answer"
    holder = next((folder for folder in folders if partition.place in folder.lags), None)
    if broker in partition.offline:
        return "its data folder is offline"
    if any(folder.is_full for folder in (folders if holder is None else [holder])):
        return "its disk is full"
    if holder is None:
        return "it has no log there yet"
    if holder.lags[partition.place] > 0:
        return f"it is {holder.lags[partition.place]} records behind"
    return "it is catching up"


def _missing_by_broker(partitions: Iterable[PartitionReplicas]) -> dict[int, list[TopicPartition]]:
    found: dict[int, list[TopicPartition]] = {}
    for each in partitions:
        for broker in each.missing:
            asked = found.setdefault(broker, [])
            if len(asked) < CONFIGS_AT_ONCE:
                asked.append(each.place)
    return found


def _nodes(
    brokers: Sequence[describe_cluster.DescribeClusterBroker],
    quorum: Quorum | None,
    partitions: Iterable[PartitionReplicas],
) -> list[NodeStatus]:
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for each in partitions:
        replicas.update(each.replicas)
        if each.leader is not None:
            leads[each.leader] += 1
    nodes = {
        broker.broker_id: NodeStatus(
            broker.broker_id,
            f"{broker.host}:{broker.port}",
            broker.rack,
            ["broker"],
            broker.is_fenced,
            leads[broker.broker_id],
            replicas[broker.broker_id],
        )
        for broker in brokers
    }
    if quorum is not None:
        end = max((each.log_end_offset for each in quorum.voters), default=0)
        # Voters last: a folder that was lost may still be listed as an observer with their id.
        for member in (*quorum.observers, *quorum.voters):
            node = nodes.setdefault(member.id, NodeStatus(member.id, None, None, [], fenced=False))
            if member.log_end_offset >= 0:  # else the leader has heard nothing from it
                node.metadata_lag = max(0, end - member.log_end_offset)
        for voter in quorum.voters:
            nodes[voter.id].roles.append("controller")
        for member in (*quorum.observers, *quorum.voters):
            node = nodes[member.id]
            node.silent = node.address is None and is_silent(member, quorum)
    return [nodes[number] for number in sorted(nodes)]


def is_silent(member: QuorumReplica, quorum: Quorum) -> bool:
    """Whether a member is silent, by the leader's times, which include its own (Apache Kafka since
    3.3)."""
    now_ms = next((each.fetched_at_ms for each in quorum.voters if each.id == quorum.leader), None)
    if member.id == quorum.leader or now_ms is None:
        return False
    return member.fetched_at_ms is None or now_ms - member.fetched_at_ms > SILENT_AFTER_MS


def _brokers(cluster: Cluster) -> list[describe_cluster.DescribeClusterBroker]:
    """All brokers, with fenced ones if the cluster lists them (Apache Kafka since 4.0)."""
    request = describe_cluster.DescribeClusterRequest()
    with cluster.anybody() as wire:
        request.include_fenced_brokers = wire.version_of(describe_cluster) >= 2
        answer = wire.ask(describe_cluster, request)
    require_no_error(answer.error_code, answer.error_message)
    return sorted(answer.brokers, key=lambda broker: int(broker.broker_id))


def _quorum(cluster: Cluster) -> tuple[Quorum | None, str | None]:
    """The quorum, and why no controller answers. The quorum is None too if this user may not
    describe it or the cluster has none."""
    try:
        return cluster.quorum(), None
    except ClientError as refusal:
        is_silent = refusal.code is None and isinstance(refusal.__cause__, OSError)
        return None, str(refusal) if is_silent or refusal.retriable else None


def _minimums(connection: ClientSettings, topics: set[str]) -> dict[str, int]:
    admin = connection.admin()
    names = sorted(topics)
    found: dict[str, int] = {}
    for begin in range(0, len(names), CONFIGS_AT_ONCE):
        some = names[begin : begin + CONFIGS_AT_ONCE]
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in some]
        asked = admin.describe_configs(resources, request_timeout=connection.timeout_s)
        for resource, future in asked.items():
            try:
                entries = future.result(timeout=connection.timeout_s + 5)
            except KafkaException as failure:
                if kafka_error(failure).name() == "UNKNOWN_TOPIC_OR_PART":
                    continue  # deleted meanwhile
                raise explain(kafka_error(failure), connection.bootstrap) from failure
            except TimeoutError as late:
                raise late_answer(connection) from late
            found[resource.name] = int(entries["min.insync.replicas"].value or 1)
    return found
