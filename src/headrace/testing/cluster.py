"""A real cluster for a test: each node a process of its own, on free ports, in a temporary folder.

The nodes are those of `headrace start --brokers`, without its parent: a node that a test has killed
stays dead until the test brings it back. `cut` stops a node's process (SIGSTOP), which to others is
a node that does not answer any more while its connections stay open, as behind a cut cable. What
the nodes log is in `log(2)`.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.server.local_cluster.child_process import ChildProcess, start_child
from headrace.server.local_cluster.cluster import OpenCluster, Wanted, open_cluster

READY_WITHIN_S = 60.0
STOP_WITHIN_S = 60.0


class Cluster:
    """Use as a context manager, or call `start` and `stop`.

    `data` is the folder of node 1, kept afterwards; without it all folders are temporary. Nodes
    have the numbers 1 to `brokers`; the first three are controllers too.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        data: Path | str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.brokers = brokers
        self.folder = Path(data if data is not None else tempfile.mkdtemp(prefix="headrace-"))
        self._is_temporary = data is None
        self._settings = {name: str(value) for name, value in (settings or {}).items()}
        self._cluster: OpenCluster | None = None
        self._running: dict[int, ChildProcess] = {}
        self._about: dict[int, dict[str, Any]] = {}
        self._cut: set[int] = set()

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`: all brokers."""
        return ",".join(self.address(node) for node in sorted(self._about))

    def address(self, node: int) -> str:
        if node not in self._about:
            raise RuntimeError(f"Broker {node} has not been started.")
        return str(self._about[node]["address"])

    def pid(self, node: int) -> int:
        return self._process(node).popen.pid

    def log(self, node: int) -> str:
        """What the node has logged, in all of its lives."""
        return self._log_path(node).read_text(errors="replace")

    def start(self) -> Cluster:
        if self._cluster is not None:
            raise RuntimeError("The cluster is running already.")
        data = self.folder / "node" if self._is_temporary else self.folder
        wanted = Wanted(str(data), self.brokers, "127.0.0.1:0", self._settings)
        self._cluster = open_cluster(
            wanted, randomness=os.urandom, wall_ms=time.time_ns() // 1_000_000
        )
        try:
            for node in self._cluster.orders:
                self._begin(node)
            for node in self._cluster.orders:
                self._wait_until_ready(node)
        except BaseException:
            self.stop()
            raise
        return self

    def kill(self, node: int) -> None:
        """kill -9: what the node had not handed to the system is gone, and nobody is told."""
        self._process(node).popen.kill()
        self._gone(node)

    def cut(self, node: int) -> None:
        """Stop its process: it neither answers nor closes a connection, until `restore`."""
        os.kill(self.pid(node), signal.SIGSTOP)
        self._cut.add(node)

    def restore(self, node: int) -> None:
        """Let a node that was cut off go on, or start one that was killed; on the same port."""
        if node in self._cut:
            self._cut.discard(node)
            os.kill(self.pid(node), signal.SIGCONT)
            return
        if node in self._running:
            raise RuntimeError(f"Broker {node} is running.")
        self._begin(node)
        self._wait_until_ready(node)

    def stop_node(self, node: int) -> None:
        """SIGTERM: it hands its leaderships over and ends."""
        self._process(node).popen.terminate()
        self._wait_until_gone(node)

    def stop(self) -> None:
        """An orderly stop of all; temporary files are removed."""
        cluster, self._cluster = self._cluster, None
        if cluster is None:
            return
        for node in list(self._cut):
            self._cut.discard(node)
            os.kill(self.pid(node), signal.SIGCONT)
        try:
            for group in cluster.plan.stop_order():
                running = [node for node in group if node in self._running]
                for node in running:
                    self._running[node].popen.terminate()
                for node in running:
                    self._wait_until_gone(node)
        finally:
            for node in list(self._running):
                self._running[node].popen.kill()
                self._gone(node)
            cluster.close()
            if self._is_temporary:
                shutil.rmtree(self.folder, ignore_errors=True)

    # Processes

    def _begin(self, node: int) -> None:
        assert self._cluster is not None, "started"
        self._cluster.prepare(node)
        with self._log_path(node).open("ab") as output:
            self._running[node] = start_child(self._cluster.orders[node], output.fileno())

    def _wait_until_ready(self, node: int) -> None:
        line = self._running[node].line
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            readable, _, _ = select.select([line.socket], [], [], deadline - time.monotonic())
            messages = line.hear() if readable else None
            if messages is None:
                self._fail(
                    node, "ended" if readable else f"is not ready after {READY_WITHIN_S:g} s"
                )
                return
            for message in messages:
                if "ready" in message:
                    self._about[node] = message["ready"]
                    return
                if "refused" in message:
                    self._fail(node, f"cannot start: {message['refused']}")

    def _fail(self, node: int, how: str) -> None:
        raise RuntimeError(f"Broker {node} {how}\n{self.log(node)[-4000:]}")

    def _wait_until_gone(self, node: int) -> None:
        try:
            self._running[node].popen.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._fail(node, f"did not stop within {STOP_WITHIN_S:g} s")
        self._gone(node)

    def _gone(self, node: int) -> None:
        process = self._running.pop(node)
        self._cut.discard(node)
        process.popen.wait()
        process.line.socket.close()

    def _process(self, node: int) -> ChildProcess:
        if node not in self._running:
            raise RuntimeError(f"Broker {node} is not running.")
        return self._running[node]

    def _log_path(self, node: int) -> Path:
        beside = self.folder / "node" if self._is_temporary else self.folder
        return beside.with_name(f"{beside.name}-{node}.log")

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
