"""Three nodes, each broker and controller, as one cluster: Headrace's or Apache Kafka's.

Both are formatted and started as their users do it, by a properties file for each node, so that one
script of faults says something of both.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.wire.protocol import uuids
from tests import patience
from tests.interop.brokers import ApacheNode, HeadraceNode, Node, free_port
from tests.soak.private_network import PrivateNetwork

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
READY_WITHIN_S = 120.0
# What a cluster of three should have; sessions as both have them by default.
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Member(Node):
    """What a node of a cluster knows of itself and of the voters; mixed into both kinds."""

    node_id: int
    controller_port: int
    directory_id: str
    host: str
    port: int
    bootstrap: str
    properties: Path
    prefix: list[str]  # of the command, where it runs in a namespace of its own

    @property
    def voter(self) -> str:
        return f"{self.node_id}@{self.host}:{self.controller_port}:{self.directory_id}"

    def join(self, node_id: int) -> None:
        self.node_id = node_id
        self.controller_port = free_port()
        self.directory_id = uuids.to_text(uuids.random_id(os.urandom(16)))
        self.members: list[Member] = []
        self.prefix = []

    def move_to(self, network: PrivateNetwork) -> None:
        self.host = network.address(self.node_id)
        self.bootstrap = f"{self.host}:{self.port}"
        self.prefix = network.prefix(self.node_id)

    def properties_text(self, data: Path, bootstrap: str, settings: dict[str, str]) -> str:
        controller = f"{self.host}:{self.controller_port}"
        places = ",".join(f"{member.host}:{member.controller_port}" for member in self.members)
        all_of_them = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{bootstrap},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": places,
            "log.dirs": str(data),
        } | settings
        return "".join(f"{name}={value}\n" for name, value in all_of_them.items())

    @property
    def format_words(self) -> tuple[str, ...]:
        voters = ",".join(member.voter for member in self.members)
        return ("--initial-controllers", voters)


class HeadraceMember(Member, HeadraceNode):
    def __init__(self, folder: Path, node_id: int, settings: dict[str, str]) -> None:
        HeadraceNode.__init__(self, folder, settings)
        self.join(node_id)
        self.properties = folder / "server.properties"

    def start(self) -> None:
        self.properties.write_text(self.properties_text(self.data, self.bootstrap, self.settings))
        if not (self.data / "meta.properties").exists():
            words = ["--config", str(self.properties), "--cluster-id", CLUSTER_ID]
            command = [str(self.program), "format", *words, *self.format_words]
            subprocess.run(command, check=True, capture_output=True)
        super().start()

    @property
    def program(self) -> Path:
        return Path(sys.executable).with_name("headrace")

    def command(self) -> list[str]:
        words = ["start", "--config", str(self.properties)]
        if self.prefix:  # beyond loopback, on a network that nobody else is on
            words.append("--insecure")
        return [*self.prefix, str(self.program), *words]


class ApacheMember(Member, ApacheNode):
    def __init__(self, folder: Path, node_id: int, settings: dict[str, str]) -> None:
        ApacheNode.__init__(self, folder, settings)
        self.join(node_id)

    def write_properties(self) -> None:
        self.properties.write_text(self.properties_text(self.data, self.bootstrap, self.settings))

    def command(self) -> list[str]:
        return [*self.prefix, *super().command()]

    @property
    def format_identity(self) -> tuple[str, ...]:
        return self.format_words


class ThreeNodes:
    """The cluster; ended with all its processes when the block ends."""

    def __init__(
        self,
        target: str,
        folder: Path,
        settings: dict[str, str] | None = None,
        *,
        network: PrivateNetwork | None = None,
    ) -> None:
        """With a `network`, each node is in a namespace of its own and can be cut off."""
        kind = {"headrace": HeadraceMember, "apache": ApacheMember}[target]
        own = SETTINGS | (settings or {})
        self.members = [kind(folder / f"node-{n}", n, own) for n in (1, 2, 3)]
        for member in self.members:
            member.members = list(self.members)
            if network is not None:
                member.move_to(network)
        self.network = network
        self.bootstrap = ",".join(member.bootstrap for member in self.members)
        self.started_in_s = 0.0

    def __enter__(self) -> ThreeNodes:
        began = time.monotonic()
        try:
            with ThreadPoolExecutor(3) as threads:
                list(threads.map(lambda member: member.start(), self.members))
            wait_until(lambda: len(self.brokers()) == 3, "the three brokers never found each other")
        except BaseException:
            self.__exit__()
            raise
        self.started_in_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            if member.process is not None:
                member.process.send_signal(signal.SIGCONT)
            member.kill()

    @functools.cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def brokers(self) -> list[int]:
        try:
            return list(self.admin.list_topics(timeout=5).brokers)
        except KafkaException:
            return []

    def out_of_sync(self) -> list[str]:
        """Partitions that lack an in-sync replica or a leader; one line for each."""
        try:
            topics = self.admin.list_topics(timeout=5).topics
        except KafkaException as failure:
            return [f"no metadata: {failure}"]
        return [
            f"{name}-{number}: leader {partition.leader}, in sync {sorted(partition.isrs)}"
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < len(partition.replicas) or partition.leader < 0
        ]

    def wait_in_sync(self, within_s: float = READY_WITHIN_S) -> None:
        wait_until(
            lambda: not self.out_of_sync(),
            "the replicas never came in sync",
            within_s,
            more=lambda: "\n".join(self.out_of_sync()[:10]),
        )

    def logs(self) -> str:
        return "\n".join(
            f"---- node {member.node_id}\n{member.log_text()[-3000:]}" for member in self.members
        )


def wait_until(
    true: Callable[[], bool],
    otherwise: str,
    within_s: float = READY_WITHIN_S,
    more: Callable[[], str] = str,
) -> None:
    patience.until(true, lambda: f"{otherwise}: {more()}", within_s=within_s, every_s=0.1)


def is_stopped(node: Node) -> bool:
    stat = Path(f"/proc/{node.pid}/stat").read_text()
    return stat.rsplit(")", 1)[1].split()[0] == "T"
