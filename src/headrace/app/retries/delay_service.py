"""Finds the service for long waits: the cluster's delay service, or one that the app starts.

A retry topic is registered for delayed messages like any other. If no delay service runs, the app
starts one as a child process, which always ends with the app; its state is in topics, so its folder
is a temporary one. With `delay="require"` the app refuses to start without a service instead.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable

from headrace.client.connection import ClientSettings
from headrace.client.delay.delayed_topics import DelayedTopics
from headrace.client.delay.instances import DelayInstances, NoDelayService
from headrace.client.errors import ClientError
from headrace.wire.contract import delay_login

log = logging.getLogger("headrace.app")

MODULE = "headrace.services.delay.main"
# `headrace start` brings its own service when the first topic is registered; that takes a moment.
PATIENCE_S = 8.0
LOOK_EVERY_S = 0.2
CALM_S = 15.0


class Delaying:
    def __init__(self, connection: ClientSettings, *, mode: str) -> None:
        self._connection = connection
        self._mode = mode
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: str | None = None
        self._stopping = threading.Event()
        self._watching: threading.Thread | None = None

    def enable(self, retry_topics: Iterable[str]) -> None:
        """Register these topics and make sure that a service runs."""
        registry = DelayedTopics(self._connection)
        for topic in retry_topics:
            registry.enable(topic)
        if self._mode == "require":
            self._require()
        elif self._watching is None:
            self._watching = threading.Thread(
                target=self._watch, name="headrace-delaying", daemon=True
            )
            self._watching.start()

    def _require(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_served():
            if time.monotonic() > deadline:
                raise NoDelayService(
                    f"No delay service runs at {self._connection.bootstrap}, and the app "
                    'says delay="require": run `headrace delay serve`, or set delay="auto".'
                )
            time.sleep(LOOK_EVERY_S)

    def _is_served(self) -> bool:
        return bool(DelayInstances(self._connection).all())

    def _watch(self) -> None:
        """Start the service when none has served for a while, and again when ours has ended."""
        alone_since: float | None = time.monotonic()
        while not self._stopping.wait(LOOK_EVERY_S if alone_since is not None else CALM_S):
            if self._child is not None and self._child.poll() is not None:
                log.warning("the delay service ended with %d", self._child.returncode)
                self._close_pipe()
                self._child = None
            try:
                served = self._is_served()
            except ClientError as failure:
                log.warning("cannot find out whether a delay service runs: %s", failure)
                continue
            now = time.monotonic()
            if served:
                alone_since = None
            elif alone_since is None:
                alone_since = now
            elif now - alone_since > PATIENCE_S and self._child is None:
                log.warning("no delay service runs on this cluster; starting one")
                self._start()

    def _start(self) -> None:
        self._folder = self._folder or tempfile.mkdtemp(prefix="headrace-delay-")
        command = [
            *(sys.executable, "-m", MODULE),
            *("--bootstrap", self._connection.bootstrap),
            *("--folder", self._folder),
            *("--instance", f"app-{os.getpid()}-{id(self):x}"),
            "--end-with-parent",
        ]
        settings = dict(self._connection.settings)
        del settings["bootstrap.servers"]
        # Nothing is written to the pipe that is its standard input: it is closed when we end.
        # Settings are in its environment: all users of the machine can read a command line.
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            start_new_session=True,
            close_fds=True,
            env={**os.environ, delay_login.SETTINGS_VARIABLE: json.dumps(settings)},
        )

    def _close_pipe(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()

    def close(self) -> None:
        self._stopping.set()
        if self._watching is not None:
            self._watching.join(15)
        child = self._child
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
