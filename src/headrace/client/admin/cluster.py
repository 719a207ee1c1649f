"""The cluster itself: its brokers, their settings and disks, and the KRaft quorum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import ClientError, explain, kafka_error
from headrace.client.records import TopicPartition
from headrace.client.wire import Wire, require_no_error, wire_if_it_answers, wire_to_any
from headrace.wire.protocol.messages import describe_log_dirs, describe_quorum
from headrace.wire.protocol.messages import incremental_alter_configs as alter
from headrace.wire.protocol.uuids import to_text

SET, DELETE = AlterConfigOpType.SET.value, AlterConfigOpType.DELETE.value
METADATA_TOPIC = "__cluster_metadata"
# With less a broker cannot open a segment with its indexes.
FULL_BELOW_BYTES = 1 << 20


@dataclass(slots=True)
class BrokerNode:
    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


@dataclass(slots=True)
class ClusterDescription:
    id: str
    controller: int | None
    brokers: list[BrokerNode]


@dataclass(slots=True)
class BrokerSetting:
    value: str | None  # None: secret, or not set
    source: str  # Kafka's word, such as DYNAMIC_BROKER_CONFIG
    read_only: bool
    secret: bool


@dataclass(slots=True)
class LogFolder:
    broker: int
    path: str
    total_bytes: int | None
    usable_bytes: int | None
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    failure: str | None = None  # why the broker cannot use it now
    # How many offsets each replica is behind the high watermark, as its broker knows.
    lags: dict[TopicPartition, int] = field(default_factory=dict)
    cordoned: bool = False  # it gets no new partitions (KIP-1066, Kafka 4.3)

    @property
    def is_full(self) -> bool:
        """Whether the disk has no room; a broker of Headrace reports that too if the disk refuses
        appends."""
        usable = self.usable_bytes
        return self.failure is None and usable is not None and usable < FULL_BELOW_BYTES


@dataclass(slots=True)
class QuorumReplica:
    id: int
    directory_id: str
    log_end_offset: int
    caught_up_at_ms: int | None
    fetched_at_ms: int | None = None  # when the leader last heard of it, by the leader's clock


@dataclass(slots=True)
class Quorum:
    leader: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


class Cluster:
    """Brokers, the metadata quorum and broker settings: `admin.cluster`."""

    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection
        self._admin = connection.admin()
        reach(self._admin, connection)

    def describe(self) -> ClusterDescription:
        found = self._answer(
            self._admin.describe_cluster(request_timeout=self.connection.timeout_s)
        )
        controller = found.controller
        return ClusterDescription(
            found.cluster_id,
            controller.id if controller is not None and controller.id >= 0 else None,
            [
                BrokerNode(node.id, node.host, node.port, node.rack)
                for node in sorted(found.nodes, key=lambda node: node.id)
            ],
        )

    def anybody(self) -> Wire:
        """A connection to any broker: it passes requests for the controller on."""
        return wire_to_any(self.connection, [broker.address for broker in self.describe().brokers])

    def rights(self) -> set[str]:
        """The operations that this client may do with the cluster itself, in Kafka's words in small
        letters; all of them without an authorizer."""
        found = self._answer(
            self._admin.describe_cluster(
                include_authorized_operations=True, request_timeout=self.connection.timeout_s
            )
        )
        return {str(each.name).lower() for each in found.authorized_operations or ()}

    # ---- settings of brokers

    def settings(self, broker: int) -> dict[str, BrokerSetting]:
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        asked = self._admin.describe_configs([resource], request_timeout=self.connection.timeout_s)
        entries: Mapping[str, ConfigEntry] = self._answer(asked[resource])
        return {
            name: BrokerSetting(
                entry.value,
                ConfigSource(entry.source).name,
                bool(entry.is_read_only),
                bool(entry.is_sensitive),
            )
            for name, entry in sorted(entries.items())
        }

    def change_settings(
        self, broker: int | None, *, to: Mapping[str, str], remove: Iterable[str] = ()
    ) -> None:
        """Change settings of one broker, or of all (None), while they run."""
        if broker is None:
            self._change_settings_of_all(to, remove)
            return
        changes = [_change(name, value, AlterConfigOpType.SET) for name, value in to.items()]
        changes += [_change(name, None, AlterConfigOpType.DELETE) for name in remove]
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=changes)
        asked = self._admin.incremental_alter_configs(
            [resource], request_timeout=self.connection.timeout_s
        )
        self._answer(asked[resource])

    # ---- what librdkafka lacks

    def _change_settings_of_all(self, to: Mapping[str, str], remove: Iterable[str]) -> None:
        """In the protocol an empty name means all brokers; librdkafka refuses it."""
        configs = [alter.AlterableConfig(name, SET, value) for name, value in to.items()]
        configs += [alter.AlterableConfig(name, DELETE, None) for name in remove]
        resource = alter.AlterConfigsResource(ResourceType.BROKER.value, "", configs)
        with self.anybody() as wire:
            answer = wire.ask(alter, alter.IncrementalAlterConfigsRequest([resource]))
        for response in answer.responses:
            require_no_error(response.error_code, response.error_message)

    def log_folders(self) -> list[LogFolder]:
        """Every data folder of every broker, with the bytes of each partition in it."""
        request = describe_log_dirs.DescribeLogDirsRequest(None)
        found = []
        for broker in self.describe().brokers:
            with Wire(self.connection, broker.address) as wire:
                answer = wire.ask(describe_log_dirs, request)
            require_no_error(answer.error_code)
            for folder in answer.results:
                found.append(_folder(broker.id, folder))
        return found

    def folders_with(self, asked: Mapping[int, Iterable[TopicPartition]]) -> list[LogFolder]:
        """All data folders, with sizes and lags of the replicas in `asked` (partitions by broker).
        A broker that does not answer is left out."""
        found = []
        for broker in self.describe().brokers:
            topics: dict[str, describe_log_dirs.DescribableLogDirTopic] = {}
            for place in asked.get(broker.id, ()):
                new = describe_log_dirs.DescribableLogDirTopic(place.topic)
                topics.setdefault(place.topic, new).partitions.append(place.partition)
            request = describe_log_dirs.DescribeLogDirsRequest(list(topics.values()))
            try:
                with wire_if_it_answers(self.connection, broker.address) as wire:
                    answer = wire.ask(describe_log_dirs, request)
                require_no_error(answer.error_code)
            except ClientError:
                continue
            found += [_folder(broker.id, folder) for folder in answer.results]
        return found

    def quorum(self) -> Quorum:
        """The leader of the metadata quorum, and the progress of the other members."""
        partition = describe_quorum.RequestPartitionData(0)
        request = describe_quorum.DescribeQuorumRequest(
            [describe_quorum.RequestTopicData(METADATA_TOPIC, [partition])]
        )
        with self.anybody() as wire:
            answer = wire.ask(describe_quorum, request)
        require_no_error(answer.error_code, answer.error_message)
        (topic,) = answer.topics
        (state,) = topic.partitions
        require_no_error(state.error_code, state.error_message)
        return Quorum(
            state.leader_id,
            state.leader_epoch,
            state.high_watermark,
            [_replica(voter) for voter in state.current_voters],
            [_replica(observer) for observer in state.observers],
        )

    def _answer(self, future: Future[Any]) -> Any:
        try:
            return future.result(timeout=self.connection.timeout_s + 5)
        except KafkaException as failure:
            raise explain(kafka_error(failure), self.connection.bootstrap) from failure
        except TimeoutError as late:
            raise late_answer(self.connection) from late


def late_answer(connection: ClientSettings) -> ClientError:
    return ClientError(f"The cluster did not answer within {connection.timeout_s:g} seconds.")


def _change(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(
        name, value, source=ConfigSource.UNKNOWN_CONFIG, incremental_operation=operation
    )


def _folder(broker: int, found: describe_log_dirs.DescribeLogDirsResult) -> LogFolder:
    return LogFolder(
        broker,
        found.log_dir,
        found.total_bytes if found.total_bytes >= 0 else None,
        found.usable_bytes if found.usable_bytes >= 0 else None,
        {
            TopicPartition(topic.name, partition.partition_index): partition.partition_size
            for topic in found.topics
            for partition in topic.partitions
            if not partition.is_future_key  # a copy on its way to another folder
        },
        _failure(found.error_code),
        {
            TopicPartition(topic.name, partition.partition_index): partition.offset_lag
            for topic in found.topics
            for partition in topic.partitions
            if not partition.is_future_key
        },
        bool(found.is_cordoned),
    )


def _failure(code: int) -> str | None:
    try:
        require_no_error(code)
    except ClientError as failure:
        return str(failure)
    return None


def _replica(found: describe_quorum.ReplicaState) -> QuorumReplica:
    caught_up, fetched = found.last_caught_up_timestamp, found.last_fetch_timestamp
    return QuorumReplica(
        found.replica_id,
        to_text(found.replica_directory_id),
        found.log_end_offset,
        caught_up if caught_up >= 0 else None,
        fetched if fetched >= 0 else None,
    )
