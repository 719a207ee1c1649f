"""Fetch of the metadata log, v12-18, on the wire.

v13 names the topic by its id, v15 puts the replica's id into a tagged field, v17 names its
directory (KIP-853), v18 its high watermark (KIP-1166). An older one that does not name it waits
as if it had everything.
"""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import (
    FetchRequest,
    FetchResponse,
    OffsetAndEpoch,
    ReplicaKey,
)
from headrace.node.consensus.quorum.wire.names import (
    PARTITION,
    Names,
    error_of,
    failed,
    node_endpoints,
)
from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.metadata.topic_names import METADATA_TOPIC
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import fetch
from headrace.wire.protocol.uuids import METADATA_TOPIC_ID

# As Apache's raft client asks.
FETCH_BYTES = 8 << 20


def encode_request(request: FetchRequest, names: Names) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        partition_max_bytes=FETCH_BYTES,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    topic = fetch.FetchTopic(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return fetch.FetchRequest(
        cluster_id=names.cluster_id,
        replica_id=request.replica.id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.id),
        max_wait_ms=request.max_wait_ms,
        max_bytes=FETCH_BYTES,
        topics=[topic],
    )


def decode_request(message: fetch.FetchRequest, names: Names) -> FetchRequest:
    names.require_cluster(message.cluster_id)
    topics = message.topics
    is_ours = (
        len(topics) == 1
        and (topics[0].topic_id == METADATA_TOPIC_ID or topics[0].topic == METADATA_TOPIC)
        and len(topics[0].partitions) == 1
        and topics[0].partitions[0].partition == PARTITION
    )
    if not is_ours:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The quorum has {METADATA_TOPIC}-0 alone.")
    partition = topics[0].partitions[0]
    state = message.replica_state
    replica_id = message.replica_id
    if replica_id < 0 and state is not None:
        replica_id = state.replica_id
    return FetchRequest(
        ReplicaKey(replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        message.max_wait_ms,
        partition.high_watermark,
    )


def encode_response(response: FetchResponse) -> fetch.FetchResponse:
    partition = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=response.error,
        high_watermark=response.high_watermark,
        last_stable_offset=response.high_watermark,
        log_start_offset=response.start_offset,
        current_leader=fetch.LeaderIdAndEpoch(
            leader_id=response.leader_id, leader_epoch=response.epoch
        ),
        aborted_transactions=[],
        records=response.records,
    )
    if response.diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(
            epoch=response.diverging.epoch, end_offset=response.diverging.offset
        )
    if response.snapshot_id is not None:
        partition.snapshot_id = fetch.SnapshotId(
            end_offset=response.snapshot_id.end_offset, epoch=response.snapshot_id.epoch
        )
    topic = fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return fetch.FetchResponse(
        responses=[topic], node_endpoints=node_endpoints(fetch.NodeEndpoint, response)
    )


def decode_response(message: fetch.FetchResponse, names: Names) -> FetchResponse:
    if message.error_code or not message.responses or not message.responses[0].partitions:
        return failed(FetchResponse, message.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
    partition = message.responses[0].partitions[0]
    leader = partition.current_leader or fetch.LeaderIdAndEpoch()
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    return FetchResponse(
        error_of(partition.error_code),
        leader.leader_epoch,
        leader.leader_id,
        names.endpoint_of_leader(leader.leader_id, message.node_endpoints),
        high_watermark=partition.high_watermark,
        start_offset=partition.log_start_offset,
        records=bytes(partition.records or b""),
        diverging=OffsetAndEpoch(diverging.end_offset, diverging.epoch)
        if diverging is not None and diverging.epoch >= 0
        else None,
        snapshot_id=SnapshotId(snapshot.end_offset, snapshot.epoch)
        if snapshot is not None and snapshot.epoch >= 0 and snapshot.end_offset >= 0
        else None,
    )
