"""Who brings back what waits for long: the cluster's delay service, or one that we start.

A retry topic is registered for delayed messages like any other. If nobody serves them, the app
starts the service as a child, which ends with it, however it ends; its state is in topics, so its
folder is a temporary one. With `delay="require"` the app does not start without a service instead.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

from headrace.client.connection import Connection
from headrace.client.delay_instances import DelayInstances, NoDelayService
from headrace.client.delayed_topics import DelayedTopics

log = logging.getLogger("headrace.app")

MODULE = "headrace.services.delay.main"
# `headrace start` brings its own service when the first topic is registered; that takes a moment.
PATIENCE_S = 8.0
LOOK_EVERY_S = 0.2
SHORTEST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0


class Delaying:
    """`look` is called often, by one thread; it waits for nothing."""

    def __init__(self, connection: Connection, *, mode: str, group: str) -> None:
        self._connection = connection
        self._mode = mode
        self._group = group
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: str | None = None
        self._start_at: float | None = None
        self._wait_s = SHORTEST_WAIT_S

    def enable(self, retry_topics: Iterable[str]) -> None:
        """Register these topics and see to it that somebody serves them."""
        registry = DelayedTopics(self._connection)
        for topic in retry_topics:
            registry.enable(topic)
        if self._served_within(PATIENCE_S):
            return
        if self._mode == "require":
            raise NoDelayService(
                f"Nobody serves delayed messages at {self._connection.bootstrap}, and the app says "
                'delay="require": run `headrace delay serve`, or say delay="auto".'
            )
        log.warning("nobody serves delayed messages on this cluster; starting a delay service")
        self._start()

    def _served_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not DelayInstances(self._connection).all():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY_S)
        return True

    def _start(self) -> None:
        self._folder = self._folder or tempfile.mkdtemp(prefix="headrace-delay-")
        command = [
            *(sys.executable, "-m", MODULE),
            *("--bootstrap", self._connection.bootstrap),
            *("--folder", self._folder),
            *("--instance", f"app-{os.getpid()}-{id(self):x}"),
            "--end-with-parent",
        ]
        for name, value in self._connection.settings.items():
            if name != "bootstrap.servers":
                command += ["-X", f"{name}={value}"]
        # Its standard input is a pipe that nobody writes to: it is closed when we end.
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, start_new_session=True, close_fds=True
        )

    def look(self) -> None:
        """Start the child again if it has ended, after a wait that doubles."""
        if self._child is None:
            if self._start_at is not None and time.monotonic() >= self._start_at:
                self._start_at = None
                self._start()
            return
        code = self._child.poll()
        if code is not None:
            self._close_pipe()
            self._child = None
            log.warning("the delay service ended with %d; again in %g s", code, self._wait_s)
            self._start_at = time.monotonic() + self._wait_s
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)

    def _close_pipe(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()

    def close(self) -> None:
        child, self._start_at = self._child, None
        if child is not None:
            self._close_pipe()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            self._child = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
