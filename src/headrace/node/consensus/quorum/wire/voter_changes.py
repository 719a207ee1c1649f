"""AddRaftVoter v0-1, RemoveRaftVoter v0, UpdateRaftVoter v0 and, for a coming voter, ApiVersions.

Responses to the first two name no leader: they answer an administrator, who asks DescribeQuorum.
"""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import (
    NOBODY,
    AddVoterRequest,
    KRaftVersionsRequest,
    KRaftVersionsResponse,
    RemoveVoterRequest,
    ReplicaKey,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from headrace.node.consensus.quorum.wire.names import Names, error_of
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.wire.protocol.messages import add_raft_voter as add
from headrace.wire.protocol.messages import api_versions
from headrace.wire.protocol.messages import remove_raft_voter as remove
from headrace.wire.protocol.messages import update_raft_voter as update

KRAFT_VERSION = "kraft.version"


def decode_add(message: add.AddRaftVoterRequest, names: Names) -> AddVoterRequest:
    names.require_cluster(message.cluster_id)
    return AddVoterRequest(
        ReplicaKey(message.voter_id, message.voter_directory_id),
        tuple(VoterEndpoint(e.name, e.host, e.port) for e in message.listeners),
        message.timeout_ms,
        message.ack_when_committed,
    )


def encode_add(request: AddVoterRequest, names: Names) -> add.AddRaftVoterRequest:
    return add.AddRaftVoterRequest(
        cluster_id=names.cluster_id,
        timeout_ms=request.timeout_ms,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id,
        listeners=[
            add.Listener(name=point.listener, host=point.host, port=point.port)
            for point in request.endpoints
        ],
        ack_when_committed=request.ack_when_committed,
    )


def decode_change_response(
    message: add.AddRaftVoterResponse | remove.RemoveRaftVoterResponse, names: Names
) -> VoterChangeResponse:
    return VoterChangeResponse(error_of(message.error_code), NOBODY, message=message.error_message)


def encode_add_response(response: VoterChangeResponse) -> add.AddRaftVoterResponse:
    return add.AddRaftVoterResponse(error_code=response.error, error_message=response.message)


def decode_remove(message: remove.RemoveRaftVoterRequest, names: Names) -> RemoveVoterRequest:
    names.require_cluster(message.cluster_id)
    return RemoveVoterRequest(ReplicaKey(message.voter_id, message.voter_directory_id))


def encode_remove(request: RemoveVoterRequest, names: Names) -> remove.RemoveRaftVoterRequest:
    return remove.RemoveRaftVoterRequest(
        cluster_id=names.cluster_id,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id,
    )


def encode_remove_response(response: VoterChangeResponse) -> remove.RemoveRaftVoterResponse:
    return remove.RemoveRaftVoterResponse(error_code=response.error, error_message=response.message)


def encode_update(request: UpdateVoterRequest, names: Names) -> update.UpdateRaftVoterRequest:
    voter = request.voter
    return update.UpdateRaftVoterRequest(
        cluster_id=names.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
        listeners=[
            update.Listener(name=point.listener, host=point.host, port=point.port)
            for point in voter.endpoints
        ],
        kraft_version_feature=update.KRaftVersionFeature(
            min_supported_version=voter.kraft_versions[0],
            max_supported_version=voter.kraft_versions[1],
        ),
    )


def decode_update(message: update.UpdateRaftVoterRequest, names: Names) -> UpdateVoterRequest:
    names.require_cluster(message.cluster_id)
    feature = message.kraft_version_feature
    voter = Voter(
        message.voter_id,
        message.voter_directory_id,
        tuple(VoterEndpoint(e.name, e.host, e.port) for e in message.listeners),
        (feature.min_supported_version, feature.max_supported_version),
    )
    return UpdateVoterRequest(message.current_leader_epoch, voter)


def encode_update_response(response: Response) -> update.UpdateRaftVoterResponse:
    leader = update.CurrentLeader(leader_id=response.leader_id, leader_epoch=response.epoch)
    if response.endpoints:
        leader.host, leader.port = response.endpoints[0].host, response.endpoints[0].port
    return update.UpdateRaftVoterResponse(error_code=response.error, current_leader=leader)


def decode_update_response(message: update.UpdateRaftVoterResponse, names: Names) -> Response:
    leader = message.current_leader or update.CurrentLeader()
    where = (VoterEndpoint(names.listener, leader.host, leader.port),) if leader.host else ()
    return Response(error_of(message.error_code), leader.leader_epoch, leader.leader_id, where)


def encode_versions(request: KRaftVersionsRequest, names: Names) -> api_versions.ApiVersionsRequest:
    return api_versions.ApiVersionsRequest(
        client_software_name="headrace", client_software_version="quorum"
    )


def decode_versions(
    message: api_versions.ApiVersionsResponse, names: Names
) -> KRaftVersionsResponse:
    """A node that does not name the feature understands level 0 alone."""
    found = [f for f in message.supported_features if f.name == KRAFT_VERSION]
    versions = (found[0].min_version, found[0].max_version) if found else (0, 0)
    return KRaftVersionsResponse(error_of(message.error_code), NOBODY, versions=versions)
