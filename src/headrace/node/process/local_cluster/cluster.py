"""A cluster on this machine from its folders: `headrace start --brokers N`.

`open_cluster` locks the folder of node 1 against a second start, reads, makes or grows the plan,
formats the folders that are new, and gives what each node is started with; `run` then runs until
all have stopped. The plan records each folder that was formatted, so a folder that is empty later
was lost. It is formatted under a new directory id, never under the lost one's, and filled from the
other nodes (`prepare`, before each start of a node). Nodes of other machines join with a
file of their own (`headrace format` and `start --config`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.node.consensus.configured_voters import HIGHEST_PORT
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.process.folders.real_disk import FOLDER_MODE, FolderInUse, FolderLock, RealDisk
from headrace.node.process.listeners.addresses import bracketed, parse_address
from headrace.node.process.local_cluster import security
from headrace.node.process.local_cluster.child import Order
from headrace.node.process.local_cluster.folders import (
    Folders,
    identity_in,
    partitions_in,
    require_first,
    require_growing,
)
from headrace.node.process.local_cluster.parent import Parent
from headrace.node.process.local_cluster.plan import (
    CONTROLLERS,
    DECIDED,
    ClusterPlan,
    PlannedNode,
    fix_controllers,
    folder_of,
    free_ports,
    grow,
    is_free,
    minimum_in_sync,
    new_plan,
    plan_of_one,
    read_copy,
    read_plan,
    replace_taken_ports,
    settings_of,
    shrink,
    write_plan,
)
from headrace.node.process.local_cluster.process_title import set_title
from headrace.node.process.local_cluster.supervision import Supervision
from headrace.node.process.settings import java_properties
from headrace.node.process.settings.settings import CannotStart, UnusableData, load_settings
from headrace.wire.protocol import uuids

log = logging.getLogger(__name__)

LOCK = ".cluster-lock"
MOST_BROKERS = 100
DEFAULT_LISTEN = "localhost:9092"
LONGEST_WAIT_FOR_ORPHANS_S = 15.0

Address = tuple[str, int]


@dataclass(slots=True)
class Wanted:
    """The options of the command."""

    data: str
    brokers: int | None  # None: as many as there are
    listen: str | None
    overrides: Mapping[str, str]
    config_file: Path | None = None
    metrics: str | None = None
    insecure: bool = False
    secure: Path | None = None  # a folder of `headrace security init`
    log_dirs: tuple[str, ...] = ()  # all data folders of node 1, `data` first; (): as before
    controller_listen: str | None = None  # of the first controller; None: as before


@dataclass(slots=True)
class OpenCluster:
    plan: ClusterPlan
    orders: dict[int, Order]
    lock: FolderLock
    folders: Folders

    def prepare(self, node: int) -> None:
        """Before each start of a node: its folder may be lost. CannotStart: it must not start."""
        self.folders.prepare(self.plan, self.plan.node(node), self.orders[node])

    @property
    def former_min_in_sync(self) -> int | None:
        """The cluster has grown, and its minimum may still be this one of its former size."""
        wanted = minimum_in_sync(len(self.plan.nodes))
        return self.plan.min_in_sync if self.plan.min_in_sync < wanted else None

    def min_in_sync_is_raised(self) -> None:
        if self.former_min_in_sync is not None:
            self.plan.min_in_sync = minimum_in_sync(len(self.plan.nodes))
            try:
                self.folders.write(self.plan)
            except CannotStart as refusal:  # the next start looks once more
                log.warning("%s", refusal)

    def close(self) -> None:
        self.lock.release()


def open_cluster(
    wanted: Wanted, *, randomness: Callable[[int], bytes], wall_ms: int
) -> OpenCluster:
    disk = RealDisk()
    given = _given(wanted)
    _addresses(wanted, wanted.brokers or 1)  # fails on a wrong address before a plan is written
    lock = _lock(wanted.data)
    try:
        plan = _plan(disk, wanted, randomness)
        _await_orphans([folder_of(wanted.data, node.id) for node in plan.nodes])
        if replace_taken_ports(plan, is_free, free_ports):
            write_plan(disk, wanted.data, plan)
        addresses, metrics = _addresses(wanted, len(plan.nodes))
        between = security.new_secrets(randomness)
        orders = {
            node.id: _order(plan, node, address, served, given, wanted, between)
            for node, address, served in zip(plan.nodes, addresses, metrics, strict=True)
        }
        folders = Folders(disk, wanted.data, randomness, wall_ms)
        _prepare_all(folders, plan, orders)
    except BaseException:
        lock.release()
        raise
    return OpenCluster(plan, orders, lock, folders)


def _prepare_all(folders: Folders, plan: ClusterPlan, orders: Mapping[int, Order]) -> None:
    """Prepare all folders. Damaged ones are skipped if the other nodes can serve without them: the
    parent checks again before it starts a node, and leaves it out."""
    damaged: list[int] = []
    for node in plan.nodes:
        try:
            folders.prepare(plan, node, orders[node.id])
        except UnusableData:
            damaged += [node.id] if node.is_controller else []
            if 2 * len(damaged) >= len(plan.controllers):
                raise


def run(
    cluster: OpenCluster,
    show: Callable[[dict[int, dict[str, Any]]], None],
    write: Callable[[str], None],
    *,
    coloured: bool,
) -> None:
    """Raises ClusterFailed; returns after all nodes have stopped."""
    set_title(f"headrace cluster of {len(cluster.orders)}", "headrace")
    plan = cluster.plan
    controllers = [node.id for node in plan.controllers]
    supervision = Supervision(cluster.orders, plan.stop_order(), controllers)
    try:
        Parent(supervision, cluster, show=show, write=write, coloured=coloured).run()
    finally:
        cluster.close()


def _given(wanted: Wanted) -> dict[str, str]:
    """Returns all settings from a file or an option; those that the plan decides may not be among
    them."""
    given: dict[str, str] = {}
    if wanted.config_file is not None:
        given |= _read(wanted.config_file)
    given |= wanted.overrides
    secured = wanted.secure is not None
    decided = [name for name in (*DECIDED, *(security.DECIDED if secured else ())) if name in given]
    if wanted.secure is not None:
        given = {**_read(wanted.secure / "server.properties", wanted.secure), **given}
    if decided:
        raise CannotStart(
            f"{decided[0]} is decided by --brokers: leave it out, or start each node with a file "
            "of its own (`headrace start --config FILE`)."
        )
    return given


def _read(path: Path, secure: Path | None = None) -> dict[str, str]:
    """`load_settings` reports errors of the file, with the line."""
    try:
        entries = java_properties.parse(path.read_bytes())
    except (OSError, java_properties.MalformedProperties):
        load_settings(config_file=None if secure else path, secure=secure)
        raise
    return {entry.name: entry.value for entry in entries}


def _lock(data: str) -> FolderLock:
    try:
        os.makedirs(data, mode=FOLDER_MODE, exist_ok=True)
        return FolderLock(data, LOCK)
    except FolderInUse:
        raise CannotStart(
            f"The cluster of {data} runs already; stop it, or name another folder with --data."
        ) from None
    except OSError as problem:
        raise CannotStart(f"The data folder {data} cannot be used: {problem.strerror}.") from None


def _await_orphans(folders: list[str]) -> None:
    """Wait until the nodes of a parent that was killed have ended: they end by themselves, but hold
    their folders and ports until then. If another process still uses a folder, the node reports
    it."""
    until_s = time.monotonic() + LONGEST_WAIT_FOR_ORPHANS_S
    for folder in folders:
        if _is_in_use(folder):
            log.warning("%s is still in use: waiting for the node of a former start", folder)
        while _is_in_use(folder) and time.monotonic() < until_s:
            time.sleep(0.1)


def _is_in_use(folder: str) -> bool:
    try:
        if os.path.isdir(folder):
            FolderLock(folder).release()
    except FolderInUse:
        return True
    except OSError:  # the node says what is wrong with it
        return False
    return False


def _plan(disk: RealDisk, wanted: Wanted, randomness: Callable[[int], bytes]) -> ClusterPlan:
    data = wanted.data
    plan = read_plan(disk, data)
    try:
        identity = identity_in(disk, data)
    except UnusableData:
        if plan is None:
            raise
        identity = None  # the plan names the cluster, and the others may serve
    if plan is not None and identity is not None:
        require_first(data, identity)
    if plan is None:
        copy = read_copy(disk, data)
        if copy is not None and (identity is None or identity.cluster_id == copy.cluster_id):
            plan = copy
        elif identity is not None:
            require_growing(disk, data, identity)
            directory = uuids.to_text(identity.directory_id)
            plan = plan_of_one(identity.cluster_id, directory, free_ports)
        else:
            plan = new_plan(wanted.brokers or 1, randomness, free_ports)
            _name_folders(disk, plan, wanted)
            _fix_controllers(plan, wanted)
            write_plan(disk, data, plan)
            return plan
    is_changed = _name_folders(disk, plan, wanted)
    is_changed = _fix_controllers(plan, wanted) or is_changed
    if wanted.brokers is not None and wanted.brokers != len(plan.nodes):
        _resize(disk, plan, wanted.brokers, data)
        is_changed = True
    if is_changed:
        write_plan(disk, data, plan)
    return plan


def _fix_controllers(plan: ClusterPlan, wanted: Wanted) -> bool:
    if wanted.controller_listen is None:
        return False
    host, port = _in_a_row(wanted.controller_listen, "--controller-listen", CONTROLLERS)[0]
    if not port or host in ("", "0.0.0.0", "::"):
        raise CannotStart(
            "--controller-listen needs the address by which other nodes reach the controllers, and "
            f"the first of their ports, such as 10.0.0.5:9093; not {wanted.controller_listen}."
        )
    return fix_controllers(plan, host, port)


def _name_folders(disk: RealDisk, plan: ClusterPlan, wanted: Wanted) -> bool:
    """Keep the data folders in the plan, so that the next start need not name them. Returns whether
    they have changed."""
    if not wanted.log_dirs:
        return False
    named = [os.path.abspath(path) for path in wanted.log_dirs[1:]]
    for path in plan.more_folders:
        held = sum(partitions_in(disk, folder_of(path, node.id)) for node in plan.nodes)
        if held and path not in named:
            raise CannotStart(
                f"The cluster of {wanted.data} holds {held} partitions in {path} and beside it: "
                "name that folder in log.dirs too, or leave log.dirs out."
            )
    is_news = named != plan.more_folders
    plan.more_folders = named
    return is_news


def _resize(disk: RealDisk, plan: ClusterPlan, brokers: int, data: str) -> None:
    if brokers > len(plan.nodes):
        grow(plan, brokers, free_ports)
        return
    has = len(plan.nodes)
    if plan.nodes[brokers].is_controller:
        raise CannotStart(
            f"The cluster of {data} has {has} brokers, and the first {len(plan.controllers)} are "
            f"its controllers, which stay: start it with --brokers {has}."
        )
    for node in plan.nodes[brokers:]:
        folders = [folder_of(path, node.id) for path in (data, *plan.more_folders)]
        held = sum(partitions_in(disk, folder) for folder in folders)
        if held:
            raise CannotStart(
                f"Broker {node.id} of {data} still holds {held} partitions: start the cluster with "
                f"--brokers {has}, move them away with `headrace cluster remove-broker {node.id}`, "
                f"then start it with --brokers {brokers}."
            )
    shrink(plan, brokers)


def _addresses(wanted: Wanted, count: int) -> tuple[list[Address], list[str | None]]:
    """Returns the address of each node for clients, and where its metrics are served."""
    clients = _in_a_row(wanted.listen or DEFAULT_LISTEN, "--listen", count)
    host, port = clients[0]
    if port == 0:
        try:
            clients = [(host, each) for each in free_ports(count, host)]
        except OSError as problem:
            raise CannotStart(f"Cannot listen on {host}:0: {problem.strerror}.") from None
    if wanted.metrics is None:
        return clients, [None] * count
    metrics = _in_a_row(wanted.metrics, "--metrics", count)
    return clients, [f"{bracketed(host)}:{port}" for host, port in metrics]


def _in_a_row(text: str, option: str, count: int) -> list[Address]:
    """An address for each node, the ports one after the other; 0 stays 0."""
    try:
        host, port = parse_address(text, option)
    except BadValue as fault:
        raise CannotStart(str(fault)) from None
    if port and port + count - 1 > HIGHEST_PORT:
        raise CannotStart(f"There are not {count} ports from {port} on: see {option}.")
    return [(host, port + number if port else 0) for number in range(count)]


def _order(
    plan: ClusterPlan,
    node: PlannedNode,
    address: Address,
    metrics: str | None,
    given: Mapping[str, str],
    wanted: Wanted,
    between: security.Secrets,
) -> Order:
    is_secured = wanted.secure is not None
    decided = settings_of(plan, node, address, given, secured=is_secured)
    if is_secured:
        decided |= security.settings_between_nodes(between, given)
    elif wanted.insecure and plan.first_controller_port is not None:
        decided |= security.settings_of_open_controllers(given)
    else:
        decided |= security.settings_of_controllers(between, given)
    if plan.more_folders:
        folders = (wanted.data, *plan.more_folders)
        decided["log.dirs"] = ",".join(folder_of(path, node.id) for path in folders)
    return Order(
        node=node.id,
        data=folder_of(wanted.data, node.id),
        overrides={**wanted.overrides, **decided},
        config_file=None if wanted.config_file is None else str(wanted.config_file),
        metrics=metrics,
        insecure=wanted.insecure,
        secure=None if wanted.secure is None else str(wanted.secure),
        delay_client=security.delay_client(between, given) if is_secured else None,
    )
