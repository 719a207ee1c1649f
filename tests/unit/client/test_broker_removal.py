"""Who gets the replicas of a broker that leaves."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.client.admin.placement.broker_removal import replicas_without
from headrace.client.errors import ClientError
from tests.unit.client.test_replica_placement import partition, place

BROKERS: dict[int, str | None] = {1: None, 2: None, 3: None, 4: None}


def test_each_replica_is_replaced_in_its_place_and_evenly() -> None:
    partitions = [partition(0, 4, 1), partition(1, 2, 4), partition(2, 1, 2)]
    moves = replicas_without(4, partitions, BROKERS)
    assert moves[place(0)][1] == 1 and moves[place(1)][0] == 2 and place(2) not in moves
    held = Counter(broker for each in partitions for broker in moves.get(each.place, each.replicas))
    assert 4 not in held and max(held.values()) - min(held.values()) <= 1


def test_a_rack_of_its_own_stays_one_if_it_can() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert replicas_without(4, [partition(0, 1, 4)], racks) == {place(0): [1, 3]}


def test_fewer_replicas_only_if_they_are_allowed() -> None:
    partitions = [partition(0, 1, 2, 3)]
    racks = {1: None, 2: None, 3: None}
    with pytest.raises(ClientError, match="--fewer-replicas to let it have 2"):
        replicas_without(3, partitions, racks)
    assert replicas_without(3, partitions, racks, fewer_replicas=True) == {place(0): [1, 2]}


def test_the_last_replica_never_goes() -> None:
    with pytest.raises(ClientError, match="only replica"):
        replicas_without(1, [partition(0, 1)], {1: None}, fewer_replicas=True)


def test_a_broker_that_is_away_gets_nothing() -> None:
    """Only those that are alive are named with their racks."""
    assert replicas_without(4, [partition(0, 4)], {1: None, 2: None}) == {place(0): [1]}
