"""The simulated network: what is cut, lost and doubled, and in which order things arrive."""

from __future__ import annotations

from functools import partial

from headrace.node.simulator.counters import Counters
from headrace.node.simulator.network import Network
from headrace.node.simulator.world import World


def network(seed: int = 1) -> tuple[World, Network, Counters]:
    world, counters = World(seed), Counters()
    return world, Network(world, counters), counters


def test_events_run_by_their_time_and_then_by_their_order() -> None:
    world = World(1)
    seen: list[str] = []

    def note(name: str) -> None:
        seen.append(f"{name} {world.now_ms}")

    for name, delay_ms in (("late", 5), ("first", 1), ("second", 1)):
        world.at(delay_ms, partial(note, name))
    world.run(4)
    assert seen == ["first 1", "second 1"] and world.now_ms == 4
    world.run(4)
    assert seen[2:] == ["late 5"] and world.now_ms == 8


def test_a_cut_has_a_direction() -> None:
    world, net, counters = network()
    seen: list[str] = []
    net.cut(1, 2)
    net.carry(1, 2, lambda: seen.append("there"))
    net.carry(2, 1, lambda: seen.append("back"))
    world.run(10)
    assert seen == ["back"] and counters.lost_messages == 1
    net.heal()
    net.carry(1, 2, lambda: seen.append("there"))
    world.run(10)
    assert seen == ["back", "there"]


def test_a_node_may_hear_and_not_be_heard() -> None:
    world, net, _ = network()
    seen: list[str] = []
    net.isolate(1, (1, 2, 3), sends=False, hears=True)
    for source, target in ((1, 2), (1, 3), (2, 1), (3, 1), (2, 3)):
        net.carry(source, target, partial(seen.append, f"{source}{target}"))
    world.run(10)
    assert sorted(seen) == ["21", "23", "31"]


def test_messages_are_lost_doubled_and_overtake_each_other() -> None:
    world, net, counters = network()
    net.loss, net.duplication, net.delays_ms = 0.3, 0.3, (1, 50)
    seen: list[int] = []
    for number in range(100):
        net.carry(1, 2, partial(seen.append, number))
    world.run(2_000)
    assert len(set(seen)) == 100 - counters.lost_messages < 100
    assert len(seen) - len(set(seen)) == counters.duplicated_messages > 0
    assert seen != sorted(seen)
    net.calm()
    seen.clear()
    net.carry(1, 2, lambda: seen.append(0))
    world.run(2)
    assert seen == [0]


def test_counters_say_what_never_happened() -> None:
    total = Counters(elections=2) + Counters(elections=1, crashes=4)
    assert (total.elections, total.crashes) == (3, 4)
    assert "truncations" in total.zeros() and "elections" not in total.zeros()
    assert "elections 3" in str(total)
