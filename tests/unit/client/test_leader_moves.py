"""Leaders that leave a broker, and come back: only the order of replicas changes."""

from __future__ import annotations

from headrace.client.admin.placement.leader_moves import leaders_away, leaders_back, led_alone
from headrace.client.admin.placement.replicas import PartitionReplicas
from headrace.client.records import TopicPartition


def partition(
    number: int, replicas: list[int], *, isr: list[int] | None = None, leader: int | None = None
) -> PartitionReplicas:
    in_sync = replicas if isr is None else isr
    place = TopicPartition("orders", number)
    return PartitionReplicas(place, leader or replicas[0], replicas, in_sync)


def orders(moves: dict[TopicPartition, list[int]]) -> dict[int, list[int]]:
    return {place.partition: replicas for place, replicas in moves.items()}


def test_leaders_go_to_those_that_have_few() -> None:
    there = [
        partition(0, [2, 1, 3]),
        partition(1, [2, 1, 3]),
        partition(2, [1, 2, 3]),
        partition(3, [3, 1, 2], leader=2),  # it leads for a moment only
        partition(4, [1, 3, 2]),
    ]
    found = orders(leaders_away(2, there, {1, 2, 3}))
    assert found == {0: [3, 1, 2], 1: [1, 3, 2], 3: [3, 1, 2]}


def test_only_a_replica_in_sync_of_a_living_broker_takes_over() -> None:
    there = [
        partition(0, [2, 1, 3], isr=[2, 3]),
        partition(1, [2, 1], isr=[2]),
        partition(2, [2]),
        partition(3, [2, 4, 3]),
    ]
    assert orders(leaders_away(2, there, {1, 2, 3})) == {0: [3, 1, 2], 3: [3, 4, 2]}
    assert [place.partition for place in led_alone(2, there)] == [1, 2]


def test_a_broker_gets_its_share_back() -> None:
    away = [partition(n, [1 if n % 2 else 3, 1 if not n % 2 else 3, 2]) for n in range(6)]
    found = leaders_back(2, away, {1, 2, 3})
    assert orders(found) == {5: [2, 1, 3], 4: [2, 3, 1]}
    behind = [partition(n, [1, 2], isr=[1]) for n in range(6)]
    assert leaders_back(2, behind, {1, 2}) == {}, "what is not in sync leads nothing"


def test_a_broker_that_has_its_share_gets_no_more() -> None:
    even = [partition(n, [n % 3 + 1, (n + 1) % 3 + 1, (n + 2) % 3 + 1]) for n in range(6)]
    assert leaders_back(2, even, {1, 2, 3}) == {}
