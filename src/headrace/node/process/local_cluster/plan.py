"""The nodes of a cluster on one machine: their folders, ports, roles and settings.

The first three nodes are brokers and controllers, the others brokers; a cluster of fewer than three
has one controller (docs/decisions/0014). Broker i listens on the port P + i - 1. Controllers listen
on free ports of localhost, or from a given port on (`fix_controllers`). These, the cluster's id and
the ids of the controllers' folders are kept in `headrace-cluster.json` in the folder of node 1,
written before anything else is: a start that was interrupted is continued with them. Node i's
folder is beside that of node 1, and is named after it; each has a copy of the plan, so that the
loss of node 1's folder does not lose the plan.

A plan grows (`grow`) from the folder of a single node, or from fewer brokers than are wanted now.
Controllers that are added later are formatted without a quorum of their own and join the voters by
themselves, one after the other, when they have caught up (`controller.quorum.auto.join.enable`).
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.environment import Disk
from headrace.node.process.local_cluster.security import CLIENTS, NODES
from headrace.node.process.settings.settings import CannotStart
from headrace.node.storage.checkpoints import META_PROPERTIES
from headrace.wire.protocol import uuids

log = logging.getLogger(__name__)

FILE_NAME = "headrace-cluster.json"
FORMAT = 1
CONTROLLERS = 3
CONTROLLER_HOST = "localhost"
MOST_REPLICAS = 3
# The settings that the plan decides; a user who sets one of these does not want `--brokers`.
DECIDED = (
    "node.id",
    "broker.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.auto.join.enable",
)


@dataclass(slots=True)
class PlannedNode:
    id: int
    controller_port: int | None = None  # None: it is a broker only
    directory_id: str | None = None  # of its first folder, if that began the quorum
    formatted: bool = False  # from then on an empty folder is a lost one
    folder_id: str | None = None  # the directory id of the folder that it has now, once formatted

    @property
    def is_controller(self) -> bool:
        return self.controller_port is not None


@dataclass(slots=True)
class ClusterPlan:
    cluster_id: str
    nodes: list[PlannedNode] = field(default_factory=list)
    # The cluster-wide min.insync.replicas that its size asked for when it was last set; below what
    # the size asks for now, it is to be raised (`minimum_in_sync.py`).
    min_in_sync: int = 1
    generation: int = 0  # how often it was written: of two copies the higher one is newer
    more_folders: list[str] = field(default_factory=list)  # of node 1, besides its first
    controller_host: str = CONTROLLER_HOST
    # Controller i listens on this port plus i - 1; None: on a port that was free at first.
    first_controller_port: int | None = None

    def controller_addresses(self) -> list[str]:
        host = _bracketed(self.controller_host)
        return [f"{host}:{node.controller_port}" for node in self.controllers]

    @property
    def controllers(self) -> list[PlannedNode]:
        return [node for node in self.nodes if node.is_controller]

    def node(self, number: int) -> PlannedNode:
        return next(node for node in self.nodes if node.id == number)

    def initial_controllers(self) -> str:
        """The first controllers of the quorum, in the form of `--initial-controllers`."""
        return ",".join(
            f"{node.id}@{_bracketed(self.controller_host)}:{node.controller_port}:"
            f"{node.directory_id}"
            for node in self.controllers
            if node.directory_id is not None
        )

    def stop_order(self) -> list[list[int]]:
        brokers = [node.id for node in self.nodes if not node.is_controller]
        controllers = [[node.id] for node in reversed(self.controllers)]
        return [brokers, *controllers] if brokers else controllers


def folder_of(data: str, node: int) -> str:
    """Beside that of node 1, never inside: Apache Kafka refuses folders that it does not know."""
    if node == 1:
        return data
    named = data.rstrip("/")
    if os.path.basename(named) in ("", ".", ".."):  # no name that a number could follow
        named = os.path.abspath(named or "/")
    return f"{named}-{node}"


def new_plan(
    brokers: int, randomness: Callable[[int], bytes], ports: Callable[[int], list[int]]
) -> ClusterPlan:
    count = CONTROLLERS if brokers >= CONTROLLERS else 1
    found = ports(count)
    cluster_id = uuids.to_text(uuids.random_id(randomness(16)))
    plan = ClusterPlan(cluster_id, min_in_sync=minimum_in_sync(brokers))
    for number in range(1, brokers + 1):
        node = PlannedNode(number)
        if number <= count:
            node.controller_port = found[number - 1]
            node.directory_id = uuids.to_text(uuids.random_id(randomness(16)))
        plan.nodes.append(node)
    return plan


def plan_of_one(
    cluster_id: str, directory_id: str, ports: Callable[[int], list[int]]
) -> ClusterPlan:
    """Plans a cluster from the folder of a single node, which is the first and the only voter."""
    first = PlannedNode(1, ports(1)[0], directory_id, formatted=True, folder_id=directory_id)
    return ClusterPlan(cluster_id, [first])


def grow(plan: ClusterPlan, brokers: int, ports: Callable[[int], list[int]]) -> None:
    """More brokers; from three on there are three controllers."""
    assert brokers > len(plan.nodes), "fewer are for `shrink`"
    plan.nodes += [PlannedNode(number) for number in range(len(plan.nodes) + 1, brokers + 1)]
    if brokers >= CONTROLLERS:
        coming = [node for node in plan.nodes[:CONTROLLERS] if not node.is_controller]
        for node, port in zip(coming, ports(len(coming)), strict=True):
            node.controller_port = _fixed_port(plan, node) or port


def fix_controllers(plan: ClusterPlan, host: str, first_port: int) -> bool:
    """Let the controllers listen on these addresses, from this start on; returns whether that is
    news. CannotStart: several voters know each other by other addresses, and would not find each
    other at new ones."""
    before = plan.controller_addresses()
    changed = (plan.controller_host, plan.first_controller_port) != (host, first_port)
    is_agreed = len(plan.controllers) > 1 and any(node.formatted for node in plan.controllers)
    plan.controller_host, plan.first_controller_port = host, first_port
    for node in plan.controllers:
        node.controller_port = _fixed_port(plan, node)
    if is_agreed and plan.controller_addresses() != before:
        raise CannotStart(
            f"The controllers of this cluster know each other as {', '.join(before)}, so they "
            "cannot all move at once: leave --controller-listen out. Other nodes join it by these "
            "addresses."
        )
    return changed


def _fixed_port(plan: ClusterPlan, node: PlannedNode) -> int | None:
    first = plan.first_controller_port
    return None if first is None else first + node.id - 1


def replace_taken_ports(
    plan: ClusterPlan, is_free: Callable[[int], bool], ports: Callable[[int], list[int]]
) -> bool:
    """Choose other ports for controllers whose port another program uses now; returns whether there
    were any.

    The system may give these ports to any connection while the cluster is stopped. The other voters
    learn the new port from the node itself, which needs a majority that can be reached.
    """
    if plan.first_controller_port is not None:
        return False  # others know them; the node says that its port is taken
    if not all(node.formatted for node in plan.controllers):
        return False  # the first voters are not written to all folders yet
    taken = [
        node
        for node in plan.controllers
        if node.controller_port is not None and not is_free(node.controller_port)
    ]
    if not taken or 2 * len(taken) >= len(plan.controllers):
        return False
    for node, port in zip(taken, ports(len(taken)), strict=True):
        log.warning(
            "another program uses the port %s of the controller in broker %d, which takes %d now",
            node.controller_port,
            node.id,
            port,
        )
        node.controller_port = port
    return True


def shrink(plan: ClusterPlan, brokers: int) -> None:
    """Fewer brokers, none of which is a controller; their folders stay where they are."""
    leaving = plan.nodes[brokers:]
    assert not any(node.is_controller for node in leaving), "controllers stay"
    plan.nodes = plan.nodes[:brokers]


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
        return ClusterPlan(
            found["cluster_id"],
            nodes,
            # Older plans do not have it; they began with the value for their size.
            found.get("min_in_sync", minimum_in_sync(len(nodes))),
            found.get("generation", 0),
            found.get("more_folders", []),
            found.get("controller_host", CONTROLLER_HOST),
            found.get("first_controller_port"),
        )
    except OSError as problem:
        raise CannotStart(f"{path} cannot be read: {problem.strerror}.") from None
    except (ValueError, KeyError, TypeError) as fault:
        raise CannotStart(
            f"{path} cannot be understood: {fault}. Bring it back from a copy: the folder of every "
            "other broker has one."
        ) from fault


def read_copy(disk: Disk, data: str) -> ClusterPlan | None:
    """The newest copy in the folders beside that of node 1; None: there is none."""
    copies = [read_plan(disk, folder) for folder in folders_beside(data)]
    found = [copy for copy in copies if copy is not None]
    return max(found, key=lambda copy: copy.generation, default=None)


def folders_beside(data: str) -> list[str]:
    """The folders that could belong to nodes 2 and following, up to a gap of numbers that is larger
    than a lost folder leaves."""
    found, missing, number = [], 0, 2
    while missing < CONTROLLERS:
        folder = folder_of(data, number)
        missing = 0 if os.path.isdir(folder) else missing + 1
        if not missing:
            found.append(folder)
        number += 1
    return found


def write_plan(disk: Disk, data: str, plan: ClusterPlan) -> None:
    """To the folder of node 1, then its copies to those folders that are formatted.

    A folder that is lost gets its copy when it is formatted again, and a copy that a disk refuses
    is an old one: that of node 1 counts. CannotStart: that one cannot be written.
    """
    plan.generation += 1
    text = json.dumps({"format": FORMAT, **asdict(plan)}, indent=2)
    for node in plan.nodes:
        folder = folder_of(data, node.id)
        if not (node.id == 1 or node.formatted) or not disk.exists(folder):
            continue
        path = f"{folder}/{FILE_NAME}"
        try:
            disk.write_file(path, [text.encode(), b"\n"])
        except OSError as problem:
            if node.id == 1:
                raise CannotStart(f"{path} cannot be written: {problem.strerror}.") from None
            log.warning("%s cannot be written: %s", path, problem.strerror)


def settings_of(
    plan: ClusterPlan,
    node: PlannedNode,
    address: tuple[str, int],
    given: Mapping[str, Any],
    *,
    secured: bool = False,
) -> dict[str, str]:
    """Returns the settings that the plan decides, and those that a cluster of this size needs
    unless they are in `given`.

    `secured`: nodes have a listener of their own beside that of clients (`security.py`).
    """
    host, port = address
    listeners = [f"{CLIENTS if secured else 'PLAINTEXT'}://{_bracketed(host)}:{port}"]
    if secured:
        listeners.append(f"{NODES}://{CONTROLLER_HOST}:0")
    if node.is_controller:
        host = _bracketed(plan.controller_host)
        listeners.append(f"CONTROLLER://{host}:{node.controller_port}")
    decided = {
        "node.id": str(node.id),
        "process.roles": "broker,controller" if node.is_controller else "broker",
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(plan.controller_addresses()),
        # A controller that is added later, or restarts without its folder, joins the voters.
        "controller.quorum.auto.join.enable": "true",
    }
    usual = {name: text for name, text in replication_of(len(plan.nodes)).items()}
    return {name: text for name, text in usual.items() if name not in given} | decided


def replication_of(brokers: int) -> dict[str, str]:
    """Records in a cluster of this size survive the loss of one broker, if it has two."""
    replicas = min(MOST_REPLICAS, brokers)
    in_sync = minimum_in_sync(brokers)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }


def minimum_in_sync(brokers: int) -> int:
    return max(1, min(MOST_REPLICAS, brokers) - 1)


def free_ports(count: int, host: str = CONTROLLER_HOST) -> list[int]:
    """Returns ports that are not in use; all are held at the same time, so no two are the same."""
    family, _, _, _, address = socket.getaddrinfo(
        host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket(family))
            probe.bind(address)
            found.append(probe.getsockname()[1])
    return found


def is_free(port: int, host: str = CONTROLLER_HOST) -> bool:
    """Returns whether a controller can listen on the port."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


def lives_in(data: str) -> bool:
    """Returns whether the folder belongs to a cluster that was started with `--brokers`; it may be
    lost while the folders of the other nodes still exist."""
    if os.path.exists(os.path.join(data, FILE_NAME)):
        return True
    if os.path.exists(os.path.join(data, META_PROPERTIES)):
        return False
    beside = (os.path.join(folder, FILE_NAME) for folder in folders_beside(data))
    return any(os.path.exists(path) for path in beside)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
