"""How much of a search every change pays for; `make full` (EFFORT=full) does all of it.

The examples of a property are the same in each run. So those of `make test` are fixed stories, and
few; what once found something stands beside the property by name: `@example`, a seed, a test.
"""

from __future__ import annotations

import os

FEWEST = 10
IS_FULL = os.environ.get("EFFORT") == "full"


def examples(of_full: int) -> int:
    """How many of these many examples are tried: a fifth, except in `make full`."""
    return of_full if IS_FULL else min(of_full, max(FEWEST, of_full // 5))


def every(nth: int) -> int:
    """The step of a walk over places that are all alike: each `nth`, except in `make full`."""
    return 1 if IS_FULL else nth
