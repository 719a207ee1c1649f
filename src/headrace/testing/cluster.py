"""A real cluster for a test: several nodes on free ports, in a temporary folder.

The nodes are those of `headrace start --brokers`, without its parent: a node that a test has killed
stays down until the test restores it. `cut` pauses a node: to others it is a node that does not
answer any more while its connections stay open, as behind a cut cable. `log(2)` returns the log of
a node. Each node is a process of its own, or a thread of the test's (`processes=False`: ready
sooner, and all of them share one processor with the test).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from headrace.node.process.local_cluster.cluster import OpenCluster, Wanted, open_cluster
from headrace.testing.node_process import NodeProcess
from headrace.testing.node_thread import NodeThread

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
        processes: bool = True,
    ) -> None:
        self.brokers = brokers
        self.folder = Path(data if data is not None else tempfile.mkdtemp(prefix="headrace-"))
        self._is_temporary = data is None
        self._settings = {name: str(value) for name, value in (settings or {}).items()}
        self._cluster: OpenCluster | None = None
        self._kind = NodeProcess if processes else NodeThread
        self._running: dict[int, NodeProcess | NodeThread] = {}
        self._addresses: dict[int, str] = {}
        self._cut: set[int] = set()

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for clients: all brokers."""
        return ",".join(self.address(node) for node in sorted(self._addresses))

    def address(self, node: int) -> str:
        """The bootstrap address of one node."""
        if node not in self._addresses:
            raise RuntimeError(f"Broker {node} has not been started.")
        return self._addresses[node]

    def pid(self, node: int) -> int:
        """The process id of a node."""
        return self._node(node).pid

    def log(self, node: int) -> str:
        """The log of the node, with all of its starts."""
        return self._log_path(node).read_text(errors="replace")

    def start(self) -> Cluster:
        """Start all nodes and wait until the cluster is ready."""
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
        """kill -9: the node loses the contents of its memory, and notifies no other node."""
        self._node(node).kill()
        self._gone(node)

    def cut(self, node: int) -> None:
        """Pause the node: it neither answers nor closes a connection, until `restore`."""
        self._node(node).halt()
        self._cut.add(node)

    def restore(self, node: int) -> None:
        """Let a paused node continue, or start a killed one; on the same port."""
        if node in self._cut:
            self._cut.discard(node)
            self._node(node).go_on()
            return
        if node in self._running:
            raise RuntimeError(f"Broker {node} is running.")
        self._begin(node)
        self._wait_until_ready(node)

    def stop_node(self, node: int) -> None:
        """SIGTERM: the node hands over its leaderships and ends."""
        self._node(node).ask_to_stop()
        self._wait_until_gone(node)

    def stop(self) -> None:
        """Stop all nodes in an orderly way; temporary files are removed."""
        cluster, self._cluster = self._cluster, None
        if cluster is None:
            return
        for node in list(self._cut):
            self._cut.discard(node)
            self._node(node).go_on()
        try:
            for group in cluster.plan.stop_order():
                running = [node for node in group if node in self._running]
                for node in running:
                    # The last node has no other to hand its leaderships to.
                    self._running[node].ask_to_stop(at_once=len(self._running) == 1)
                for node in running:
                    self._wait_until_gone(node)
        finally:
            for node in list(self._running):
                self._running[node].kill()
                self._gone(node)
            cluster.close()
            if self._is_temporary:
                shutil.rmtree(self.folder, ignore_errors=True)

    # Nodes

    def _begin(self, node: int) -> None:
        assert self._cluster is not None, "started"
        self._cluster.prepare(node)
        self._running[node] = self._kind(self._cluster.orders[node], self._log_path(node))

    def _wait_until_ready(self, node: int) -> None:
        try:
            self._addresses[node] = self._running[node].wait_until_ready(READY_WITHIN_S)
        except RuntimeError as problem:
            self._fail(node, str(problem))

    def _fail(self, node: int, how: str) -> None:
        raise RuntimeError(f"Broker {node} {how}\n{self.log(node)[-4000:]}")

    def _wait_until_gone(self, node: int) -> None:
        if not self._running[node].has_stopped(STOP_WITHIN_S):
            self._fail(node, f"did not stop within {STOP_WITHIN_S:g} s")
        self._gone(node)

    def _gone(self, node: int) -> None:
        del self._running[node]
        self._cut.discard(node)

    def _node(self, node: int) -> NodeProcess | NodeThread:
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
