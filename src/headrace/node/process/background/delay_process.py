"""The delay service beside the node: a process of its own, once the cluster has a delayed topic.

It is a client like any other. Its standard input is a socket without data: when the node ends in
any way, the socket is closed and the service ends too; when the service ends, the loop sees it and
starts it again, after a wait that doubles with each early end. A node without delayed topics loads
and starts nothing of it. Without the package of its store, which is an extra, the node says so once
and runs on.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.installation import how_to_add
from headrace.node.metadata.image import MetadataImage
from headrace.node.process.loop import Loop
from headrace.wire.contract.delay_topics import REGISTRY

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger(__name__)

MODULE = "headrace.services.delay.main"
NEEDED = "rocksdict"
MISSING = "Delayed messages wait until the delay service runs. It needs"
LOOK_EVERY_MS = 100
SHORTEST_WAIT_MS = 250
LONGEST_WAIT_MS = 30_000
# One that has run for so long and ends is started again without a wait.
LONG_RUN_MS = 60_000
# The time in which the process ends its transaction and leaves its group; then it is killed.
LAST_WAIT_MS = 5_000


class DelayProcess:
    def __init__(
        self,
        loop: Loop,
        command: Callable[[], list[str]],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to the node's own: what no command line must show."""
        self._loop = loop
        self._command = command
        self._environment = environment
        self._wanted = False
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._started_ms = 0
        self._start_at_ms = 0
        self._said_missing = False
        self._wait_ms = SHORTEST_WAIT_MS
        loop.timers.every(LOOK_EVERY_MS, self._look, loop.now.monotonic_ms)

    def image_changed(self, image: MetadataImage) -> None:
        """Note whether the service is wanted. Does not start it: the listeners may not be open
        yet."""
        self._wanted = REGISTRY in image.topics

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _look(self) -> None:
        waited = self._loop.now.monotonic_ms >= self._start_at_ms
        if not (self._wanted and self._process is None and waited):
            return
        if importlib.util.find_spec(NEEDED) is not None:
            self._start()
            return
        self._start_at_ms = self._loop.now.monotonic_ms + LONGEST_WAIT_MS
        if not self._said_missing:
            self._said_missing = True
            log.warning("%s", how_to_add(MISSING, NEEDED, "delay"))

    def _start(self) -> None:
        import subprocess  # a node without delayed messages starts sooner without it

        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            # A session of its own: Ctrl-C in a terminal is for the node alone.
            self._process = subprocess.Popen(
                self._command(),
                stdin=theirs.fileno(),
                start_new_session=True,
                env=None if self._environment is None else {**os.environ, **self._environment},
            )
        self._socket = ours
        self._started_ms = self._loop.now.monotonic_ms
        self._loop.call_when_readable(ours, self._ended)

    def _ended(self) -> None:
        """The process never writes to its socket, so a readable socket is a closed one."""
        assert self._process is not None and self._socket is not None
        self._loop.stop_calling(self._socket)
        self._socket.close()
        self._socket = None
        code = self._process.wait()
        self._process = None
        now_ms = self._loop.now.monotonic_ms
        if now_ms - self._started_ms > LONG_RUN_MS:
            self._wait_ms = SHORTEST_WAIT_MS
        log.warning("the delay service ended with %d; again in %d ms", code, self._wait_ms)
        self._start_at_ms = now_ms + self._wait_ms
        self._wait_ms = min(self._wait_ms * 2, LONGEST_WAIT_MS)

    def close(self) -> None:
        """Let the process end its transaction while the loop still answers, then wait for its
        end."""
        self._wanted = False
        if self._process is None or self._socket is None:
            return
        self._loop.stop_calling(self._socket)
        self._socket.close()
        deadline_ms = self._loop.now.monotonic_ms + LAST_WAIT_MS
        while self._process.poll() is None and self._loop.now.monotonic_ms < deadline_ms:
            self._loop.turn(20)
        if self._process.poll() is None:
            log.warning("the delay service %d had to be killed", self._process.pid)
            self._process.kill()
            self._process.wait()
        self._process = None


def delay_command(bootstrap: str, data_folder: str, node_id: int) -> list[str]:
    """Its store is beside the data folder, not in it: Apache Kafka refuses folders it does not
    know."""
    folder = os.path.abspath(data_folder) + "-delay"
    return [
        *(sys.executable, "-m", MODULE),
        *("--bootstrap", bootstrap),
        *("--folder", folder),
        *("--instance", f"node-{node_id}"),
        "--end-with-parent",
        *("--log-level", "WARNING"),  # the screen belongs to the node
    ]
