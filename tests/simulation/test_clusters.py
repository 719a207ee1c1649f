"""Fixed seeds of whole clusters under faults, and rules broken on purpose that they must catch."""

# ruff: noqa: T201  what happened in a run is shown with a failure, and with -s

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.simulator.cluster.report import ClusterReport
from headrace.simulator.cluster.run import run_beyond_the_promise, run_cluster_seed
from tests.simulation.cluster_rules import CAUGHT_BY, Rule

# Short ones that see every trouble: 11 has a group that commits seldom, 12 a controller that joins;
# in 16 and 18 data folders break or are replaced, and replicas move between them. 18 and 245 saw,
# as they were drawn before, a coordinator that was cut off tell old offsets: a broken rule now.
FIXED_SEEDS = (1, 2, 8, 11, 12, 16, 18, 19, 30)
MORE_SEEDS = sorted({*range(19), 245} - {*FIXED_SEEDS})


@pytest.mark.timeout(1800)  # 18 s of processor time, on a machine with little of it to spare
def test_nothing_promised_is_broken_and_every_trouble_happened() -> None:
    total = run_all(FIXED_SEEDS)
    print(total)
    assert total.zeros() == [], "what never happened was not tested"


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_more_seeds_break_nothing() -> None:
    print(run_all(MORE_SEEDS))


def run_all(seeds: Iterable[int]) -> ClusterReport:
    total = ClusterReport()
    for seed in seeds:
        try:
            total.add(run_cluster_seed(seed))
        except Exception as error:
            again = f"python -m headrace.simulator --only clusters --seed {seed}"
            raise AssertionError(f"seed {seed}: `{again}` runs it again") from error
    return total


def test_a_seed_gives_the_same_run_every_time() -> None:
    assert run_cluster_seed(19) == run_cluster_seed(19)


def test_beyond_the_promise_acknowledged_records_are_lost() -> None:
    """All machines lose their page caches at once: nothing else shows that the checkers look."""
    assert any(run_beyond_the_promise(seed).lost_records for seed in range(3))


@pytest.mark.parametrize("breaks", CAUGHT_BY, ids=lambda breaks: breaks.__name__)
def test_a_broken_rule_is_caught(breaks: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the seed that the table names or, after the simulator was changed, by another."""
    breaks(monkeypatch)
    for seed in [CAUGHT_BY[breaks], *FIXED_SEEDS, *MORE_SEEDS]:
        try:
            run_cluster_seed(seed)
        except Exception as error:  # noqa: BLE001 - a checker's Violation, or the node's own
            print(f"seed {seed}: {type(error).__name__}: {error}")
            return
    raise AssertionError("no fixed seed sees that this rule is broken")
