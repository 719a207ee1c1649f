"""The two brokers as processes: started on a fresh folder and a free port, measured, ended by id.

Both keep their ordinary settings; where a question needs others, both get the same ones. Apache
Kafka runs with the flags of its own start script (1 GB heap, G1); its folder is formatted before
the clock of any start begins. Neither is told to flush: in both an acknowledged record is in the
page cache.
"""

from __future__ import annotations

import atexit
import compileall
import contextlib
import functools
import os
import random
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import headrace
from tests.interop.tools import kafka_jars, tool

from .processes import Memory, memory, processor_seconds
from .results import HEADRACE

HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
LOG4J_SETTINGS = Path(__file__).parents[1] / "tests" / "interop" / "apache" / "log4j2.xml"

# KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS as Apache's kafka-server-start.sh and
# kafka-run-class.sh of 4.3 set them.
JVM_FLAGS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# What Apache Kafka's own config/server.properties says for one node, without its comments.
APACHE_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}

API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)

_alive: set[subprocess.Popen[bytes]] = set()


@atexit.register
def _end_what_is_left() -> None:
    for process in _alive:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


# Below those that the system gives to outgoing connections, which come and go while we start.
PORTS = range(20_000, 32_000)


def free_port(count: int = 1) -> int:
    """The first of so many ports in a row on which nobody listens now."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        if all(_is_free(port + number) for number in range(count)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def answers_api_versions(port: int) -> bool:
    """Whether a whole reply to ApiVersions v0 comes back on a new connection."""
    try:
        with socket.create_connection((HOST, port), timeout=10) as connection:
            connection.sendall(API_VERSIONS_V0)
            head = connection.recv(10, socket.MSG_WAITALL)
            return len(head) == 10 and head[4:10] == struct.pack(">ih", 1, 0)
    except OSError:
        return False


@functools.cache
def cache_byte_code() -> None:
    """Leave Headrace as pip or a first start leaves it: with its byte code on disk.

    Some development machines forbid Python to write it, and then each start compiles everything.
    """
    compileall.compile_dir(Path(headrace.__file__).parent, quiet=1)


@dataclass(slots=True)
class Target:
    """Which broker, and where: a folder that outlives the process, so that it can start again."""

    name: str
    folder: Path
    cores: set[int] = field(default_factory=set)  # empty: all
    port: int = field(default_factory=free_port)
    prefix: tuple[str, ...] = ()  # what the broker runs under, e.g. a profiler
    settings: dict[str, str] = field(default_factory=dict)  # beyond its ordinary ones, for both
    listeners: dict[str, int] = field(default_factory=dict)  # by protocol, beside PLAINTEXT

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> Broker:
        """Start on what the folder holds and wait for the first answered request."""
        if self.name == HEADRACE:
            cache_byte_code()
        elif not (self.data / "meta.properties").exists():
            self._format()
        begin = time.perf_counter()
        process = self._spawn()
        broker = Broker(self, process, began=begin)
        deadline = begin + START_TIMEOUT_S
        while not answers_api_versions(self.port):
            if process.poll() is not None or time.perf_counter() > deadline:
                broker.kill()
                raise RuntimeError(f"{self.name} did not start:\n{self.log_tail()}")
            time.sleep(0.001)
        broker.start_s = time.perf_counter() - begin
        return broker

    def _spawn(self) -> subprocess.Popen[bytes]:
        """The process, on its cores from the first moment: a JVM counts them when it starts."""
        own_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores or own_cores)
        try:
            with (self.folder / "broker.log").open("ab") as log:
                process = subprocess.Popen(
                    self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
        finally:
            os.sched_setaffinity(0, own_cores)
        _alive.add(process)
        return process

    def log_tail(self) -> str:
        return (self.folder / "broker.log").read_text(errors="replace")[-4000:]

    def _command(self) -> list[str]:
        if self.name == HEADRACE:
            program = str(Path(sys.executable).with_name("headrace"))
            address = f"{HOST}:{self.port}"
            settings = [f"--set={name}={value}" for name, value in self.settings.items()]
            where = ["--data", str(self.data), "--listen", address]
            if self.listeners:
                where = ["--data", str(self.data), f"--set=listeners={self._listeners()}"]
            return [*self.prefix, program, "start", *where, *settings]
        return self.java(JVM_FLAGS, "kafka.Kafka", str(self.folder / "server.properties"))

    def _listeners(self) -> str:
        """The listeners for clients, as the setting names them."""
        places = {"PLAINTEXT": self.port} | self.listeners
        return ",".join(f"{name}://{HOST}:{port}" for name, port in places.items())

    def java(self, flags: tuple[str, ...], main_class: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={LOG4J_SETTINGS}"
        class_path = f"{kafka_jars()}/*"
        return [tool("java"), *flags, logging, "-cp", class_path, main_class, *arguments]

    def _format(self) -> None:
        controller = f"{HOST}:{free_port()}"
        settings = APACHE_SETTINGS | {
            "listeners": f"{self._listeners()},CONTROLLER://{controller}",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self.data),
            **self.settings,
        }
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster_id = urlsafe_b64encode(b"\x01" + secrets.token_bytes(15)).decode().rstrip("=")
        flags = ("-Xmx192m", "-XX:TieredStopAtLevel=1")
        arguments = ("format", "--standalone", "-t", cluster_id, "-c", str(properties))
        done = subprocess.run(
            self.java(flags, "kafka.tools.StorageTool", *arguments), capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"formatting failed:\n{done.stdout}{done.stderr}")


@dataclass(slots=True)
class Broker:
    """A running broker."""

    target: Target
    process: subprocess.Popen[bytes]
    began: float = 0.0  # time.perf_counter() when it was started
    start_s: float = 0.0  # from the start of the process to the first answered request

    @property
    def port(self) -> int:
        return self.target.port

    def processor_seconds(self) -> float:
        return processor_seconds(self.process.pid)

    def memory(self) -> Memory:
        return memory(self.process.pid)

    def stop(self) -> None:
        """SIGTERM and a clean end; what does not end is killed and reported."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.target.name} ignored SIGTERM") from None
        _alive.discard(self.process)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        _alive.discard(self.process)

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        _alive.discard(self.process)


@contextlib.contextmanager
def fresh_target(name: str, parent: Path | None, cores: set[int]) -> Iterator[Target]:
    """A target on a new folder, removed afterwards with all its unwritten pages.

    The sync in front keeps the pages that the run before left unwritten out of this run.
    """
    os.sync()
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-bench-{name}-", dir=parent))
    try:
        yield Target(name, folder, cores)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
