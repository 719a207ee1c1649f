"""Relays in a world of troubles: none lost, none doubled, the order of each key kept.

And the ways of reading an outbox that people write first: the same checks find what they lose.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.effort import IS_FULL
from tests.unit.services.outbox.world import Flaws, World

STEPS = 1500
SEEDS = range(12) if IS_FULL else range(6)


@cache
def world_of(seed: int, *, blocks: bool) -> World:
    """After all its steps; tests that share it look and change nothing."""
    world = World(seed, blocks=blocks)
    world.run(STEPS)
    return world


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_each_row_arrives_once_and_in_order(seed: int, blocks: bool) -> None:
    world = world_of(seed, blocks=blocks)
    assert world.halted == []
    assert len(world.cluster.log) > 5, "something was sent at all"
    assert (world.lost(), world.doubled(), world.swapped()) == ([], [], [])


def test_rows_that_cannot_be_sent_are_parked_and_only_those() -> None:
    parked = 0
    for seed in SEEDS:
        world = world_of(seed, blocks=False)
        for row, state, _ in world.database.parked.values():
            assert (row.topic, state) in {("refused", "poison"), ("not a topic", "poison")}
            parked += 1
    assert parked > 10


def test_with_waiting_nothing_of_a_key_passes_its_parked_row() -> None:
    waited = 0
    for seed in SEEDS:
        world = world_of(seed, blocks=True)
        first = {}
        for id_, (row, _, _) in sorted(world.database.parked.items()):
            first.setdefault(row.key, id_)
        sent = [(row.key, row.id) for row in world.cluster.log]
        assert all(id_ < first.get(key, id_ + 1) for key, id_ in sent)
        waited += sum(1 for _, state, _ in world.database.parked.values() if state == "waiting")
    assert waited > 10


def test_parked_rows_that_a_person_sends_again_go_before_those_that_wait() -> None:
    for seed in SEEDS[:10]:
        world = World(seed, blocks=True)
        world.run(STEPS)
        for id_, (row, state, reason) in list(world.database.parked.items()):
            row.topic = "transfers"  # the fault was mended
            world.database.parked[id_] = (row, "retry" if state == "poison" else state, reason)
        world.until_idle()
        assert world.database.parked == {}
        assert (world.lost(), world.doubled(), world.swapped()) == ([], [], [])


@pytest.mark.parametrize(
    "flaws",
    [
        Flaws(naive_horizon=True),
        Flaws(no_fencing=True),
        Flaws(keep_looked_to=True),
        Flaws(position_apart=True),
        Flaws(last_id_ahead=True),
    ],
    ids=lambda flaws: next(name for name, on in vars(flaws).items() if on),
)
def test_without_one_of_the_mechanisms_the_checks_find_what_is_lost(flaws: Flaws) -> None:
    for seed in range(25):
        world = World(seed, flaws)
        try:
            world.run(STEPS)
        except AssertionError:
            return  # the machine itself noticed
        if world.lost() or world.doubled() or world.swapped():
            return
    pytest.fail("nobody noticed")
