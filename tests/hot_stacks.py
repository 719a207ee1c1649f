"""A pytest plugin: prints the stacks of all threads when a test has computed for 20 s.

No test of the inner and middle rings should take a tenth of that. One that does spins, and its
report alone (a time-out somewhere else) does not tell where. The test goes on.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Generator

import pytest

PROCESSOR_S = 20.0


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # pytest replaces the descriptor 2 while a test runs; the copy is the real one.
    faulthandler.register(signal.SIGPROF, file=os.dup(2), all_threads=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
