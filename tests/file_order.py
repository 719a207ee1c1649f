"""A pytest plugin: files whose tests wait are spread evenly over the run.

The tests of `tests/sockets` wait three quarters of their time, those of the other folders compute.
Run one folder after the other, all workers wait at first and then all compute. Spread, one waits
while the others use the processors. Within a file nothing changes, and neither does the order of
the files of either kind. All workers collect the same tests, so they have the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

import pytest

WAIT = "tests/sockets/"
T = TypeVar("T")


def spread(some: Sequence[T], among: Sequence[T]) -> list[T]:
    """All of both; when a part of `among` has been taken, so has that part of `some`."""
    result: list[T] = []
    taken = 0
    for number, each in enumerate(among, 1):
        result.append(each)
        due = len(some) * number // len(among)
        result += some[taken:due]
        taken = due
    return result + list(some[taken:])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = [list(tests) for _, tests in groupby(items, lambda item: item.nodeid.split("::")[0])]
    waiting = [tests for tests in files if tests[0].nodeid.startswith(WAIT)]
    others = [tests for tests in files if not tests[0].nodeid.startswith(WAIT)]
    if waiting and others:
        items[:] = [test for tests in spread(waiting, others) for test in tests]
