"""The nodes of a cluster on one machine: their folders, ports, roles and settings.

The first three nodes are brokers and controllers, the others brokers; a cluster of fewer than three
has one controller (docs/decisions/0014). Broker i listens on the port P + i - 1. Controllers listen
on free ports of localhost. These, the cluster's id and the ids of the controllers' folders are kept
in `headrace-cluster.json` in the folder of node 1, written before anything else is: a start that
was cut short goes on with them. Node i's folder lies beside that of node 1, and is named after it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.environment import Disk
from headrace.protocol import uuids
from headrace.server.settings import CannotStart

FILE_NAME = "headrace-cluster.json"
FORMAT = 1
CONTROLLERS = 3
CONTROLLER_HOST = "localhost"
MOST_REPLICAS = 3
# What the plan decides; whoever sets one of these wants something else than `--brokers`.
DECIDED = (
    "node.id",
    "broker.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
)


@dataclass(slots=True)
class PlannedNode:
    id: int
    controller_port: int | None = None  # None: it is a broker only
    directory_id: str | None = None  # of the folder's first life; None: no controller's
    formatted: bool = False  # from then on an empty folder is a lost one

    @property
    def is_controller(self) -> bool:
        return self.controller_port is not None


@dataclass(slots=True)
class ClusterPlan:
    cluster_id: str
    nodes: list[PlannedNode] = field(default_factory=list)

    @property
    def controllers(self) -> list[PlannedNode]:
        return [node for node in self.nodes if node.is_controller]

    def initial_controllers(self) -> str:
        """As `--initial-controllers` takes them."""
        return ",".join(
            f"{node.id}@{CONTROLLER_HOST}:{node.controller_port}:{node.directory_id}"
            for node in self.controllers
        )

    def stop_order(self) -> list[list[int]]:
        brokers = [node.id for node in self.nodes if not node.is_controller]
        controllers = [[node.id] for node in reversed(self.controllers)]
        return [brokers, *controllers] if brokers else controllers


def folder_of(data: str, node: int) -> str:
    """Beside that of node 1, never inside: Apache Kafka refuses folders that it does not know."""
    return data if node == 1 else f"{data.rstrip('/')}-{node}"


def new_plan(
    brokers: int, randomness: Callable[[int], bytes], ports: Callable[[int], list[int]]
) -> ClusterPlan:
    count = CONTROLLERS if brokers >= CONTROLLERS else 1
    found = ports(count)
    plan = ClusterPlan(uuids.to_text(uuids.random_id(randomness(16))))
    for number in range(1, brokers + 1):
        node = PlannedNode(number)
        if number <= count:
            node.controller_port = found[number - 1]
            node.directory_id = uuids.to_text(uuids.random_id(randomness(16)))
        plan.nodes.append(node)
    return plan


def read_plan(disk: Disk, data: str) -> ClusterPlan | None:
    """None: the folder is not of such a cluster, or new."""
    path = f"{data}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    try:
        found = json.loads(disk.read_file(path))
        if found["format"] != FORMAT:
            raise CannotStart(f"{path} was written by a newer Headrace (format {found['format']}).")
        nodes = [PlannedNode(**node) for node in found["nodes"]]
        return ClusterPlan(found["cluster_id"], nodes)
    except (ValueError, KeyError, TypeError) as fault:
        raise CannotStart(
            f"{path} cannot be understood: {fault}. Bring it back from a copy."
        ) from (fault)


def write_plan(disk: Disk, data: str, plan: ClusterPlan) -> None:
    text = json.dumps(
        {
            "format": FORMAT,
            "cluster_id": plan.cluster_id,
            "nodes": [asdict(node) for node in plan.nodes],
        },
        indent=2,
    )
    disk.write_file(f"{data}/{FILE_NAME}", [text.encode(), b"\n"])


def settings_of(
    plan: ClusterPlan, node: PlannedNode, address: tuple[str, int], given: Mapping[str, Any]
) -> dict[str, str]:
    """Those that the plan decides, and what a cluster of this size needs unless `given` says it."""
    host, port = address
    listeners = [f"PLAINTEXT://{_bracketed(host)}:{port}"]
    if node.is_controller:
        listeners.append(f"CONTROLLER://{CONTROLLER_HOST}:{node.controller_port}")
    decided = {
        "node.id": str(node.id),
        "process.roles": "broker,controller" if node.is_controller else "broker",
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(
            f"{CONTROLLER_HOST}:{each.controller_port}" for each in plan.controllers
        ),
    }
    usual = {name: text for name, text in replication_of(len(plan.nodes)).items()}
    return {name: text for name, text in usual.items() if name not in given} | decided


def replication_of(brokers: int) -> dict[str, str]:
    """What is written to a cluster of this size survives the loss of one broker, if it has two."""
    replicas = min(MOST_REPLICAS, brokers)
    in_sync = max(1, replicas - 1)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }


def free_ports(count: int, host: str = CONTROLLER_HOST) -> list[int]:
    """Nobody listens there now; held together, so no two are the same."""
    with ExitStack() as held:
        found = []
        for _ in range(count):
            probe = held.enter_context(socket.socket())
            probe.bind((host, 0))
            found.append(probe.getsockname()[1])
        return found


def lives_in(data: str) -> bool:
    """Whether the folder belongs to a cluster that was started with `--brokers`."""
    return os.path.exists(os.path.join(data, FILE_NAME))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
