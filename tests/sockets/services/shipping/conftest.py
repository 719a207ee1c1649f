"""Shippers in the test's own process, most of them on one broker for a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.connection import ClientSettings
from headrace.testing import Broker
from tests.sockets.nobody import nobody as address_of_nobody


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture
def nobody() -> ClientSettings:
    """A cluster that does not answer."""
    return ClientSettings({"bootstrap.servers": address_of_nobody()})
