"""The voters of the quorum.

The set of voters is in the log itself (kraft.version 1, KIP-853): a VotersRecord takes effect when
it is written, and the latest one wins. In a quorum of kraft.version 0 the voters are configured and
no record names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.wire.protocol.messages.kraft_version_record import KRaftVersionRecord
from headrace.wire.protocol.messages.leader_change_message import LeaderChangeMessage
from headrace.wire.protocol.messages.leader_change_message import Voter as LeaderChangeVoter
from headrace.wire.protocol.messages.voters_record import (
    Endpoint,
    KRaftVersionFeature,
    VotersRecord,
)
from headrace.wire.protocol.messages.voters_record import Voter as VoterInRecord
from headrace.wire.protocol.primitives import ZERO_ID

KRAFT_VERSIONS = (0, 1)  # what a voter of ours understands


class VoterEndpoint(NamedTuple):
    listener: str
    host: str
    port: int


@dataclass(slots=True, frozen=True)
class Voter:
    id: int
    directory_id: bytes = (
        ZERO_ID  # tells a voter from its successor with the same id and a new disk
    )
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = KRAFT_VERSIONS


def voters_record(voters: tuple[Voter, ...]) -> VotersRecord:
    return VotersRecord(
        version=0,
        voters=[
            VoterInRecord(
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                endpoints=[
                    Endpoint(name=point.listener, host=point.host, port=point.port)
                    for point in voter.endpoints
                ],
                kraft_version_feature=KRaftVersionFeature(
                    min_supported_version=voter.kraft_versions[0],
                    max_supported_version=voter.kraft_versions[1],
                ),
            )
            for voter in voters
        ],
    )


def voters_in(record: VotersRecord) -> tuple[Voter, ...]:
    return tuple(
        Voter(
            id=voter.voter_id,
            directory_id=voter.voter_directory_id,
            endpoints=tuple(VoterEndpoint(e.name, e.host, e.port) for e in voter.endpoints),
            kraft_versions=(
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            ),
        )
        for voter in record.voters
    )


def kraft_version_record(version: int) -> KRaftVersionRecord:
    return KRaftVersionRecord(version=0, kraft_version=version)


def leader_change(
    leader_id: int, voters: tuple[Voter, ...], granting: Sequence[int] | None = None
) -> LeaderChangeMessage:
    """Returns the first record of a leader's epoch: the leader and the voters that granted their
    vote."""
    return LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=voter.id) for voter in voters],
        granting_voters=[LeaderChangeVoter(voter_id=voter) for voter in granting or (leader_id,)],
    )
