"""For what moves of replicas wait, and when the command says so."""

from __future__ import annotations

from headrace.cli.cluster.replica_moves import SAY_WHY_AFTER_S, Patience, reasons_to_wait
from headrace.client.admin.placement.replicas import PartitionReplicas
from headrace.client.records import TopicPartition


def test_moves_that_stand_still_say_for_what_they_wait() -> None:
    places = [TopicPartition("t", number) for number in range(7)]
    partitions = [
        PartitionReplicas(places[0], None, [2, 3], []),
        *(PartitionReplicas(place, 1, [1, 2, 3], [1, 2]) for place in places[1:5]),
        PartitionReplicas(places[5], 1, [1, 3], [1, 3]),
        PartitionReplicas(places[6], None, [1], []),
    ]
    assert reasons_to_wait(partitions, {place: [3] for place in places[:6]}) == [
        "1 partition waits (t-5): the controller has not ended them yet.",
        "4 partitions wait (t-1, t-2, t-3, ...): the new replicas of broker 3 are not in sync yet.",
        "1 partition waits (t-0): they have no leader: start one of the brokers 2, 3.",
    ]


def test_the_reason_is_said_again_and_again_while_nothing_ends() -> None:
    patience = Patience(0.0)
    assert not patience.is_over(5, 0.0)
    assert not patience.is_over(5, SAY_WHY_AFTER_S - 1)
    assert patience.is_over(5, SAY_WHY_AFTER_S)
    assert not patience.is_over(5, SAY_WHY_AFTER_S + 1)
    assert not patience.is_over(4, 2 * SAY_WHY_AFTER_S), "one has ended"
    assert patience.is_over(4, 3 * SAY_WHY_AFTER_S)
    assert not patience.is_over(0, 9 * SAY_WHY_AFTER_S), "nothing is left"
