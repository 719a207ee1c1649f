"""One node of a test's cluster as a process of its own, as with `headrace start --brokers`."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path

from headrace.node.process.local_cluster.child import Order
from headrace.node.process.local_cluster.child_process import start_child


class NodeProcess:
    def __init__(self, order: Order, log: Path) -> None:
        with log.open("ab") as output:
            self._child = start_child(order, output.fileno())

    @property
    def pid(self) -> int:
        return self._child.popen.pid

    def wait_until_ready(self, within_s: float) -> str:
        """Wait for the node; returns its address for clients. Raises RuntimeError."""
        line = self._child.line
        deadline = time.monotonic() + within_s
        while True:
            left_s = max(deadline - time.monotonic(), 0)
            readable, _, _ = select.select([line.socket], [], [], left_s)
            messages = line.hear() if readable else None
            if messages is None:
                raise RuntimeError("ended" if readable else f"is not ready after {within_s:g} s")
            for message in messages:
                if "ready" in message:
                    return str(message["ready"]["address"])
                if "refused" in message:
                    raise RuntimeError(f"cannot start: {message['refused']}")

    def halt(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._child.popen.kill()
        self._child.popen.wait()
        self._child.line.socket.close()

    def ask_to_stop(self, *, at_once: bool = False) -> None:
        if at_once:
            self._child.line.tell({"stop": "at once"})
        self._child.popen.terminate()

    def has_stopped(self, within_s: float) -> bool:
        try:
            self._child.popen.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        self._child.line.socket.close()
        return True
