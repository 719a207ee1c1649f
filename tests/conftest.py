"""For all suites: Hypothesis repeats itself exactly and does not measure time on a busy machine.
A process may have as many files open as the system grants: what a test leaves is collected later.
Ctrl-C is heard, also in a run that a script has put into the background: such a run ignores it, and
so would everything that a test starts. What lives until the end (modules, thousands of collected
tests) is not looked at by each garbage collection anew, which was a tenth of the processor time.
"""

import gc
import logging
import signal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from headrace.log_lines import ToStderr
from headrace.server.folders.real_disk import raise_open_files_limit

settings.register_profile(
    "headrace", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("headrace")
# Hypothesis draws from the constants of all our modules that the process has imported so far: other
# values with other tests before, or in a folder whose path has a part named `tests`. And to find
# them it parses each module, 5 s in every process of a new clone. There is no setting for it.
assert callable(providers._get_local_constants)
providers._get_local_constants = lambda: providers._local_constants
raise_open_files_limit()
gc.disable()  # while tests are collected, nothing is garbage


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A command that a test before ran in this process may have left its handlers: of Ctrl-C, and
    of its log with the level of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, ToStderr)]:
        root.removeHandler(handler)
        root.setLevel(logging.WARNING)


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()
