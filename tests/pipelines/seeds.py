"""Which seeds a test runs: the few that run always, or those that the environment names."""

from __future__ import annotations

import os

FIRST, COUNT = "PIPELINE_SEED", "PIPELINE_SEEDS"


def seeds(*fixed: int) -> tuple[int, ...]:
    """`PIPELINE_SEEDS=100` is so many, from `PIPELINE_SEED` on; one, if only that is given."""
    first = os.environ.get(FIRST)
    if first is None and COUNT not in os.environ:
        return fixed
    begin = int(first or 0)
    return tuple(range(begin, begin + int(os.environ.get(COUNT, "1"))))
