"""How often a property is tried: `make full` tries all examples, every change a third of them."""

from __future__ import annotations

import os

IS_FULL = os.environ.get("EFFORT") == "full"


def examples(of_full: int) -> int:
    return of_full if IS_FULL else of_full // 3
