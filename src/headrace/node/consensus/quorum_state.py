"""`quorum-state`: the epoch of this voter, its vote, and the leader.

JSON as Apache writes it, in its order of fields, without a line end. Version 1 belongs to quorums
whose voters are in the log (kraft.version 1); version 0, with static voters, is read and kept as 0.
Written before a vote or an epoch counts: a voter that forgets either could elect two leaders.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headrace.environment import Disk
from headrace.wire.protocol.uuids import ZERO_ID, from_text, to_text

FILE_NAME = "quorum-state"
NOBODY = -1
MOST = 0x7FFF_FFFF  # ids and epochs are int32


class BadQuorumState(Exception):
    """The file is there, but it is not one that Kafka would write."""


@dataclass(slots=True)
class QuorumState:
    leader_id: int = NOBODY
    leader_epoch: int = 0
    voted_id: int = NOBODY
    voted_directory_id: bytes = ZERO_ID
    data_version: int = 1
    static_voters: tuple[int, ...] = ()  # version 0 only


def read_quorum_state(disk: Disk, folder: str) -> QuorumState | None:
    """None if this voter has never been in an epoch."""
    path = f"{folder}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    text = disk.read_file(path)
    try:
        fields = json.loads(text)
        version = fields["data_version"]
        if version not in (0, 1):
            raise BadQuorumState(f"{path} has version {version}; 0 and 1 are understood")
        voters = (fields["currentVoters"] or ()) if version == 0 else ()
        return QuorumState(
            leader_id=_number(fields, "leaderId", NOBODY),
            leader_epoch=_number(fields, "leaderEpoch", 0),
            voted_id=_number(fields, "votedId", NOBODY),
            voted_directory_id=from_text(fields["votedDirectoryId"]) if version == 1 else ZERO_ID,
            data_version=version,
            static_voters=tuple(_number(voter, "voterId", 0) for voter in voters),
        )
    except KeyError as missing:
        raise BadQuorumState(f"{path} is damaged: it has no field {missing}") from missing
    except (ValueError, TypeError) as error:
        raise BadQuorumState(f"{path} is damaged: {error}") from error


def _number(fields: Any, name: str, least: int) -> int:
    number = fields[name]
    if type(number) is not int or not least <= number <= MOST:
        raise ValueError(f"{name} is {number!r}")
    return number


def write_quorum_state(disk: Disk, folder: str, state: QuorumState) -> None:
    assert 0 <= state.leader_epoch <= MOST, "what is written can be read"
    disk.write_file(f"{folder}/{FILE_NAME}", [encode_quorum_state(state)])


def encode_quorum_state(state: QuorumState) -> bytes:
    fields: dict[str, object]
    if state.data_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in state.static_voters],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": to_text(state.voted_directory_id),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode()
