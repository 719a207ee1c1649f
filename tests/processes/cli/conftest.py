"""The command on a broker in this process, for tests that start others beside it."""

import socket

import pytest

from headrace.client.connection import ClientSettings
from tests.sockets.cli.conftest import broker, headrace

__all__ = ["broker", "headrace"]


@pytest.fixture
def nobody():
    """A cluster that does not answer."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield ClientSettings({"bootstrap.servers": f"127.0.0.1:{one.getsockname()[1]}"})
