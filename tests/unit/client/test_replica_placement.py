"""Which brokers get more replicas, and how a cluster is judged by where they are."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.client.admin.cluster import Quorum, QuorumReplica
from headrace.client.admin.cluster_status import judge
from headrace.client.admin.placement.broker_removal import removal_of
from headrace.client.admin.placement.replica_placement import more_replicas
from headrace.client.admin.placement.replicas import PartitionReplicas
from headrace.client.errors import ClientError
from headrace.client.records import TopicPartition
from headrace.wire.protocol.messages.describe_cluster import DescribeClusterBroker


def partition(number: int, *replicas: int, isr: tuple[int, ...] | None = None) -> PartitionReplicas:
    in_sync = list(replicas if isr is None else isr)
    leader = in_sync[0] if in_sync else None
    return PartitionReplicas(TopicPartition("t", number), leader, list(replicas), in_sync)


def place(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def test_the_preferred_leader_stays_and_replicas_spread_evenly() -> None:
    partitions = [partition(number, number % 3 + 1) for number in range(6)]
    moves = more_replicas(partitions, {1: None, 2: None, 3: None}, 2)
    assert [moves[place(number)][0] for number in range(6)] == [1, 2, 3, 1, 2, 3]
    held = Counter(broker for replicas in moves.values() for broker in replicas)
    assert set(held.values()) == {4}


def test_a_broker_that_had_all_does_not_lead_all_for_ever() -> None:
    partitions = [partition(number, 1) for number in range(9)]
    moves = more_replicas(partitions, {1: None, 2: None, 3: None}, 3)
    assert Counter(replicas[0] for replicas in moves.values()) == {1: 3, 2: 3, 3: 3}
    assert all(sorted(replicas) == [1, 2, 3] for replicas in moves.values())


def test_a_rack_without_a_replica_comes_first() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    moves = more_replicas([partition(n, 1) for n in range(4)], racks, 2)
    assert {frozenset(each) for each in moves.values()} == {frozenset({1, 3})}, "not 2"


def test_what_has_enough_is_left_alone() -> None:
    partitions = [partition(0, 1, 2, 3), partition(1, 1)]
    assert more_replicas(partitions, {1: None, 2: None, 3: None}, 2) == {place(1): [2, 1]}


def test_there_must_be_brokers_for_all_replicas() -> None:
    with pytest.raises(ClientError, match="Only 2 brokers are alive: 3 replicas have no room."):
        more_replicas([partition(0, 1)], {1: None, 2: None}, 3)


def broker(number: int, *, fenced: bool = False) -> DescribeClusterBroker:
    return DescribeClusterBroker(number, "host", 9091 + number, None, fenced)


def test_a_cluster_with_a_dead_broker() -> None:
    voters = [QuorumReplica(n, "d", end, None) for n, end in ((1, 100), (2, 100), (3, 40))]
    status = judge(
        "c",
        [broker(1), broker(2), broker(3, fenced=True)],
        Quorum(1, 7, 100, voters, []),
        [
            partition(0, 1, 2, 3, isr=(1, 2)),
            partition(1, 3, 1, isr=(1,)),
            partition(2, 3, isr=()),
            partition(3, 2),
        ],
        {"t": 2},
        [place(1)],
    )
    assert not status.is_well
    assert status.offline == [place(2)]
    assert status.under_min_isr == [place(1), place(2)]
    assert status.under_replicated == [place(0), place(1), place(2)]
    assert status.single_replica == [place(2), place(3)], "min ISR 2 asks one replica for one"
    assert status.not_preferred == [place(1)]
    first, _, third = status.nodes
    assert (first.leads, first.replicas, first.roles) == (2, 2, ["broker", "controller"])
    assert third.fenced and third.metadata_lag == 60
    assert status.leader_skew_percent == 33, "2 of 3 where 1.5 are a share"


def test_a_controller_that_is_no_broker_is_a_node_too() -> None:
    quorum = Quorum(9, 1, 5, [QuorumReplica(9, "d", 5, None)], [QuorumReplica(1, "e", 5, None)])
    status = judge("c", [broker(1)], quorum, [], {})
    assert [(node.id, node.roles, node.address) for node in status.nodes] == [
        (1, ["broker"], "host:9092"),
        (9, ["controller"], None),
    ]
    assert status.is_well and status.leader_skew_percent == 0


def test_a_controller_that_the_leader_does_not_hear_is_silent() -> None:
    heard = (100_000, 99_800, 80_000, None)
    voters = [
        QuorumReplica(n, "d", 5, None, at_ms) for n, at_ms in zip((7, 8, 9, 1), heard, strict=True)
    ]
    status = judge("c", [broker(1)], Quorum(7, 1, 5, voters, []), [], {})
    assert [node.id for node in status.nodes if node.silent] == [9], "brokers are fenced instead"
    assert not status.is_well
    for voter in voters:
        voter.fetched_at_ms = None
    assert judge("c", [broker(1)], Quorum(7, 1, 5, voters, []), [], {}).is_well, "it does not tell"


def test_an_observer_that_has_ended_is_silent_and_not_missed() -> None:
    voter = QuorumReplica(1, "d", 5, None, 100_000)
    observers = [QuorumReplica(n, "e", 5, None, at_ms) for n, at_ms in ((2, 99_900), (3, 80_000))]
    status = judge("c", [broker(1)], Quorum(1, 1, 5, [voter], observers), [], {})
    assert [(node.id, node.roles, node.silent) for node in status.nodes] == [
        (1, ["broker", "controller"], False),
        (2, [], False),
        (3, [], True),
    ]
    assert status.is_well, "it was unregistered, and no controller is missing"


def test_the_removal_of_a_voter_names_no_cluster() -> None:
    """Controllers refuse the empty id, the default of the message, as that of another cluster."""
    request = removal_of(QuorumReplica(3, "AAAAAAAAAAAAAAAAAAAAAw", 5, None))
    assert request.cluster_id is None
    assert (request.voter_id, request.voter_directory_id) == (3, bytes(15) + b"\x03")
