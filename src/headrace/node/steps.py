"""Work in steps: a generator that yields wherever other work may run, and returns its result.

Handlers that go through a long request yield before each element. A small request is answered by
the same code `at_once`; a large one in slices, between other requests (`serving/slices.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

Result = TypeVar("Result")
Steps = Generator[Any, None, Any]


def at_once(steps: Generator[Any, None, Result]) -> Result:
    """The result of steps that are few enough for one turn."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        found: Result = done.value
        return found
