"""Three brokers as one cluster, Headrace's or Apache Kafka's: started, measured and ended together.

Each node is broker and controller, in a process and on a folder of its own, started by a properties
file; both get the same settings. What is said of a broker in `brokers.py` holds for each of them.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import create_topics, metadata

from . import wire
from .brokers import APACHE_SETTINGS, HOST, JVM_FLAGS, Target, cache_byte_code, free_port
from .processes import memory, processor_seconds
from .results import HEADRACE

NODES = (1, 2, 3)
READY_WITHIN_S = 120.0
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}


@dataclass(slots=True)
class Cluster:
    """Three running nodes; `target` says which program and where."""

    target: Target
    ports: dict[int, int] = field(default_factory=dict)
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    start_s: float = 0.0  # from the first process to three brokers that know each other

    @classmethod
    def start(cls, target: Target, settings: dict[str, str] | None = None) -> Cluster:
        cluster = cls(target, {node: free_port() for node in NODES})
        cluster._format(SETTINGS | (settings or {}))
        begin = time.perf_counter()
        try:
            for node in NODES:
                cluster.start_node(node)
            cluster.wait_for_brokers(len(NODES))
        except BaseException:
            cluster.__exit__(None, None, None)
            raise
        cluster.start_s = time.perf_counter() - begin
        return cluster

    @property
    def port(self) -> int:
        """Of any node that lives."""
        return next(self.ports[node] for node in self.living)

    @property
    def living(self) -> list[int]:
        return list(self.processes)

    def processor_seconds(self) -> float:
        return sum(processor_seconds(process.pid) for process in self.processes.values())

    def resident_mb(self) -> float:
        return sum(memory(process.pid).resident_mb for process in self.processes.values())

    # Nodes

    def start_node(self, node: int) -> None:
        properties = str(self._folder(node) / "server.properties")
        if self.target.name == HEADRACE:
            command = [program(), "start", "--config", properties]
        else:
            command = self.target.java(JVM_FLAGS, "kafka.Kafka", properties)
        with (self._folder(node) / "broker.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill_node(self, node: int) -> None:
        """kill -9."""
        process = self.processes.pop(node)
        process.kill()
        process.wait()

    def _folder(self, node: int) -> Path:
        return self.target.folder / f"node-{node}"

    def _format(self, settings: dict[str, str]) -> None:
        controllers = {node: f"{HOST}:{free_port()}" for node in NODES}
        voters = ",".join(f"{node}@{place}:{_new_id()}" for node, place in controllers.items())
        cluster_id = _new_id()
        for node in NODES:
            self._folder(node).mkdir()
            properties = self._folder(node) / "server.properties"
            lines = APACHE_SETTINGS | {
                "node.id": str(node),
                "listeners": f"PLAINTEXT://{HOST}:{self.ports[node]},"
                f"CONTROLLER://{controllers[node]}",
                "controller.quorum.bootstrap.servers": ",".join(controllers.values()),
                "log.dirs": str(self._folder(node) / "data"),
                **settings,
            }
            properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            words = ["-t", cluster_id, "-c", str(properties), "--initial-controllers", voters]
            self._run_format(words)

    def _run_format(self, words: list[str]) -> None:
        if self.target.name == HEADRACE:
            cache_byte_code()
            command = [program(), "format", *words]
        else:
            flags = ("-Xmx192m", "-XX:TieredStopAtLevel=1")
            command = self.target.java(flags, "kafka.tools.StorageTool", "format", *words)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"formatting failed:\n{done.stdout}{done.stderr}")

    # What the brokers say

    def wait_for_brokers(self, count: int) -> None:
        """Until every node knows so many."""
        deadline = time.perf_counter() + READY_WITHIN_S
        for node in self.processes:
            while len(self._brokers_known_to(node)) < count:
                if time.perf_counter() > deadline or self.processes[node].poll() is not None:
                    log = (self._folder(node) / "broker.log").read_text(errors="replace")
                    raise RuntimeError(
                        f"node {node} of {self.target.name} is alone:\n{log[-3000:]}"
                    )
                time.sleep(0.005)

    def _brokers_known_to(self, node: int) -> list[int]:
        try:
            with wire.connect(self.ports[node]) as connection:
                request = metadata.MetadataRequest(topics=[])
                answer = wire.ask(connection, metadata, wire.METADATA_VERSION, request)
        except (OSError, ConnectionError):
            return []
        return [broker.node_id for broker in answer.brokers]

    def create_topic(self, name: str, partitions: int, replicas: int = 3) -> None:
        """And wait until each partition has its leader and all its replicas in sync."""
        topic = create_topics.CreatableTopic(name, partitions, replicas)
        request = create_topics.CreateTopicsRequest([topic], timeout_ms=wire.REQUEST_TIMEOUT_MS)
        with wire.connect(self.port) as connection:
            answer = wire.ask(connection, create_topics, wire.CREATE_TOPICS_VERSION, request)
        wire.succeed(answer.topics[0].error_code, f"create {name}")
        deadline = time.perf_counter() + READY_WITHIN_S
        while any(len(each.isr_nodes) < replicas for each in self._partitions(name, partitions)):
            if time.perf_counter() > deadline:
                raise TimeoutError(f"the replicas of {name} never came in sync")
            time.sleep(0.02)

    def _partitions(self, name: str, count: int) -> list[metadata.MetadataResponsePartition]:
        deadline = time.perf_counter() + READY_WITHIN_S
        while time.perf_counter() < deadline:
            with wire.connect(self.port) as connection:
                request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)])
                answer = wire.ask(connection, metadata, wire.METADATA_VERSION, request)
            found: list[metadata.MetadataResponsePartition] = answer.topics[0].partitions
            led = [each for each in found if each.error_code == ErrorCode.NONE]
            if len(led) == count:
                return sorted(led, key=lambda each: each.partition_index)
            time.sleep(0.005)
        raise TimeoutError(f"{name} has no leaders")

    def leader_of(self, name: str, partition: int, partitions: int) -> int:
        return self._partitions(name, partitions)[partition].leader_id

    def port_of(self, name: str, partition: int, partitions: int) -> int:
        return self.ports[self.leader_of(name, partition, partitions)]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for node in list(self.processes):
            self.kill_node(node)


@dataclass(slots=True)
class Watched(Cluster):
    """Three brokers of `headrace start --brokers 3`, under its parent."""

    parent: subprocess.Popen[str] | None = None
    pids: dict[int, int] = field(default_factory=dict)

    @classmethod
    def start(cls, target: Target, settings: dict[str, str] | None = None) -> Watched:
        cache_byte_code()
        folder = target.folder / "watched"
        folder.mkdir()
        where = ["--data", str(folder / "data"), "--listen", f"{HOST}:{free_port()}", "--json"]
        with (folder / "broker.log").open("wb") as log:
            parent = subprocess.Popen(
                [program(), "start", "--brokers", "3", *where],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert parent.stdout is not None
        ready = json.loads(parent.stdout.readline())
        found = cls(target, parent=parent)
        for broker in ready["brokers"]:
            found.ports[broker["id"]] = int(broker["address"].rsplit(":", 1)[1])
            found.pids[broker["id"]] = broker["pid"]
        found.wait_for_brokers(len(NODES))
        return found

    @property
    def living(self) -> list[int]:
        return list(self.pids)

    def wait_for_brokers(self, count: int) -> None:
        while any(len(self._brokers_known_to(node)) < count for node in self.ports):
            time.sleep(0.005)

    def kill_node(self, node: int) -> None:
        os.kill(self.pids.pop(node), signal.SIGKILL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        assert self.parent is not None
        self.parent.send_signal(signal.SIGINT)
        self.parent.wait(120)


def program() -> str:
    return str(Path(sys.executable).with_name("headrace"))


def _new_id() -> str:
    return urlsafe_b64encode(b"\x01" + secrets.token_bytes(15)).decode().rstrip("=")


def sync_disks() -> None:
    """So that no run pays for the unwritten pages of the one before."""
    os.sync()
