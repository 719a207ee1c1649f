"""Whether a member grants its vote: the rules of Raft and of pre-votes (KIP-996), role by role.

A vote is given once per epoch, to a log that is at least as long as the voter's own. A pre-vote
promises nothing: it only reports that the voter does not know a living leader.
"""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import NOBODY, OffsetAndEpoch, VoteRequest
from headrace.node.consensus.quorum.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)


def grants(role: Role, request: VoteRequest, mine: OffsetAndEpoch) -> bool:
    """The request's epoch is the voter's own. `mine` is the end of the voter's log."""
    if request.pre_vote:
        return is_up_to_date(request, mine) and not hears_a_leader(role)
    match role:
        case Unattached() | Prospective():
            if role.voted is not None:
                return role.voted.covers(request.candidate)
            return role.leader_id == NOBODY and is_up_to_date(request, mine)
        case Candidate() | Follower() | Leader() | Resigned():
            return False  # it voted for itself, or the epoch has or had its leader


def is_up_to_date(request: VoteRequest, mine: OffsetAndEpoch) -> bool:
    """The later epoch wins, then the longer log: committed records are in the winner's log."""
    return (request.last_epoch, request.last_offset) >= (mine.epoch, mine.offset)


def hears_a_leader(role: Role) -> bool:
    return isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched)


def is_malformed(request: VoteRequest) -> bool:
    """Returns whether the numbers of a request contradict each other: a candidate's log cannot hold
    records of the epoch that it wants to lead."""
    highest = request.epoch if request.pre_vote else request.epoch - 1
    return (
        request.candidate.id < 0
        or request.last_offset < 0
        or not 0 <= request.last_epoch <= highest
    )
