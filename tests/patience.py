"""A test waits until something is so: long, for a loaded machine must not make it red."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 180.0
Found = TypeVar("Found")


def until(
    look: Callable[[], Found],
    what: str | Callable[[], str] = "it did not come to be",
    *,
    within_s: float = PATIENCE_S,
    every_s: float = 0.02,
) -> Found:
    """The first answer that is not empty; `what` says what was waited for in vain."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(every_s)
    return found
