"""Every message of the quorum survives the wire: encoded, written, read and decoded again."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.consensus.quorum.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    KRaftVersionsRequest,
    OffsetAndEpoch,
    RemoveVoterRequest,
    ReplicaKey,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from headrace.node.consensus.quorum.wire import (
    OUTGOING,
    epoch_begin,
    epoch_end,
    fetches,
    snapshot_fetches,
    voter_changes,
    votes,
)
from headrace.node.consensus.quorum.wire.names import Names
from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)

NAMES = Names("a-cluster", "CONTROLLER")
ANNA, BEN = ReplicaKey(1, b"a" * 16), ReplicaKey(2, b"b" * 16)
HERE = (VoterEndpoint("CONTROLLER", "anna.example", 9093),)
SNAPSHOT = SnapshotId(40, 3)


def carry(message: Any, encoders: Any, decoders: Any, version: int) -> Any:
    out = bytearray()
    encoders[version](message, lambda piece: out.extend(piece))
    decoded, end = decoders[version](memoryview(bytes(out)), 0)
    assert end == len(out)
    return decoded


REQUESTS = [
    (VoteRequest(7, ANNA, 3, 40, True, BEN), votes, vote, 2),
    (VoteRequest(7, ANNA, 3, 40, False, BEN), votes, vote, 1),
    (VoteRequest(7, ReplicaKey(1), 3, 40, False, None), votes, vote, 0),
    (BeginEpochRequest(7, 1, HERE, BEN), epoch_begin, begin_quorum_epoch, 1),
    (BeginEpochRequest(7, 1, (), None), epoch_begin, begin_quorum_epoch, 0),
    (EndEpochRequest(7, 1, HERE, (BEN, ANNA)), epoch_end, end_quorum_epoch, 1),
    (FetchRequest(ANNA, 7, 40, 3, 500, 38), fetches, fetch, 18),
    (FetchSnapshotRequest(ANNA, 7, SNAPSHOT, 100, 1 << 20), snapshot_fetches, fetch_snapshot, 1),
]


@pytest.mark.parametrize(("request_", "codec", "api", "version"), REQUESTS)
def test_a_request(request_: Any, codec: Any, api: Any, version: int) -> None:
    encoded = codec.encode_request(request_, NAMES)
    read = carry(encoded, api.ENCODE_REQUEST, api.DECODE_REQUEST, version)
    assert codec.decode_request(read, NAMES) == request_


def test_a_request_to_another_cluster_or_topic_is_refused() -> None:
    encoded = votes.encode_request(REQUESTS[0][0], NAMES)  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as refused:
        votes.decode_request(encoded, Names("another", "CONTROLLER"))
    assert refused.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
    encoded.topics[0].topic_name = "orders"
    with pytest.raises(KafkaError) as refused:
        votes.decode_request(encoded, NAMES)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_an_older_fetch_names_the_replica_elsewhere_and_waits_for_records() -> None:
    request = fetches.encode_request(FetchRequest(ANNA, 7, 40, 3, 500, 38), NAMES)
    read = carry(request, fetch.ENCODE_REQUEST, fetch.DECODE_REQUEST, 12)
    decoded = fetches.decode_request(read, NAMES)
    assert decoded.replica == ReplicaKey(1) and decoded.offset == 40
    assert decoded.high_watermark > 1 << 60


def test_version_0_names_successors_by_id() -> None:
    request = EndEpochRequest(7, 1, (), (BEN, ANNA))
    encoded = epoch_end.encode_request(request, NAMES, version=0)
    read = carry(encoded, end_quorum_epoch.ENCODE_REQUEST, end_quorum_epoch.DECODE_REQUEST, 0)
    assert epoch_end.decode_request(read, NAMES).successors == (ReplicaKey(2), ReplicaKey(1))


RESPONSES = [
    (VoteResponse(ErrorCode.NONE, 7, 1, HERE, granted=True), votes, vote, 2),
    (VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, 8, -1, ()), votes, vote, 2),
    (Response(ErrorCode.INVALID_VOTER_KEY, 7, 1, HERE), epoch_begin, begin_quorum_epoch, 1),
    (Response(ErrorCode.NONE, 7, 1, HERE), epoch_end, end_quorum_epoch, 1),
    (FetchResponse(ErrorCode.NONE, 7, 1, HERE, 38, 5, b"batches"), fetches, fetch, 18),
    (
        FetchResponse(ErrorCode.NONE, 7, 1, HERE, 38, diverging=OffsetAndEpoch(30, 2)),
        fetches,
        fetch,
        17,
    ),
    (FetchResponse(ErrorCode.NONE, 7, 1, HERE, 38, snapshot_id=SNAPSHOT), fetches, fetch, 17),
    (FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 7, 1, HERE), fetches, fetch, 17),
    (
        FetchSnapshotResponse(ErrorCode.NONE, 7, 1, HERE, SNAPSHOT, 1000, 100, b"a piece"),
        snapshot_fetches,
        fetch_snapshot,
        1,
    ),
    (
        FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, 7, 1, HERE),
        snapshot_fetches,
        fetch_snapshot,
        1,
    ),
]


@pytest.mark.parametrize(("response", "codec", "api", "version"), RESPONSES)
def test_a_response(response: Any, codec: Any, api: Any, version: int) -> None:
    encoded = codec.encode_response(response)
    read = carry(encoded, api.ENCODE_RESPONSE, api.DECODE_RESPONSE, version)
    assert codec.decode_response(read, NAMES) == response


def test_changes_of_voters() -> None:
    message = add_raft_voter.AddRaftVoterRequest(
        cluster_id="a-cluster",
        timeout_ms=900,
        voter_id=1,
        voter_directory_id=ANNA.directory_id,
        listeners=[add_raft_voter.Listener(name="CONTROLLER", host="anna.example", port=9093)],
        ack_when_committed=False,
    )
    read = carry(message, add_raft_voter.ENCODE_REQUEST, add_raft_voter.DECODE_REQUEST, 1)
    assert voter_changes.decode_add(read, NAMES) == AddVoterRequest(ANNA, HERE, 900, False)
    removal = remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=None, voter_id=2, voter_directory_id=BEN.directory_id
    )
    assert voter_changes.decode_remove(removal, NAMES) == RemoveVoterRequest(BEN)
    assert voter_changes.encode_add(AddVoterRequest(ANNA, HERE, 900, False), NAMES) == read
    assert voter_changes.decode_remove(
        voter_changes.encode_remove(RemoveVoterRequest(BEN), NAMES), NAMES
    ) == RemoveVoterRequest(BEN)
    answer = VoterChangeResponse(ErrorCode.VOTER_NOT_FOUND, 7, message="Nobody is there.")
    heard = voter_changes.decode_change_response(voter_changes.encode_add_response(answer), NAMES)
    assert (heard.error, heard.message) == (answer.error, answer.message)
    assert voter_changes.encode_add_response(answer).error_message == "Nobody is there."
    assert voter_changes.encode_remove_response(answer).error_code == ErrorCode.VOTER_NOT_FOUND


def test_a_voter_says_where_it_is() -> None:
    request = UpdateVoterRequest(7, Voter(1, ANNA.directory_id, HERE, (0, 1)))
    read = carry(
        voter_changes.encode_update(request, NAMES),
        update_raft_voter.ENCODE_REQUEST,
        update_raft_voter.DECODE_REQUEST,
        0,
    )
    assert voter_changes.decode_update(read, NAMES) == request
    response = Response(ErrorCode.NONE, 7, 1, HERE)
    read = carry(
        voter_changes.encode_update_response(response),
        update_raft_voter.ENCODE_RESPONSE,
        update_raft_voter.DECODE_RESPONSE,
        0,
    )
    assert voter_changes.decode_update_response(read, NAMES) == response


def test_a_coming_voter_is_asked_for_its_kraft_versions() -> None:
    request = voter_changes.encode_versions(KRaftVersionsRequest(), NAMES)
    carry(request, api_versions.ENCODE_REQUEST, api_versions.DECODE_REQUEST, 4)
    answer = api_versions.ApiVersionsResponse(
        supported_features=[
            api_versions.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
        ]
    )
    assert voter_changes.decode_versions(answer, NAMES).versions == (0, 1)
    empty = api_versions.ApiVersionsResponse()
    assert voter_changes.decode_versions(empty, NAMES).versions == (0, 0)


def test_every_request_that_the_machine_sends_has_a_way_out() -> None:
    sent = {
        VoteRequest,
        BeginEpochRequest,
        EndEpochRequest,
        FetchRequest,
        FetchSnapshotRequest,
        UpdateVoterRequest,
        AddVoterRequest,
        RemoveVoterRequest,
        KRaftVersionsRequest,
    }
    assert set(OUTGOING) == sent
    for way in OUTGOING.values():
        assert way.lowest_version in way.api.VERSIONS
