"""The quorum's messages on Kafka's wire: the API of each message, and the module that converts it.

Requests go out in the highest version that both sides know; pre-votes need Vote v2. Not done:
members older than Kafka 4.0, which know no pre-votes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from headrace.node.consensus.quorum.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    KRaftVersionsRequest,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
)
from headrace.node.consensus.quorum.wire import (
    epoch_begin,
    epoch_end,
    fetches,
    snapshot_fetches,
    voter_changes,
    votes,
)
from headrace.node.consensus.quorum.wire.names import Names
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


@dataclass(slots=True, frozen=True)
class Outgoing:
    """How a request of ours is sent and its response read."""

    api: ModuleType  # of protocol/messages
    encode: Callable[[Any, Names], Any]
    decode_response: Callable[[Any, Names], Response]
    lowest_version: int


@dataclass(slots=True, frozen=True)
class Incoming:
    """How a request of another node is read and its response written."""

    decode: Callable[[Any, Names], Request]
    encode_response: Callable[[Any], Any]


OUTGOING: dict[type[Request], Outgoing] = {
    VoteRequest: Outgoing(vote, votes.encode_request, votes.decode_response, 2),
    BeginEpochRequest: Outgoing(
        begin_quorum_epoch, epoch_begin.encode_request, epoch_begin.decode_response, 1
    ),
    EndEpochRequest: Outgoing(
        end_quorum_epoch, epoch_end.encode_request, epoch_end.decode_response, 1
    ),
    FetchRequest: Outgoing(fetch, fetches.encode_request, fetches.decode_response, 17),
    FetchSnapshotRequest: Outgoing(
        fetch_snapshot, snapshot_fetches.encode_request, snapshot_fetches.decode_response, 1
    ),
    UpdateVoterRequest: Outgoing(
        update_raft_voter, voter_changes.encode_update, voter_changes.decode_update_response, 0
    ),
    AddVoterRequest: Outgoing(
        add_raft_voter, voter_changes.encode_add, voter_changes.decode_change_response, 1
    ),
    RemoveVoterRequest: Outgoing(
        remove_raft_voter, voter_changes.encode_remove, voter_changes.decode_change_response, 0
    ),
    KRaftVersionsRequest: Outgoing(
        api_versions, voter_changes.encode_versions, voter_changes.decode_versions, 3
    ),
}

# By the module of protocol/messages. ApiVersions is answered by every listener by itself.
INCOMING: dict[ModuleType, Incoming] = {
    vote: Incoming(votes.decode_request, votes.encode_response),
    begin_quorum_epoch: Incoming(epoch_begin.decode_request, epoch_begin.encode_response),
    end_quorum_epoch: Incoming(epoch_end.decode_request, epoch_end.encode_response),
    fetch: Incoming(fetches.decode_request, fetches.encode_response),
    fetch_snapshot: Incoming(snapshot_fetches.decode_request, snapshot_fetches.encode_response),
    add_raft_voter: Incoming(voter_changes.decode_add, voter_changes.encode_add_response),
    remove_raft_voter: Incoming(voter_changes.decode_remove, voter_changes.encode_remove_response),
    update_raft_voter: Incoming(voter_changes.decode_update, voter_changes.encode_update_response),
}
