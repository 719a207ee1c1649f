"""Fixed seeds of whole clusters under faults, and rules broken on purpose that they must catch."""

# ruff: noqa: T201  what happened in a run is shown with a failure, and with -s

from __future__ import annotations

import pytest

from headrace.simulator.cluster_run import ClusterReport, run_cluster_seed
from tests.unit.replication.broken_rules import (
    Rule,
    acknowledge_before_replication,
    high_watermark_of_the_leader_alone,
    no_truncation,
)

FIXED_SEEDS = range(4)
# The world of replicas alone (tests/unit/replication) breaks all of the rules, for less time.
CAUGHT_BY: dict[Rule, int] = {
    acknowledge_before_replication: 0,
    high_watermark_of_the_leader_alone: 0,
    no_truncation: 0,
}


@pytest.mark.timeout(600)  # 15 s of processor time
def test_nothing_acknowledged_is_lost_and_every_trouble_happened() -> None:
    reports: list[ClusterReport] = []
    for seed in FIXED_SEEDS:
        try:
            reports.append(run_cluster_seed(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed} of whole clusters") from error
        print(seed, reports[-1])
    for name in ("acknowledged", "read", "kills", "stops", "cuts", "leader_changes"):
        assert sum(getattr(report, name) for report in reports), f"{name} never happened"
    assert sum(report.controller_changes for report in reports), "one controller all the time"


def test_a_seed_gives_the_same_run_every_time() -> None:
    assert run_cluster_seed(1) == run_cluster_seed(1)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("breaks", CAUGHT_BY, ids=lambda breaks: breaks.__name__)
def test_a_broken_rule_is_caught(breaks: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch)
    for seed in [CAUGHT_BY[breaks], *FIXED_SEEDS]:
        try:
            run_cluster_seed(seed)
        except Exception as error:  # noqa: BLE001 - a checker's Violation, or the node's own
            print(f"seed {seed}: {type(error).__name__}: {error}")
            return
    raise AssertionError("no fixed seed sees that this rule is broken")
