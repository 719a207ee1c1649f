"""BeginQuorumEpoch, v0-1, on the wire. v1 names directories and listeners (KIP-853)."""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import BeginEpochRequest, ReplicaKey, Response
from headrace.node.consensus.quorum.wire.epoch_responses import decode_response as decode_response
from headrace.node.consensus.quorum.wire.epoch_responses import fields_of
from headrace.node.consensus.quorum.wire.names import PARTITION, Names, only_partition
from headrace.node.consensus.voters import VoterEndpoint
from headrace.node.metadata.topic_names import METADATA_TOPIC
from headrace.wire.protocol.messages import begin_quorum_epoch as begin
from headrace.wire.protocol.primitives import ZERO_ID


def encode_request(request: BeginEpochRequest, names: Names) -> begin.BeginQuorumEpochRequest:
    partition = begin.RequestPartitionData(
        partition_index=PARTITION,
        voter_directory_id=request.voter.directory_id if request.voter else ZERO_ID,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=names.cluster_id,
        voter_id=request.voter.id if request.voter else -1,
        topics=[begin.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            begin.LeaderEndpoint(name=point.listener, host=point.host, port=point.port)
            for point in request.endpoints
        ],
    )


def decode_request(message: begin.BeginQuorumEpochRequest, names: Names) -> BeginEpochRequest:
    names.require_cluster(message.cluster_id)
    partition = only_partition(message.topics, "topic_name", "partition_index")
    named = message.voter_id >= 0
    return BeginEpochRequest(
        partition.leader_epoch,
        partition.leader_id,
        tuple(VoterEndpoint(e.name, e.host, e.port) for e in message.leader_endpoints),
        ReplicaKey(message.voter_id, partition.voter_directory_id) if named else None,
    )


def encode_response(response: Response) -> begin.BeginQuorumEpochResponse:
    return begin.BeginQuorumEpochResponse(**fields_of(begin, response))
