"""`python -m tests.unit.node.replication.seeds_that_bite 60`: which seeds notice which broken rule.

For whoever changes the world or the rules and must choose the seeds of `test_seeds.py` anew.
"""

from __future__ import annotations

import logging
import sys

import pytest

from tests.unit.node.replication.broken_rules import BROKEN, Rule
from tests.unit.node.replication.checkers import Violation
from tests.unit.node.replication.world import World


def notices(seed: int, rule: Rule) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        rule(patch)
        try:
            World(seed).run()
        except Violation:
            return True
    return False


def main(seeds: int) -> None:
    logging.disable(logging.CRITICAL)
    for rule in BROKEN:
        found = [seed for seed in range(seeds) if notices(seed, rule)]
        sys.stdout.write(f"{rule.__name__}: {found}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
