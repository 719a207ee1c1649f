"""Closes what the tests of the delay service have opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sockets.services.delay.committed_reader import Reader


@pytest.fixture(autouse=True)
def closed_readers() -> Iterator[None]:
    yield
    while Reader.open:
        Reader.open.pop().consumer.close()
