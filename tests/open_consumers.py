"""A pytest plugin: a file of tests that leaves consumers open fails, with the names of its tests.

Python destroys such a consumer when nothing refers to it any more, often in a garbage collection,
on whatever thread that runs. librdkafka then tries for up to half a minute to leave a group whose
broker is gone. On the thread of a node under test that makes the node silent, and another test red.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any
from weakref import WeakSet

import confluent_kafka
import pytest

# `Consumer.close` itself leaves librdkafka's consumer open where no broker takes its last commit:
# it would wait as long as a session lasts, which is 3 s here.
ON_PURPOSE = {
    "tests/sockets/client/test_commits.py"
    "::test_a_commit_that_nobody_answers_says_so_and_closing_goes_on"
}
RINGS = ("tests/unit/", "tests/sockets/", "tests/processes/", "tests/simulation/")
_test = "no test"
_made: WeakSet[Tracked] = WeakSet()
_dropped: set[str] = set()


class Tracked(confluent_kafka.Consumer):
    """A consumer that knows the test that made it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.test: str | None = _test  # None: it was reported
        _made.add(self)

    @property
    def is_open(self) -> bool:
        try:
            self.memberid()
        except RuntimeError:
            return False
        return True

    def __del__(self) -> None:
        if (test := getattr(self, "test", None)) is not None and self.is_open:
            _dropped.add(test)


confluent_kafka.Consumer = Tracked  # type: ignore[misc]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _test
    _test = item.nodeid
    return (yield)


@pytest.fixture(scope="module", autouse=True)
def no_consumer_is_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before the other fixtures of a file, so it looks when they have ended."""
    yield
    if not request.node.nodeid.startswith(RINGS):
        return  # its nodes are processes of their own
    left = set(_dropped)
    _dropped.clear()
    for consumer in list(_made):
        if consumer.test is not None and consumer.is_open:
            left.add(consumer.test)
        consumer.test = None
        _made.discard(consumer)
    left -= ON_PURPOSE
    assert not left, "consumers were left open by " + ", ".join(sorted(left))
