"""FetchSnapshot, v0-1, on the wire. v1 names the replica's directory (KIP-853)."""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ReplicaKey,
)
from headrace.node.consensus.quorum.wire.names import (
    PARTITION,
    Names,
    error_of,
    failed,
    node_endpoints,
    only_partition,
)
from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.metadata.topic_names import METADATA_TOPIC
from headrace.wire.protocol.messages import fetch_snapshot as fetch


def encode_request(request: FetchSnapshotRequest, names: Names) -> fetch.FetchSnapshotRequest:
    partition = fetch.RequestPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=_id_on_the_wire(request.snapshot_id),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return fetch.FetchSnapshotRequest(
        cluster_id=names.cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[fetch.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def decode_request(message: fetch.FetchSnapshotRequest, names: Names) -> FetchSnapshotRequest:
    names.require_cluster(message.cluster_id)
    partition = only_partition(message.topics, "name", "partition")
    return FetchSnapshotRequest(
        ReplicaKey(message.replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        message.max_bytes,
    )


def encode_response(response: FetchSnapshotResponse) -> fetch.FetchSnapshotResponse:
    snapshot_id = response.snapshot_id or SnapshotId(-1, -1)
    partition = fetch.ResponsePartitionSnapshot(
        index=PARTITION,
        error_code=response.error,
        snapshot_id=_id_on_the_wire(snapshot_id),
        current_leader=fetch.LeaderIdAndEpoch(
            leader_id=response.leader_id, leader_epoch=response.epoch
        ),
        size=response.size,
        position=response.position,
        unaligned_records=response.data,
    )
    return fetch.FetchSnapshotResponse(
        topics=[fetch.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=node_endpoints(fetch.NodeEndpoint, response),
    )


def decode_response(message: fetch.FetchSnapshotResponse, names: Names) -> FetchSnapshotResponse:
    if message.error_code:
        return failed(FetchSnapshotResponse, message.error_code)
    partition = only_partition(message.topics, "name", "index")
    leader = partition.current_leader
    found = partition.snapshot_id
    return FetchSnapshotResponse(
        error_of(partition.error_code),
        leader.leader_epoch,
        leader.leader_id,
        names.endpoint_of_leader(leader.leader_id, message.node_endpoints),
        snapshot_id=SnapshotId(found.end_offset, found.epoch) if found.epoch >= 0 else None,
        size=partition.size,
        position=partition.position,
        data=bytes(partition.unaligned_records or b""),
    )


def _id_on_the_wire(snapshot_id: SnapshotId) -> fetch.SnapshotId:
    return fetch.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)
