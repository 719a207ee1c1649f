"""For all suites: Hypothesis repeats itself exactly and does not measure time on a busy machine.
A process may have as many files open as the system grants: what a test leaves is collected later.
Ctrl-C is heard, also in a run that a script has put into the background: such a run ignores it, and
so would everything that a test starts. What lives until the end (modules, thousands of collected
tests) is not looked at by each garbage collection anew, which was a tenth of the processor time.

A test is red, too, if it leaves behind what a good run must not print: a log line that could not be
written ("Logging error"), an exception that could not be raised ("Exception ignored"), an exception
that ended a thread, a coroutine that was not awaited. A cause that shows only at a garbage
collection makes the test red during which that happened.
"""

import gc
import logging
import signal
import traceback
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from headrace.node.process.folders.real_disk import raise_open_files_limit
from tests.effort import examples
from tests.restored_log import remove_command_logs

settings.register_profile(
    "headrace",
    derandomize=True,
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headrace")
# Hypothesis draws from the constants of all our modules that the process has imported so far: other
# values with other tests before, or in a folder whose path has a part named `tests`. And to find
# them it parses each module, 5 s in every process of a new clone. There is no setting for it.
assert callable(providers._get_local_constants)
providers._get_local_constants = lambda: providers._local_constants
raise_open_files_limit()
gc.disable()  # while tests are collected, nothing is garbage
# No warning in these suites, but an error of the test.
ERRORS = (
    "error::pytest.PytestUnraisableExceptionWarning",
    "error::pytest.PytestUnhandledThreadExceptionWarning",
    "error:coroutine .* was never awaited:RuntimeWarning",
)
_unwritten: list[str] = []


def _keep_unwritten(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Instead of logging.Handler.handleError, which prints "Logging error" to standard error."""
    if logging.raiseExceptions:  # a test that means it turns this off
        _unwritten.append(f"{handler!r} could not write {record!r}:\n{traceback.format_exc()}")


logging.Handler.handleError = _keep_unwritten  # type: ignore[method-assign, assignment]


# Suites with programs of others: their libraries leave such things behind.
OTHERS = ("interop", "conformance", "services", "pipelines", "console", "guides", "cluster", "soak")


def pytest_configure(config: pytest.Config) -> None:
    if any(f"tests/{name}" in arg for arg in config.args for name in OTHERS):
        return
    for error in ERRORS:
        config.addinivalue_line("filterwarnings", error)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A command that a test before ran in this process may have left its handlers: of Ctrl-C, and
    of its log with the level of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    remove_command_logs()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    if _unwritten:
        found = "\n".join(_unwritten)
        _unwritten.clear()
        pytest.fail(f"Log lines could not be written:\n{found}", pytrace=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()
