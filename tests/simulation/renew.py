"""`python -m tests.simulation.renew` prints the tables of broken rules with seeds that catch them.

A change of the simulator, or of what it runs, moves what happens in a seed. The tests then look for
another seed that catches the rule, and are slow; with the tables renewed they need one seed each.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from headrace.simulator.cluster.run import run_cluster_seed
from headrace.simulator.quorum_nodes_run import run_nodes_seed
from headrace.simulator.quorum_run import run_seed
from tests.simulation import broken_rules, cluster_rules, test_clusters, test_quorum_nodes
from tests.simulation.test_seeds import FIXED_SEEDS, MORE_SEEDS

Rule = Callable[[pytest.MonkeyPatch], None]


def first_to_catch(breaks: Rule, seeds: Iterable[int], run: Callable[[int], Any]) -> int | None:
    """None if no seed sees that the rule is broken."""
    with pytest.MonkeyPatch.context() as patch:
        breaks(patch)
        for seed in seeds:
            try:
                run(seed)
            except Exception:  # noqa: BLE001 - a checker's Violation, or the node's own
                return seed
    return None


def renew(caught_by: Mapping[Any, int], seeds: Iterable[int], run: Callable[[int], Any]) -> None:
    for breaks, named in caught_by.items():
        began = time.process_time()
        found = first_to_catch(breaks, [named, *seeds], run)
        spent = time.process_time() - began
        print(f"    {breaks.__name__}: {found},  # was {named}; {spent:.1f} s", flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    renew(broken_rules.CAUGHT_BY, [*FIXED_SEEDS, *MORE_SEEDS], run_seed)
    renew(test_quorum_nodes.CAUGHT_BY, test_quorum_nodes.FIXED_SEEDS, run_nodes_seed)
    seeds = [*test_clusters.FIXED_SEEDS, *test_clusters.MORE_SEEDS]
    renew(cluster_rules.CAUGHT_BY, seeds, run_cluster_seed)
