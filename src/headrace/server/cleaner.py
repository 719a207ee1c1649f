"""The process beside the loop that compacts logs: started for each job, watched, ended.

The job goes to it as JSON in a file that has no name any more, its reports come back as lines of
JSON over a socket that the loop watches. The process ends by itself when that socket is closed, so
it never outlives this one, whatever ends this one; `stop` does no more than close it.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from headrace.broker.log_cleaner import Reports
from headrace.storage.compaction import CleanedGroup, CleaningJob

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger(__name__)

COMMAND = [sys.executable, "-m", "headrace.server.cleaner_process"]
# It looks at its socket after each MiB, so it is gone long before.
LAST_WAIT_S = 10


class CleanerProcess:
    def __init__(self) -> None:
        # The loop's; set when there is one, before the first job.
        self.watch: Callable[[socket.socket, Callable[[], None]], None]
        self.forget: Callable[[socket.socket], None]
        self._socket: socket.socket | None = None
        self._reports: Reports | None = None
        self._received = b""
        self._processes: list[subprocess.Popen[bytes]] = []  # those not known to have ended

    def start(self, job: CleaningJob, bytes_per_second: float, reports: Reports) -> None:
        import subprocess  # a node that compacts nothing starts 10 ms sooner without them
        import tempfile

        assert self._socket is None, "one job at a time"
        self._processes = [each for each in self._processes if each.poll() is None]
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, tempfile.TemporaryFile() as file:
            file.write(json.dumps([bytes_per_second, asdict(job)]).encode())
            file.seek(0)
            # A session of its own: Ctrl-C in a terminal is for the node alone.
            process = subprocess.Popen(
                COMMAND, stdin=file, stdout=theirs.fileno(), start_new_session=True
            )
        self._processes.append(process)
        self._socket, self._reports, self._received = ours, reports, b""
        self.watch(ours, self._readable)

    def stop(self) -> None:
        if self._socket is not None:
            self.forget(self._socket)
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """The node ends: wait until nobody writes into its folder any more."""
        self.stop()
        for process in self._processes:
            self._wait_for(process)
        self._processes = []

    def _wait_for(self, process: subprocess.Popen[bytes]) -> None:
        import subprocess

        try:
            process.wait(LAST_WAIT_S)
        except subprocess.TimeoutExpired:
            log.warning("the log cleaner's process %d had to be killed", process.pid)
            process.kill()
            process.wait()

    def _readable(self) -> None:
        assert self._socket is not None and self._reports is not None
        received = b""
        with suppress(BlockingIOError):
            received = self._socket.recv(1 << 16)
            if not received:
                reports = self._reports
                self.stop()
                reports.failed("its process ended early", damaged=False)
                return
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            self._report(line)

    def _report(self, line: bytes) -> None:
        if self._socket is None or self._reports is None:
            return  # stopped by an earlier line
        kind, *said = json.loads(line)
        if kind == "cleaned":
            self._reports.cleaned(CleanedGroup(*said))
            return
        self.stop()
        if kind == "finished":
            self._reports.finished(*said)
        else:
            reason, damaged = said
            self._reports.failed(reason, damaged=damaged)
