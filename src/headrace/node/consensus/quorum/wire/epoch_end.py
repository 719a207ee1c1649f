"""EndQuorumEpoch, v0-1, on the wire. v1 names successors with their directories (KIP-853)."""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import EndEpochRequest, ReplicaKey, Response
from headrace.node.consensus.quorum.wire.epoch_responses import decode_response as decode_response
from headrace.node.consensus.quorum.wire.epoch_responses import fields_of
from headrace.node.consensus.quorum.wire.names import PARTITION, Names, only_partition
from headrace.node.consensus.voters import VoterEndpoint
from headrace.node.metadata.topic_names import METADATA_TOPIC
from headrace.wire.protocol.messages import end_quorum_epoch as end


def encode_request(
    request: EndEpochRequest, names: Names, version: int = 1
) -> end.EndQuorumEpochRequest:
    """v0 has the ids of the successors, v1 has their keys; a field of the other is left empty."""
    partition = end.RequestPartitionData(
        partition_index=PARTITION, leader_id=request.leader_id, leader_epoch=request.epoch
    )
    if version == 0:
        partition.preferred_successors = [key.id for key in request.successors]
    else:
        partition.preferred_candidates = [
            end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in request.successors
        ]
    return end.EndQuorumEpochRequest(
        cluster_id=names.cluster_id,
        topics=[end.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            end.LeaderEndpoint(name=point.listener, host=point.host, port=point.port)
            for point in request.endpoints
        ],
    )


def decode_request(message: end.EndQuorumEpochRequest, names: Names) -> EndEpochRequest:
    names.require_cluster(message.cluster_id)
    partition = only_partition(message.topics, "topic_name", "partition_index")
    successors = [
        ReplicaKey(info.candidate_id, info.candidate_directory_id)
        for info in partition.preferred_candidates
    ] or [ReplicaKey(node) for node in partition.preferred_successors]
    return EndEpochRequest(
        partition.leader_epoch,
        partition.leader_id,
        tuple(VoterEndpoint(e.name, e.host, e.port) for e in message.leader_endpoints),
        tuple(successors),
    )


def encode_response(response: Response) -> end.EndQuorumEpochResponse:
    return end.EndQuorumEpochResponse(**fields_of(end, response))
