"""The loop that a background process reports to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headrace.node.process.background.background_process import BackgroundProcess
from tests.readable import readable

UNLIMITED = 1e300  # bytes a second


class Loop:
    """Waits for the process's socket, and for nothing else."""

    def __init__(self) -> None:
        self.watched: dict[socket.socket, Callable[[], None]] = {}

    def watch(self, sock: socket.socket, do: Callable[[], None]) -> None:
        self.watched[sock] = do

    def forget(self, sock: socket.socket) -> None:
        self.watched.pop(sock, None)

    def run(self) -> None:
        while self.watched:
            reporting = readable(self.watched, 300)
            assert reporting, "no report for five minutes"
            for sock in reporting:
                self.watched[sock]()

    @contextmanager
    def hears(self, process: BackgroundProcess) -> Iterator[None]:
        """And closes the process at the end."""
        process.watch, process.forget = self.watch, self.forget
        yield
        process.close()


@pytest.fixture
def loop() -> Loop:
    return Loop()
