"""Who gets a vote: every role, with and without a vote given before, for votes and pre-votes."""

from __future__ import annotations

import pytest

from headrace.node.consensus.quorum.messages import OffsetAndEpoch, ReplicaKey, VoteRequest
from headrace.node.consensus.quorum.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    Votes,
)
from headrace.node.consensus.quorum.vote_rules import grants, is_malformed

ANNA, BEN = ReplicaKey(1, b"a" * 16), ReplicaKey(2, b"b" * 16)
MINE = OffsetAndEpoch(offset=10, epoch=3)
NO_VOTES = Votes(())


def request(
    *,
    pre_vote: bool = False,
    last_offset: int = 10,
    last_epoch: int = 3,
    candidate: ReplicaKey = ANNA,
) -> VoteRequest:
    return VoteRequest(7, candidate, last_epoch, last_offset, pre_vote, None)


ROLES: dict[str, tuple[Role, bool, bool]] = {  # role, grants a vote, grants a pre-vote
    "knows nobody": (Unattached(0), True, True),
    "voted for her": (Unattached(0, ANNA), True, True),
    "voted for him": (Unattached(0, BEN), False, True),
    "knows who leads": (Unattached(0, None, 3), False, True),
    "stands itself": (Prospective(NO_VOTES, 0), True, True),
    "stands and voted": (Prospective(NO_VOTES, 0, BEN), False, True),
    "doubts its leader": (Prospective(NO_VOTES, 0, None, 3), False, True),
    "is a candidate": (Candidate(NO_VOTES, 0), False, True),
    "has just found its leader": (Follower(3, (), 0, 0), False, True),
    "hears its leader": (Follower(3, (), 0, 0, has_fetched=True), False, False),
    "leads": (Leader(0, set(), 0, 0), False, False),
    "has resigned": (Resigned(0, (), set()), False, True),
}


@pytest.mark.parametrize("name", ROLES)
def test_a_role_grants(name: str) -> None:
    role, vote, pre_vote = ROLES[name]
    assert grants(role, request(), MINE) is vote
    assert grants(role, request(pre_vote=True), MINE) is pre_vote


@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_log_that_is_behind_gets_no_vote(pre_vote: bool) -> None:
    nobody = Unattached(0)
    assert not grants(nobody, request(pre_vote=pre_vote, last_offset=9), MINE)
    assert not grants(nobody, request(pre_vote=pre_vote, last_offset=99, last_epoch=2), MINE)
    assert grants(nobody, request(pre_vote=pre_vote, last_offset=5, last_epoch=4), MINE)


def test_a_vote_is_for_a_replica_and_not_for_its_successor_with_a_new_disk() -> None:
    assert not grants(Unattached(0, ANNA), request(candidate=ReplicaKey(1, b"x" * 16)), MINE)


def test_a_candidate_cannot_have_records_of_the_epoch_it_stands_for() -> None:
    assert is_malformed(request(last_epoch=7))
    assert not is_malformed(request(last_epoch=7, pre_vote=True))
    assert is_malformed(request(last_epoch=8, pre_vote=True))
    assert is_malformed(request(last_offset=-1))
    assert is_malformed(request(candidate=ReplicaKey(-1)))
