"""Broker processes for tests: a Headrace node or an Apache Kafka node behind the same few verbs.

Both take Kafka's own setting names. Each node has a folder of its own and a free port on loopback;
a port is kept over restarts, so that clients find the node again. Processes are ended by their id,
also when the test run is interrupted.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Self, TextIO

from tests.interop.java_session import JavaSession
from tests.interop.tools import java_command
from tests.whole_lines import whole_lines

# `TARGET=apache` turns all these tests on Apache Kafka: what fails there is the tests' own fault.
TARGET = os.environ.get("TARGET", "headrace")

# Outside the kernel's range for outgoing connections, so that no client takes a node's port while
# the node is down.
PORTS = range(20_000, 32_000)

# What both brokers are told, so that their answers can be compared.
ONE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}

# Suites run beside each other, and while a node is down each of their processes would find its port
# free. So a port is this process's own, by a lock on its file here, for as long as it lives.
PORT_LOCKS = Path("/tmp/headrace-test-ports")

_started: set[subprocess.Popen[bytes]] = set()
_given: dict[int, TextIO] = {}  # ports and their locks


@atexit.register
def _end_all() -> None:
    for process in _started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def free_port() -> int:
    """A port nobody listens on now, and that no other test on this machine was given."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given and _lock(port):
            return port


def _lock(port: int) -> bool:
    PORT_LOCKS.mkdir(exist_ok=True)
    file = (PORT_LOCKS / str(port)).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    _given[port] = file
    return True


def answers(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a broker answers ApiVersions v0 on this port."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(10)
            return len(answer) == 10 and answer[4:10] == struct.pack(">ih", 7, 0)
    except OSError:
        return False


class Node:
    """One broker process. Subclasses say how it is started."""

    name = "node"
    start_within_s = 400.0
    host = "127.0.0.1"

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.settings = ONE_NODE | (settings or {})
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.log_path = folder / f"{self.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        raise NotImplementedError

    def take_over(self, other: Node) -> None:
        """Stand in for a node that has ended: its data, its address."""
        assert other.process is None, "the other one still runs"
        self.data, self.port, self.bootstrap = other.data, other.port, other.bootstrap

    def start(self) -> None:
        """Start and wait until a request is answered."""
        assert self.process is None, "already running"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        _started.add(self.process)
        deadline = time.monotonic() + self.start_within_s
        while not answers(self.port, self.host):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self.name} did not start:\n{self.log_text()[-4000:]}")
            time.sleep(0.02)

    def stop(self, within_s: float = 400.0) -> None:
        """SIGTERM, and the clean exit that must follow."""
        if self.process is None:
            return
        process = self.process
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self.name} did not end within {within_s} s of SIGTERM"
            ) from None
        self._ended(process)
        # The JVM reports a clean end after SIGTERM as 128 + 15.
        assert code in (0, 143), f"{self.name} ended with {code}:\n{self.log_text()[-4000:]}"

    def kill(self) -> None:
        """kill -9."""
        if self.process is None:
            return
        process = self.process
        process.kill()
        process.wait()
        self._ended(process)

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        _started.discard(process)
        self.process = None

    @property
    def pid(self) -> int:
        assert self.process is not None, "not running"
        return self.process.pid

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def revive(self) -> None:
        """Start again what has ended by itself, so that one fault does not hide the others."""
        if not self.is_running():
            self.kill()
            self.start()

    def memory_bytes(self) -> int:
        """Resident memory of the process now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def forget_peak(self) -> None:
        """Let the peak of memory begin at what is used now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_memory_bytes(self) -> int:
        """The most resident memory since the start or `forget_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_lines(self) -> list[str]:
        """Those that are whole: it may be writing the next."""
        return whole_lines(self.log_path)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class HeadraceNode(Node):
    """Our broker, as its users start it."""

    name = "headrace"

    def command(self) -> list[str]:
        program = Path(sys.executable).with_name("headrace")
        listen = ["--data", str(self.data), "--listen", self.bootstrap]
        settings = [part for k, v in self.settings.items() for part in ("--set", f"{k}={v}")]
        return [str(program), "start", *listen, *settings]


class ApacheNode(Node):
    """Apache Kafka, broker and controller in one process; formatted on its first start."""

    name = "apache"
    cluster_id = "4L6g3nShT-eMCtK--X86sw"

    def __init__(
        self, folder: Path, settings: dict[str, str] | None = None, *, heap: str = "512m"
    ) -> None:
        super().__init__(folder, settings)
        self.heap = heap
        self.controller_port = free_port()
        self.properties = folder / "server.properties"

    def start(self) -> None:
        self.write_properties()
        if not (self.data / "meta.properties").exists():
            self._format()
        super().start()

    def command(self) -> list[str]:
        return java_command("kafka.Kafka", str(self.properties), heap=self.heap)

    def write_properties(self) -> None:
        controller = f"127.0.0.1:{self.controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self.data),
        } | self.settings
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))

    def _format(self) -> None:
        identity = ("-t", self.cluster_id, "-c", str(self.properties), *self.format_identity)
        _formatter().run("kafka.tools.StorageTool", "format", *identity)

    @property
    def format_identity(self) -> tuple[str, ...]:
        """Whose voters it begins with: its own alone."""
        return ("--standalone",)


@functools.cache
def _formatter() -> JavaSession:
    """One JVM that formats the folders of all nodes of this process: a JVM for each would take
    longer than its work. Nothing else runs in it, so no node waits for another test's tool."""
    session = JavaSession()
    atexit.register(session.close)
    return session


def make_node(target: str, folder: Path, settings: dict[str, str] | None = None) -> Node:
    """A node of the named kind, not yet started."""
    kinds = {"headrace": HeadraceNode, "apache": ApacheNode}
    return kinds[target](folder, settings)
