"""What each API needs: requests, and the access control entries without which they are refused.

One table for two tests: that nothing which is served can be had without rights, and that Apache
Kafka with its StandardAuthorizer answers alike. A case has the rights that are all needed; an API
that can be had in several ways has a case for each. What only shapes an answer says by `hidden`
whether the answer has less in it than it would have with the right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from headrace.wire.protocol import record_batch
from headrace.wire.protocol.acls import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
    update_features,
    write_share_group_state,
    write_txn_markers,
)
from headrace.wire.protocol.primitives import Message

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

Need = tuple[ResourceType, str, Operation]
NEW_TOPIC, GROUP, TRANSACTIONAL_ID = "not-there-yet", "readers", "payer"
SHARE_GROUP = "sharers"
STREAMS_GROUP, OTHER_STREAMS_GROUP = "application", "not-there"
TOPIC_TYPE, BROKER_TYPE, GROUP_TYPE = 2, 4, 32  # of what has settings


@dataclass(slots=True)
class Scene:
    """What an administrator has made before anybody is refused anything."""

    topic: str = "orders"
    topic_id: bytes = bytes(16)

    def batch(self, **options: Any) -> bytes:
        record = record_batch.Record(key=None, value=b"v", timestamp=1_700_000_000_000)
        return record_batch.build([record], base_offset=0, leader_epoch=-1, **options)


@dataclass(slots=True, frozen=True)
class Case:
    name: str
    api: ModuleType
    needs: tuple[Need, ...]
    request: Callable[[Scene, int], Message]
    versions: range | None = None  # None: all that are served
    hidden: Callable[[Any, Scene], bool] | None = None

    def refused(self, answer: Any, scene: Scene) -> bool:
        if self.hidden is not None:
            return self.hidden(answer, scene)
        return any(code in REFUSALS for code in codes_in(answer))


def codes_in(answer: Any) -> Iterator[int]:
    """Every error code of an answer, wherever it stands, in order."""
    if isinstance(answer, list):
        for each in answer:
            yield from codes_in(each)
    elif isinstance(answer, Message):
        for name in answer.__slots__:
            value = getattr(answer, name)
            if name.endswith("error_code"):
                yield value
            else:
                yield from codes_in(value)


def on_topic(operation: Operation, name: str = "orders") -> Need:
    return ResourceType.TOPIC, name, operation


def on_group(operation: Operation, name: str = GROUP) -> Need:
    return ResourceType.GROUP, name, operation


def on_cluster(operation: Operation) -> Need:
    return ResourceType.CLUSTER, CLUSTER_NAME, operation


def on_id(operation: Operation) -> Need:
    return ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID, operation


def creation(
    need: Need, principal: str, permission: Permission = Permission.ALLOW
) -> create_acls.AclCreation:
    kind, name, operation = need
    return create_acls.AclCreation(
        kind, name, PatternType.LITERAL, principal, "*", operation, permission
    )


# --- requests


def _produce(scene: Scene, version: int, **batch: Any) -> Message:
    by_id = version >= 13
    part = produce.PartitionProduceData(0, scene.batch(**batch))
    name, topic_id = ("", scene.topic_id) if by_id else (scene.topic, bytes(16))
    data = produce.TopicProduceData(name, topic_id, [part])
    transactional_id = TRANSACTIONAL_ID if batch else None
    return produce.ProduceRequest(transactional_id, -1, 1_000, [data])


def _produce_transactional(scene: Scene, version: int) -> Message:
    return _produce(
        scene, version, producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True
    )


def _fetch(scene: Scene, version: int, replica: int = -1) -> Message:
    part = fetch.FetchPartition(0)
    part.partition_max_bytes = 1_000
    by_id = version >= 13
    name, topic_id = ("", scene.topic_id) if by_id else (scene.topic, bytes(16))
    request = fetch.FetchRequest()
    request.max_wait_ms, request.min_bytes, request.max_bytes = 0, 0, 1_000
    request.session_epoch = -1
    request.topics = [fetch.FetchTopic(name, topic_id, [part])]
    if version >= 15:
        request.replica_state = fetch.ReplicaState(replica, -1)
    else:
        request.replica_id = replica
    return request


def _list_offsets(scene: Scene, version: int) -> Message:
    part = list_offsets.ListOffsetsPartition(0, -1, -1)
    return list_offsets.ListOffsetsRequest(
        -1, 0, [list_offsets.ListOffsetsTopic(scene.topic, [part])]
    )


def _metadata(name: str) -> Callable[[Scene, int], Message]:
    def request(scene: Scene, version: int) -> Message:
        creates = name == NEW_TOPIC
        return metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)], creates)

    return request


def _metadata_by_id(scene: Scene, version: int) -> Message:
    wanted = metadata.MetadataRequestTopic(topic_id=scene.topic_id, name=None)
    return metadata.MetadataRequest([wanted], False)


def _all_metadata(scene: Scene, version: int) -> Message:
    return metadata.MetadataRequest(None if version else [], False)


def _topic_is_missing(answer: Any, scene: Scene) -> bool:
    return scene.topic not in [topic.name for topic in answer.topics]


def _offset_commit(scene: Scene, version: int) -> Message:
    by_id = version >= 10
    name, topic_id = ("", scene.topic_id) if by_id else (scene.topic, bytes(16))
    part = offset_commit.OffsetCommitRequestPartition(0, 1, -1, "")
    topic = offset_commit.OffsetCommitRequestTopic(name, topic_id, [part])
    return offset_commit.OffsetCommitRequest(GROUP, -1, "", None, -1, [topic])


def _offset_fetch(scene: Scene, version: int) -> Message:
    if version < 8:
        topics = [offset_fetch.OffsetFetchRequestTopic(scene.topic, [0])]
        return offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=topics)
    by_id = version >= 10
    name, topic_id = ("", scene.topic_id) if by_id else (scene.topic, bytes(16))
    wanted = offset_fetch.OffsetFetchRequestTopics(name, topic_id, [0])
    group = offset_fetch.OffsetFetchRequestGroup(GROUP, None, -1, [wanted])
    return offset_fetch.OffsetFetchRequest(groups=[group])


def _all_offsets(scene: Scene, version: int) -> Message:
    group = offset_fetch.OffsetFetchRequestGroup(GROUP, None, -1, None)
    return offset_fetch.OffsetFetchRequest(groups=[group])


def _find(key: str, key_type: int) -> Callable[[Scene, int], Message]:
    return lambda scene, version: find_coordinator.FindCoordinatorRequest(key, key_type, [key])


def _join(scene: Scene, version: int) -> Message:
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    return join_group.JoinGroupRequest(GROUP, 10_000, 10_000, "m", None, "consumer", protocols)


def _sync(scene: Scene, version: int) -> Message:
    return sync_group.SyncGroupRequest(GROUP, 1, "m", None, "consumer", "range", [])


def _create_topics(scene: Scene, version: int) -> Message:
    topic = create_topics.CreatableTopic(NEW_TOPIC, 1, 1)
    return create_topics.CreateTopicsRequest([topic], 10_000, True)


def _delete_topics(scene: Scene, version: int) -> Message:
    if version < 6:
        return delete_topics.DeleteTopicsRequest([], [scene.topic], 10_000)
    states = [delete_topics.DeleteTopicState(scene.topic)]
    return delete_topics.DeleteTopicsRequest(states, [], 10_000)


def _delete_topics_by_id(scene: Scene, version: int) -> Message:
    states = [delete_topics.DeleteTopicState(None, scene.topic_id)]
    return delete_topics.DeleteTopicsRequest(states, [], 10_000)


def _delete_records(scene: Scene, version: int) -> Message:
    part = delete_records.DeleteRecordsPartition(0, 0)
    topic = delete_records.DeleteRecordsTopic(scene.topic, [part])
    return delete_records.DeleteRecordsRequest([topic], 10_000)


def _init_producer(transactional_id: str | None) -> Callable[[Scene, int], Message]:
    return lambda scene, version: init_producer_id.InitProducerIdRequest(transactional_id, 10_000)


def _epochs(scene: Scene, version: int) -> Message:
    part = offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(scene.topic, [part])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(-2, [topic])


def _add_partitions(scene: Scene, version: int) -> Message:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(scene.topic, [0])]
    if version >= 4:
        one = add_partitions_to_txn.AddPartitionsToTxnTransaction(
            TRANSACTIONAL_ID, 77, 0, True, topics
        )
        return add_partitions_to_txn.AddPartitionsToTxnRequest([one])
    return add_partitions_to_txn.AddPartitionsToTxnRequest([], TRANSACTIONAL_ID, 77, 0, topics)


def _markers(scene: Scene, version: int) -> Message:
    topic = write_txn_markers.WritableTxnMarkerTopic(scene.topic, [0])
    marker = write_txn_markers.WritableTxnMarker(77, 0, False, [topic], 0, 1)
    if version < 2:
        marker.transaction_version = 0
    return write_txn_markers.WriteTxnMarkersRequest([marker])


def _txn_offsets(scene: Scene, version: int) -> Message:
    part = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1, -1, "")
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(scene.topic, [part])
    return txn_offset_commit.TxnOffsetCommitRequest(TRANSACTIONAL_ID, GROUP, 77, 0, topics=[topic])


def _describe_share_offsets(scene: Scene, version: int) -> Message:
    topic = describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(scene.topic, [0])
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(SHARE_GROUP, [topic])
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest([group])


def _alter_share_offsets(scene: Scene, version: int) -> Message:
    part = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(0, 0)
    topic = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(scene.topic, [part])
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(SHARE_GROUP, [topic])


def _streams_heartbeat(scene: Scene, version: int) -> Message:
    reads = streams_group_heartbeat.Subtopology("0", [scene.topic])
    return streams_group_heartbeat.StreamsGroupHeartbeatRequest(
        STREAMS_GROUP, "member", 0, 0, rebalance_timeout_ms=1_000, process_id="process",
        topology=streams_group_heartbeat.Topology(0, [reads]),
        active_tasks=[], standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip


def _share_state(api: ModuleType, request: type[Message], topic: type[Message]) -> Any:
    """A request for the state of one share partition."""

    def make(scene: Scene, version: int) -> Message:
        return request(GROUP, [topic(scene.topic_id, [api.PartitionData(0)])])  # type: ignore[call-arg]

    return make


def _share_fetch(scene: Scene, version: int) -> Message:
    topic = share_fetch.FetchTopic(scene.topic_id, [share_fetch.FetchPartition(0)])
    return share_fetch.ShareFetchRequest(GROUP, "m", 0, max_records=1, topics=[topic])


def _share_acknowledge(scene: Scene, version: int) -> Message:
    return share_acknowledge.ShareAcknowledgeRequest(GROUP, "m", 1)


ANY_ENTRY: dict[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": "nothing-is-called-so",
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def _create_acls(scene: Scene, version: int) -> Message:
    wanted = create_acls.AclCreation(
        ResourceType.TOPIC,
        "some",
        PatternType.LITERAL,
        "User:somebody",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    return create_acls.CreateAclsRequest([wanted])


def _describe_configs(kind: int, name: str) -> Callable[[Scene, int], Message]:
    resource = describe_configs.DescribeConfigsResource(kind, name, None)
    return lambda scene, version: describe_configs.DescribeConfigsRequest([resource])


def _alter_configs(kind: int, name: str) -> Callable[[Scene, int], Message]:
    resource = alter_configs.AlterConfigsResource(kind, name, [])
    return lambda scene, version: alter_configs.AlterConfigsRequest([resource], True)


def _incremental(kind: int, name: str) -> Callable[[Scene, int], Message]:
    resource = incremental_alter_configs.AlterConfigsResource(kind, name, [])
    return lambda scene, version: incremental_alter_configs.IncrementalAlterConfigsRequest(
        [resource], True
    )


def _more_partitions(scene: Scene, version: int) -> Message:
    topic = create_partitions.CreatePartitionsTopic(scene.topic, 3, None)
    return create_partitions.CreatePartitionsRequest([topic], 10_000, True)


def _offset_delete(scene: Scene, version: int) -> Message:
    part = offset_delete.OffsetDeleteRequestPartition(0)
    topic = offset_delete.OffsetDeleteRequestTopic(scene.topic, [part])
    return offset_delete.OffsetDeleteRequest(GROUP, [topic])


def _alter_quotas(scene: Scene, version: int) -> Message:
    entity = [alter_client_quotas.EntityData("user", "somebody")]
    ops = [alter_client_quotas.OpData("consumer_byte_rate", 1e6, False)]
    entry = alter_client_quotas.RequestEntryData(entity, ops)
    return alter_client_quotas.AlterClientQuotasRequest([entry], True)


def _alter_scram(scene: Scene, version: int) -> Message:
    gone = alter_user_scram_credentials.ScramCredentialDeletion("somebody", 1)
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest([gone], [])


def _quorum(scene: Scene, version: int) -> Message:
    part = describe_quorum.RequestPartitionData(0)
    topic = describe_quorum.RequestTopicData("__cluster_metadata", [part])
    return describe_quorum.DescribeQuorumRequest([topic])


def _features(scene: Scene, version: int) -> Message:
    update = update_features.FeatureUpdateKey("group.version", 1)
    if version:
        update.upgrade_type = 1
    return update_features.UpdateFeaturesRequest(10_000, [update], version > 0)


def _producers(scene: Scene, version: int) -> Message:
    return describe_producers.DescribeProducersRequest(
        [describe_producers.TopicRequest(scene.topic, [0])]
    )


def _member(scene: Scene, version: int) -> Message:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        GROUP, "member-0123456789abcdef", 0
    )
    request.rebalance_timeout_ms = 10_000
    request.subscribed_topic_names = [scene.topic]
    request.topic_partitions = []
    return request


def _topic_partitions(scene: Scene, version: int) -> Message:
    wanted = [describe_topic_partitions.TopicRequest(scene.topic)]
    return describe_topic_partitions.DescribeTopicPartitionsRequest(wanted)


def _cluster_operations(scene: Scene, version: int) -> Message:
    return describe_cluster.DescribeClusterRequest(True)


def _elect(scene: Scene, version: int) -> Message:
    named = [elect_leaders.TopicPartitions(scene.topic, [0])]
    return elect_leaders.ElectLeadersRequest(0, named, 10_000)


def _reassign(scene: Scene, version: int) -> Message:
    partition = alter_partition_reassignments.ReassignablePartition(0, [1])
    topic = alter_partition_reassignments.ReassignableTopic(scene.topic, [partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def _reassignments(scene: Scene, version: int) -> Message:
    topic = list_partition_reassignments.ListPartitionReassignmentsTopics(scene.topic, [0])
    return list_partition_reassignments.ListPartitionReassignmentsRequest(10_000, [topic])


def _move(scene: Scene, version: int) -> Message:
    topic = alter_replica_log_dirs.AlterReplicaLogDirTopic(scene.topic, [0])
    folder = alter_replica_log_dirs.AlterReplicaLogDir("/nowhere", [topic])
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest([folder])


READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS

CASES: tuple[Case, ...] = (
    Case("produce", produce, (on_topic(WRITE),), _produce),
    Case("transactional produce", produce, (on_id(WRITE), on_topic(WRITE)),
         _produce_transactional),
    Case("fetch", fetch, (on_topic(READ),), _fetch),
    Case("fetch as a replica", fetch, (on_cluster(CLUSTER_ACTION),),
         lambda scene, version: _fetch(scene, version, replica=1)),
    Case("list offsets", list_offsets, (on_topic(DESCRIBE),), _list_offsets),
    Case("metadata of a topic", metadata, (on_topic(DESCRIBE),), _metadata("orders")),
    Case("metadata by id", metadata, (on_topic(DESCRIBE),), _metadata_by_id, range(12, 14)),
    Case("metadata that creates", metadata,
         (on_topic(DESCRIBE, NEW_TOPIC), on_topic(CREATE, NEW_TOPIC)), _metadata(NEW_TOPIC),
         range(4, 14)),
    Case("metadata that creates, by the cluster", metadata,
         (on_topic(DESCRIBE, NEW_TOPIC), on_cluster(CREATE)), _metadata(NEW_TOPIC), range(4, 14)),
    Case("metadata of all topics", metadata, (on_topic(DESCRIBE),), _all_metadata,
         hidden=_topic_is_missing),
    Case("offset commit", offset_commit, (on_group(READ), on_topic(READ)), _offset_commit),
    Case("offset fetch", offset_fetch, (on_group(DESCRIBE), on_topic(DESCRIBE)), _offset_fetch),
    Case("all offsets", offset_fetch, (on_group(DESCRIBE), on_topic(DESCRIBE)), _all_offsets,
         range(8, 11), lambda answer, scene: not answer.groups[0].topics),
    Case("find a group", find_coordinator, (on_group(DESCRIBE),), _find(GROUP, 0)),
    Case("find a transaction", find_coordinator, (on_id(DESCRIBE),), _find(TRANSACTIONAL_ID, 1),
         range(1, 7)),
    Case("join", join_group, (on_group(READ),), _join),
    Case("heartbeat", heartbeat, (on_group(READ),),
         lambda scene, version: heartbeat.HeartbeatRequest(GROUP, 1, "m")),
    Case("leave", leave_group, (on_group(READ),),
         lambda scene, version: leave_group.LeaveGroupRequest(
             GROUP, "m", [leave_group.MemberIdentity("m")])),
    Case("sync", sync_group, (on_group(READ),), _sync),
    Case("describe groups", describe_groups, (on_group(DESCRIBE),),
         lambda scene, version: describe_groups.DescribeGroupsRequest([GROUP])),
    Case("list groups", list_groups, (on_group(DESCRIBE),),
         lambda scene, version: list_groups.ListGroupsRequest(),
         hidden=lambda answer, scene: not answer.groups),
    Case("list groups, by the cluster", list_groups, (on_cluster(DESCRIBE),),
         lambda scene, version: list_groups.ListGroupsRequest(),
         hidden=lambda answer, scene: not answer.groups),
    Case("create topics", create_topics, (on_topic(CREATE, NEW_TOPIC),), _create_topics,
         hidden=lambda answer, scene: answer.topics[0].error_code in REFUSALS),
    Case("create topics, by the cluster", create_topics, (on_cluster(CREATE),), _create_topics,
         hidden=lambda answer, scene: answer.topics[0].error_code in REFUSALS),
    Case("create topics and see settings", create_topics,
         (on_cluster(CREATE), on_topic(DESCRIBE_CONFIGS, NEW_TOPIC)), _create_topics, range(5, 8)),
    Case("delete topics", delete_topics, (on_topic(DELETE),), _delete_topics),
    Case("delete topics by id", delete_topics, (on_topic(DELETE),), _delete_topics_by_id,
         range(6, 7)),
    Case("delete topics, by the cluster", delete_topics, (on_cluster(DELETE),), _delete_topics),
    Case("delete records", delete_records, (on_topic(DELETE),), _delete_records),
    Case("an idempotent producer", init_producer_id, (on_cluster(Operation.IDEMPOTENT_WRITE),),
         _init_producer(None)),
    Case("an idempotent producer of some topic", init_producer_id, (on_topic(WRITE, "any"),),
         _init_producer(None)),
    Case("a transactional producer", init_producer_id, (on_id(WRITE),),
         _init_producer(TRANSACTIONAL_ID)),
    Case("epochs", offset_for_leader_epoch, (on_topic(DESCRIBE),), _epochs),
    Case("epochs, by the cluster", offset_for_leader_epoch, (on_cluster(CLUSTER_ACTION),), _epochs),
    Case("add partitions", add_partitions_to_txn, (on_id(WRITE), on_topic(WRITE)),
         _add_partitions, range(0, 4)),
    Case("add partitions as a broker", add_partitions_to_txn, (on_cluster(CLUSTER_ACTION),),
         _add_partitions, range(4, 6)),
    Case("add offsets", add_offsets_to_txn, (on_id(WRITE), on_group(READ)),
         lambda scene, version: add_offsets_to_txn.AddOffsetsToTxnRequest(
             TRANSACTIONAL_ID, 77, 0, GROUP)),
    Case("end a transaction", end_txn, (on_id(WRITE),),
         lambda scene, version: end_txn.EndTxnRequest(TRANSACTIONAL_ID, 77, 0, True)),
    Case("markers", write_txn_markers, (on_cluster(CLUSTER_ACTION),), _markers),
    Case("markers of an administrator", write_txn_markers, (on_cluster(ALTER),), _markers),
    Case("a member of a share group", share_group_heartbeat,
         (on_group(READ, SHARE_GROUP), on_topic(DESCRIBE)),
         lambda scene, version: share_group_heartbeat.ShareGroupHeartbeatRequest(
             SHARE_GROUP, "member-0123456789abcdef", 0, None, [scene.topic])),
    Case("describe share groups", share_group_describe, (on_group(DESCRIBE, SHARE_GROUP),),
         lambda scene, version: share_group_describe.ShareGroupDescribeRequest([SHARE_GROUP])),
    Case("a member of a streams group", streams_group_heartbeat,
         (on_group(READ, STREAMS_GROUP), on_topic(DESCRIBE)), _streams_heartbeat),
    # With members the topics of the topology would have to be described too.
    Case("describe streams groups", streams_group_describe,
         (on_group(DESCRIBE, OTHER_STREAMS_GROUP),),
         lambda scene, version: streams_group_describe.StreamsGroupDescribeRequest(
             [OTHER_STREAMS_GROUP])),
    Case("describe offsets of share groups", describe_share_group_offsets,
         (on_group(DESCRIBE, SHARE_GROUP), on_topic(DESCRIBE)), _describe_share_offsets),
    # The group comes last: it has a member by now, which is said before a topic is looked at.
    Case("set offsets of a share group", alter_share_group_offsets,
         (on_topic(READ), on_group(READ, SHARE_GROUP)), _alter_share_offsets),
    Case("forget offsets of a share group", delete_share_group_offsets,
         (on_topic(READ), on_group(DELETE, SHARE_GROUP)),
         lambda scene, version: delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
             SHARE_GROUP,
             [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(scene.topic)])),
    Case("begin the state of a share partition", initialize_share_group_state,
         (on_cluster(CLUSTER_ACTION),), _share_state(
             initialize_share_group_state,
             initialize_share_group_state.InitializeShareGroupStateRequest,
             initialize_share_group_state.InitializeStateData)),
    Case("read the state of a share partition", read_share_group_state,
         (on_cluster(CLUSTER_ACTION),), _share_state(
             read_share_group_state, read_share_group_state.ReadShareGroupStateRequest,
             read_share_group_state.ReadStateData)),
    Case("write the state of a share partition", write_share_group_state,
         (on_cluster(CLUSTER_ACTION),), _share_state(
             write_share_group_state, write_share_group_state.WriteShareGroupStateRequest,
             write_share_group_state.WriteStateData)),
    Case("delete the state of a share partition", delete_share_group_state,
         (on_cluster(CLUSTER_ACTION),), _share_state(
             delete_share_group_state, delete_share_group_state.DeleteShareGroupStateRequest,
             delete_share_group_state.DeleteStateData)),
    Case("the summary of a share partition", read_share_group_state_summary,
         (on_cluster(CLUSTER_ACTION),), _share_state(
             read_share_group_state_summary,
             read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
             read_share_group_state_summary.ReadStateSummaryData)),
    Case("offsets in a transaction", txn_offset_commit,
         (on_id(WRITE), on_group(READ), on_topic(READ)), _txn_offsets),
    Case("describe entries", describe_acls, (on_cluster(DESCRIBE),),
         lambda scene, version: describe_acls.DescribeAclsRequest(**ANY_ENTRY)),
    Case("create entries", create_acls, (on_cluster(ALTER),), _create_acls),
    Case("delete entries", delete_acls, (on_cluster(ALTER),),
         lambda scene, version: delete_acls.DeleteAclsRequest(
             [delete_acls.DeleteAclsFilter(**ANY_ENTRY)])),
    Case("settings of a topic", describe_configs, (on_topic(DESCRIBE_CONFIGS),),
         _describe_configs(TOPIC_TYPE, "orders")),
    Case("settings of a broker", describe_configs, (on_cluster(DESCRIBE_CONFIGS),),
         _describe_configs(BROKER_TYPE, "1")),
    Case("settings of a group", describe_configs, ((ResourceType.GROUP, GROUP, DESCRIBE_CONFIGS),),
         _describe_configs(GROUP_TYPE, GROUP)),
    Case("replace settings of a topic", alter_configs, (on_topic(ALTER_CONFIGS),),
         _alter_configs(TOPIC_TYPE, "orders")),
    Case("replace settings of a broker", alter_configs, (on_cluster(ALTER_CONFIGS),),
         _alter_configs(BROKER_TYPE, "1")),
    Case("alter settings of a topic", incremental_alter_configs, (on_topic(ALTER_CONFIGS),),
         _incremental(TOPIC_TYPE, "orders")),
    Case("alter settings of a broker", incremental_alter_configs, (on_cluster(ALTER_CONFIGS),),
         _incremental(BROKER_TYPE, "1")),
    Case("alter settings of a group", incremental_alter_configs,
         ((ResourceType.GROUP, GROUP, ALTER_CONFIGS),), _incremental(GROUP_TYPE, GROUP)),
    Case("log folders", describe_log_dirs, (on_cluster(DESCRIBE),),
         lambda scene, version: describe_log_dirs.DescribeLogDirsRequest(None),
         hidden=lambda answer, scene: not answer.results),
    Case("move to another folder", alter_replica_log_dirs, (on_cluster(ALTER),), _move),
    Case("elect leaders", elect_leaders, (on_cluster(ALTER),), _elect),
    Case("reassign", alter_partition_reassignments, (on_cluster(ALTER),), _reassign),
    Case("list reassignments", list_partition_reassignments, (on_cluster(DESCRIBE),),
         _reassignments),
    Case("more partitions", create_partitions, (on_topic(ALTER),), _more_partitions),
    Case("delete groups", delete_groups, (on_group(DELETE),),
         lambda scene, version: delete_groups.DeleteGroupsRequest([GROUP])),
    Case("delete offsets", offset_delete, (on_group(DELETE), on_topic(READ)), _offset_delete),
    Case("describe quotas", describe_client_quotas, (on_cluster(DESCRIBE_CONFIGS),),
         lambda scene, version: describe_client_quotas.DescribeClientQuotasRequest()),
    Case("alter quotas", alter_client_quotas, (on_cluster(ALTER_CONFIGS),), _alter_quotas),
    Case("describe users", describe_user_scram_credentials, (on_cluster(DESCRIBE),),
         lambda scene, version: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
             [describe_user_scram_credentials.UserName("somebody")])),
    Case("alter users", alter_user_scram_credentials, (on_cluster(ALTER),), _alter_scram),
    Case("the quorum", describe_quorum, (on_cluster(DESCRIBE),), _quorum),
    Case("features", update_features, (on_cluster(ALTER),), _features),
    Case("operations on the cluster", describe_cluster, (on_cluster(DESCRIBE),),
         _cluster_operations,
         hidden=lambda answer, scene: answer.cluster_authorized_operations == 0),
    Case("producers", describe_producers, (on_topic(READ),), _producers),
    Case("describe transactions", describe_transactions, (on_id(DESCRIBE),),
         lambda scene, version: describe_transactions.DescribeTransactionsRequest(
             [TRANSACTIONAL_ID])),
    Case("list transactions", list_transactions, (on_id(DESCRIBE),),
         lambda scene, version: list_transactions.ListTransactionsRequest(),
         hidden=lambda answer, scene: not answer.transaction_states),
    Case("a member of the consumer protocol", consumer_group_heartbeat,
         (on_group(READ), on_topic(DESCRIBE)), _member),
    Case("describe consumer groups", consumer_group_describe, (on_group(DESCRIBE),),
         lambda scene, version: consumer_group_describe.ConsumerGroupDescribeRequest([GROUP])),
    Case("acquire records", share_fetch, (on_group(READ), on_topic(READ)), _share_fetch),
    Case("acknowledge records", share_acknowledge, (on_group(READ),), _share_acknowledge),
    Case("list what has settings", list_config_resources, (on_cluster(DESCRIBE_CONFIGS),),
         lambda scene, version: list_config_resources.ListConfigResourcesRequest()),
    Case("partitions of topics", describe_topic_partitions, (on_topic(DESCRIBE),),
         _topic_partitions),
)  # fmt: skip
