"""What a member notes on its disk never takes back what it has promised."""

import pytest

from headrace.node.consensus.quorum.messages import NOBODY, ReplicaKey
from headrace.node.consensus.quorum.noted_election import NotedElection
from headrace.node.consensus.quorum.quorum_log import Election
from headrace.node.simulator.memory_log import MemoryState

ONE, ANOTHER = ReplicaKey(1, b"a" * 16), ReplicaKey(2, b"b" * 16)


def noted() -> NotedElection:
    made = NotedElection(MemoryState())
    made.note(Election(5, NOBODY, ONE), promises=True)
    return made


@pytest.mark.parametrize(
    "election",
    [Election(4), Election(5, NOBODY, ANOTHER), Election(5, NOBODY, ReplicaKey(1, b"c" * 16))],
    ids=["an earlier epoch", "a second vote", "a vote for another folder"],
)
def test_a_promise_is_kept(election: Election) -> None:
    with pytest.raises(AssertionError):
        noted().note(election, promises=True)


@pytest.mark.parametrize("election", [Election(5, 2), Election(6, NOBODY, ANOTHER)])
def test_a_leader_of_the_epoch_or_a_later_vote_is_noted(election: Election) -> None:
    made = noted()
    made.note(election, promises=True)
    assert made.read() == election
