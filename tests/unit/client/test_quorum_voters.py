"""Plans for voters that are added or removed, and the changes that are refused."""

from __future__ import annotations

import pytest

from headrace.client.admin.cluster import Quorum, QuorumReplica
from headrace.client.admin.quorum_voters import plan_addition, plan_removal
from headrace.client.errors import ClientError

NOW_MS = 100_000


def member(node: int, *, silent: bool = False) -> QuorumReplica:
    return QuorumReplica(node, "d", 5, None, NOW_MS - 60_000 if silent else NOW_MS)


def quorum(*voters: QuorumReplica, observers: tuple[QuorumReplica, ...] = ()) -> Quorum:
    return Quorum(1, 1, 5, list(voters), list(observers))


def test_a_plan_names_the_voters_and_their_majority() -> None:
    plan = plan_addition(quorum(member(1), member(2), member(3), observers=(member(7),)), 7)
    assert (plan.before, plan.after, plan.majority) == ([1, 2, 3], [1, 2, 3, 7], 3)
    plan = plan_removal(quorum(member(1), member(2), member(3)), 3)
    assert (plan.after, plan.majority) == ([1, 2], 2)


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (2, "Node 2 is a voter already."),
        (9, "the nodes that do and do not vote: 7, 8. Start it as a controller"),
        (8, "does not hear of node 8"),
    ],
)
def test_only_a_member_that_follows_becomes_a_voter(node: int, sentence: str) -> None:
    found = quorum(member(1), member(2), observers=(member(7), member(8, silent=True)))
    with pytest.raises(ClientError, match=sentence):
        plan_addition(found, node)


def test_a_majority_stays() -> None:
    three = quorum(member(1), member(2), member(3, silent=True))
    with pytest.raises(ClientError, match="no majority: it does not hear of voter 3"):
        plan_removal(three, 2)
    assert plan_removal(three, 3).after == [1, 2], "the silent one may go"
    with pytest.raises(ClientError, match="Node 1 is the only voter"):
        plan_removal(quorum(member(1)), 1)
    with pytest.raises(ClientError, match="Node 4 is not a voter; the voters are 1"):
        plan_removal(quorum(member(1)), 4)
