"""Fixed seeds of the world: the rules of replication hold, and each broken one is noticed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.effort import IS_FULL
from tests.unit.node.replication.broken_rules import BROKEN, Rule, leaders_from_all_replicas
from tests.unit.node.replication.checkers import Violation
from tests.unit.node.replication.world import BROKERS, PARTITIONS, World

# Few, as they run with every change; together they notice every broken rule (`seeds_that_bite.py`).
SEEDS = (1, 2, 8, 23, 286)
IN_FULL = (4, 5, 7, 12, 28)
# Of the seeds that notice a broken rule, the one that does so soonest.
NOTICED_BY = {
    "acknowledge_before_replication": 286,
    "high_watermark_of_the_leader_alone": 1,
    "high_watermark_without_who_joins": 286,
    "high_watermark_below_the_minimum": 1,
    "leave_before_the_controller_agrees": 2,
    "no_truncation": 8,
    "truncation_to_the_high_watermark": 23,
    "join_below_the_epochs_start": 2,
    "join_without_broker_epochs": 2,
    "stale_proposals_count": 8,
    "unclean_elections": 2,
    "leaders_from_all_replicas": 2,
    "unclean_stops_are_trusted": 2,
    "success_after_the_leadership_is_lost": 8,
    "followers_have_what_they_were_sent": 23,
}
# A set of seeds in which one of these never happens proves nothing.
MUST_HAPPEN = (
    "elections",
    "truncations",
    "ISR changes",
    "records acknowledged",
    "crashes with unflushed bytes",
    "disks lost",
    "messages lost",
    "brokers fenced",
    "clean stops",
    "pauses",
)


def test_nothing_acknowledged_is_lost_whatever_happens_to_one_broker_at_a_time() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS + (IN_FULL if IS_FULL else ()):
        try:
            counts += World(seed).run()
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}")
    assert [what for what in MUST_HAPPEN if not counts[what]] == []


def test_where_only_the_disk_counts_the_same_holds() -> None:
    World(SEEDS[0], durable=True).run()


def test_the_replication_factor_of_a_topic_in_use_is_raised() -> None:
    """From one replica, which commits alone, to three; one of the new ones is killed meanwhile."""
    world = World(3)
    world.weather.run(1_000)
    world.controller.create_topic(PARTITIONS, replicas=1)
    world.begin()
    world.weather.run(3_000)
    acknowledged = world.weather.counts["records acknowledged"]
    assert acknowledged > 50
    before = [partition.replicas for partition in world.controller.partitions()]
    world.controller.reassign([[*owner, *(set(BROKERS) - set(owner))] for owner in before])
    assert all(len(partition.adding_replicas) == 2 for partition in world.controller.partitions())
    world.weather.run(3_060)
    world.crash(3, loses=True)
    world.weather.run(20_000)
    assert [len(partition.replicas) for partition in world.controller.partitions()] == [3, 3]
    assert not any(partition.adding_replicas for partition in world.controller.partitions())
    assert world.weather.counts["records acknowledged"] > 2 * acknowledged
    world.check()


def test_a_seed_gives_the_same_run_each_time() -> None:
    assert World(3).run() == World(3).run()


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.__name__)
def test_a_broken_rule_is_noticed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = NOTICED_BY[rule.__name__]
    assert seed in SEEDS, "each of them is noticed where nothing is broken on purpose"
    rule(monkeypatch)
    # A leader that is not in sync is noticed where it is elected.
    by = AssertionError if rule is leaders_from_all_replicas else Violation
    with pytest.raises(by):
        World(seed).run()
