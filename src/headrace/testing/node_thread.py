"""One node of a test's cluster as a thread of the test's own process: real sockets, real files.

It is the server that a process would run. Its loop listens to a control socket here: `halt` stops
the loop between two turns, as SIGSTOP would; `kill` ends it there, without a notice to any client
or node and without closing a log. Its written bytes stay with the system, as when a process is
killed.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from pathlib import Path

from headrace.log_lines import OneLine
from headrace.node.process.local_cluster.child import Order
from headrace.node.process.server import DiskFailed, Server
from headrace.node.process.settings.settings import CannotStart

LOOK_EVERY_S = 0.01


class Killed(BaseException):
    """Ends the loop at this point; nothing in the server catches it."""


class NodeThread:
    def __init__(self, order: Order, log: Path) -> None:
        self._order = order
        self._server: Server | None = None
        self._failure: BaseException | None = None
        self._is_ready = False
        self._ours, self._theirs = socket.socketpair()
        self._runs = threading.Event()
        self._runs.set()
        name = f"headrace-broker-{order.node}"
        self._log = _LogOfThread(log, name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        raise RuntimeError("The nodes of this cluster are threads of the test's own process.")

    def wait_until_ready(self, within_s: float) -> str:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            server = self._server
            if not self._thread.is_alive():
                raise RuntimeError(f"cannot start: {self._failure}")
            if server is not None and self._is_ready and not server.node.member.is_to_join:
                return server.address
            time.sleep(LOOK_EVERY_S)
        raise RuntimeError(f"is not ready after {within_s:g} s")

    def halt(self) -> None:
        self._runs.clear()
        self._ours.sendall(b"h")

    def go_on(self) -> None:
        self._runs.set()

    def kill(self) -> None:
        self._ours.sendall(b"k")
        self._runs.set()
        self._thread.join()
        self._close()

    def ask_to_stop(self, *, at_once: bool = False) -> None:
        """Ask the server to stop. With `at_once` it is asked twice, and then waits for no client or
        node."""
        self._ours.sendall(b"ss" if at_once else b"s")

    def has_stopped(self, within_s: float) -> bool:
        self._thread.join(within_s)
        if self._thread.is_alive():
            return False
        self._close()
        return True

    def _close(self) -> None:
        self._ours.close()
        self._theirs.close()
        self._log.end()

    # On its own thread

    def _run(self) -> None:
        try:
            server = Server(self._order.settings())
        except CannotStart as refusal:
            self._failure = refusal
            return
        self._server = server
        server.loop.call_when_readable(self._theirs, self._heard)
        try:
            server.open(own_process=False)
            self._is_ready = not server.is_stopping
            server.serve()
        except Killed:
            server.give_up()
        except (CannotStart, DiskFailed) as refusal:
            self._failure = refusal
            if isinstance(refusal, CannotStart):
                server.give_up()

    def _heard(self) -> None:
        commands = self._theirs.recv(16)
        self._runs.wait()
        if b"k" in commands:
            raise Killed
        for _ in range(commands.count(b"s")):
            assert self._server is not None
            self._server.stop()


class _LogOfThread(logging.FileHandler):
    """The log lines of one node's threads."""

    def __init__(self, path: Path, thread: str) -> None:
        super().__init__(path, encoding="utf-8")
        self._thread = thread
        self.setFormatter(OneLine())
        logging.getLogger("headrace").addHandler(self)

    def filter(self, record: logging.LogRecord) -> bool:
        return record.threadName == self._thread

    def end(self) -> None:
        logging.getLogger("headrace").removeHandler(self)
        self.close()
