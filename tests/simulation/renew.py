"""`python -m tests.simulation.renew [RULE ...]` prints seeds that catch rules broken on purpose.

A change of the simulator, or of what it runs, moves what happens in a seed. The tests then look
through their other seeds, which makes them slow. This looks through more, for half a minute of
processor time a rule, and prints each seed that is cheaper than the one before: the last of them
belongs into the table. Without names: all rules of all tables, which takes long.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.node.simulator.cluster.run import run_cluster_seed
from headrace.node.simulator.quorum_nodes_run import run_nodes_seed
from headrace.node.simulator.quorum_run import run_seed
from headrace.node.simulator.world import World
from tests.simulation import broken_rules, cluster_rules, test_quorum_nodes

Rule = Callable[[pytest.MonkeyPatch], None]
Run = Callable[[int], Any]

# From 6,000 on runs of clusters have full disks and damage, from 20,000 on power cuts in the middle
# of writes (`node/simulator/cluster/character.py`).
SEEDS = (*range(3_000), *range(6_000, 9_000), *range(20_000, 21_000))
LOOK_FOR_S = 30.0
LONGEST_RUN_S = 6.0
CHEAP_S = 0.2  # no seed need be cheaper


class TooLong(BaseException):
    """A run that costs more than one that is known to catch the rule."""


@contextmanager
def run_at_most(seconds: float) -> Iterator[None]:
    end_s, at = time.process_time() + seconds, World.at

    def at_in_time(world: World, delay_ms: int, do: Callable[[], None]) -> None:
        if time.process_time() > end_s:
            raise TooLong
        at(world, delay_ms, do)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "at", at_in_time)
        yield


def cost_of_catching(run: Run, seed: int, at_most_s: float) -> float | None:
    """In processor seconds; None if the seed catches nothing within `at_most_s`."""
    began_s = time.process_time()
    try:
        with run_at_most(at_most_s):
            run(seed)
    except TooLong:
        return None
    except Exception:  # noqa: BLE001 - a checker's Violation, or the node's own
        return time.process_time() - began_s
    return None


def look(breaks: Rule, seeds: Iterable[int], run: Run) -> None:
    best_s, end_s = LONGEST_RUN_S, time.process_time() + LOOK_FOR_S
    with pytest.MonkeyPatch.context() as patch:
        breaks(patch)
        for seed in seeds:
            if best_s < CHEAP_S or time.process_time() > end_s:
                return
            cost_s = cost_of_catching(run, seed, best_s)
            if cost_s is not None:
                best_s = cost_s
                print(f"    {breaks.__name__}: {seed},  # {cost_s:.2f} s", flush=True)


def renew(caught_by: Mapping[Any, Any], run: Run, names: list[str]) -> None:
    for breaks, known in caught_by.items():
        if names and breaks.__name__ not in names:
            continue
        first = known if isinstance(known, tuple) else (known,)
        others = list(SEEDS)
        random.Random(breaks.__name__).shuffle(others)
        look(breaks, [*first, *others], run)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    run_seed(0)  # what the first run loads is no part of the cost of a seed
    run_cluster_seed(0)
    renew(broken_rules.CAUGHT_BY, run_seed, sys.argv[1:])
    renew(test_quorum_nodes.CAUGHT_BY, run_nodes_seed, sys.argv[1:])
    renew(cluster_rules.CAUGHT_BY, run_cluster_seed, sys.argv[1:])
