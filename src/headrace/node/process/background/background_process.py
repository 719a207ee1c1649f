"""A process beside the loop that reads or writes segments: started for each job, watched, ended.

The process gets the job as JSON in a file without a name, and sends its reports as lines of JSON
over a socket that the loop watches. It ends by itself when that socket is closed, so it never
outlives the node, however the node ends; `stop` only closes the socket. `background_job.py` is the
other side of the socket.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger(__name__)

# The process looks at its socket after each MiB, so it ends long before.
LAST_WAIT_S = 10


class BackgroundProcess:
    """One job at a time, run by `python -m MODULE`."""

    def __init__(self, module: str) -> None:
        # The loop's; set when there is one, before the first job.
        self.watch: Callable[[socket.socket, Callable[[], None]], None]
        self.forget: Callable[[socket.socket], None]
        self._command = [sys.executable, "-m", module]
        self._socket: socket.socket | None = None
        self._told: Callable[[list[Any]], None]
        self._ended_early: Callable[[], None]
        self._received = b""
        self._processes: list[subprocess.Popen[bytes]] = []  # those not known to have ended

    def start(
        self, job: Any, told: Callable[[list[Any]], None], ended_early: Callable[[], None]
    ) -> None:
        """Start a process for `job`. `told` gets each report, and calls `stop` at the last one."""
        import subprocess  # a node that compacts nothing starts 10 ms sooner without them
        import tempfile

        assert self._socket is None, "one job at a time"
        self._processes = [each for each in self._processes if each.poll() is None]
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, tempfile.TemporaryFile() as file:
            file.write(json.dumps(job).encode())
            file.seek(0)
            # A session of its own: Ctrl-C in a terminal is for the node alone.
            process = subprocess.Popen(
                self._command, stdin=file, stdout=theirs.fileno(), start_new_session=True
            )
        self._processes.append(process)
        self._socket, self._received = ours, b""
        self._told, self._ended_early = told, ended_early
        self.watch(ours, self._readable)

    def stop(self) -> None:
        if self._socket is not None:
            self.forget(self._socket)
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Stop at the end of the node: wait until the process no longer writes into its folder."""
        self.stop()
        for process in self._processes:
            self._wait_for(process)
        self._processes = []

    def _wait_for(self, process: subprocess.Popen[bytes]) -> None:
        import subprocess

        try:
            process.wait(LAST_WAIT_S)
        except subprocess.TimeoutExpired:
            log.warning("%s had to be killed (process %d)", self._command[-1], process.pid)
            process.kill()
            process.wait()

    def _readable(self) -> None:
        assert self._socket is not None
        received = b""
        with suppress(BlockingIOError):
            received = self._socket.recv(1 << 16)
            if not received:
                self.stop()
                self._ended_early()
                return
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            if self._socket is not None:  # not stopped by an earlier line
                self._told(json.loads(line))
