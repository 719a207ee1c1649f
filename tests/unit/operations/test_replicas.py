"""Replicas of all partitions, counted from the metadata of one broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.operations.replicas import replica_facts


def partition(leader: int, replicas: list[int], in_sync: list[int]) -> Any:
    return SimpleNamespace(leader=leader, replicas=replicas, isrs=in_sync)


def test_partitions_are_counted_by_broker_and_by_trouble() -> None:
    partitions = {
        0: partition(1, [1, 2], [1, 2]),
        1: partition(2, [2, 1], [2]),
        2: partition(3, [3], [3]),  # broker 3 is not among those that are up
    }
    cluster = SimpleNamespace(
        brokers={1: None, 2: None}, topics={"orders": SimpleNamespace(partitions=partitions)}
    )
    topics: Any = SimpleNamespace(cluster=cluster)
    found = replica_facts(topics)
    assert (found.partitions, found.under_replicated, found.without_leader) == (3, 1, 1)
    assert dict(found.leads) == {1: 1, 2: 1} and found.holds[1] == 2
    assert [(each.partition, each.leader) for each in found.troubled] == [(1, 2), (2, None)]
