"""The command on a broker in this process, for tests that start others beside it."""

from tests.sockets.cli.conftest import broker, headrace

__all__ = ["broker", "headrace"]
