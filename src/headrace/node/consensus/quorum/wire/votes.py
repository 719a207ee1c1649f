"""Vote, v0-2, on the wire. v1 names directories (KIP-853), v2 pre-votes (KIP-996)."""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import ReplicaKey, VoteRequest, VoteResponse
from headrace.node.consensus.quorum.wire.names import (
    PARTITION,
    Names,
    error_of,
    failed,
    node_endpoints,
    only_partition,
)
from headrace.node.metadata.topic_names import METADATA_TOPIC
from headrace.wire.protocol.messages import vote
from headrace.wire.protocol.primitives import ZERO_ID


def encode_request(request: VoteRequest, names: Names) -> vote.VoteRequest:
    partition = vote.RequestPartitionData(
        partition_index=PARTITION,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id if request.voter else ZERO_ID,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )
    return vote.VoteRequest(
        cluster_id=names.cluster_id,
        voter_id=request.voter.id if request.voter else -1,
        topics=[vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


def decode_request(message: vote.VoteRequest, names: Names) -> VoteRequest:
    names.require_cluster(message.cluster_id)
    partition = only_partition(message.topics, "topic_name", "partition_index")
    named = message.voter_id >= 0
    return VoteRequest(
        partition.replica_epoch,
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        partition.last_offset_epoch,
        partition.last_offset,
        partition.pre_vote,
        ReplicaKey(message.voter_id, partition.voter_directory_id) if named else None,
    )


def encode_response(response: VoteResponse) -> vote.VoteResponse:
    partition = vote.ResponsePartitionData(
        partition_index=PARTITION,
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        vote_granted=response.granted,
    )
    return vote.VoteResponse(
        topics=[vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=node_endpoints(vote.NodeEndpoint, response),
    )


def decode_response(message: vote.VoteResponse, names: Names) -> VoteResponse:
    if message.error_code:
        return failed(VoteResponse, message.error_code)
    partition = only_partition(message.topics, "topic_name", "partition_index")
    return VoteResponse(
        error_of(partition.error_code),
        partition.leader_epoch,
        partition.leader_id,
        names.endpoint_of_leader(partition.leader_id, message.node_endpoints),
        granted=partition.vote_granted,
    )
