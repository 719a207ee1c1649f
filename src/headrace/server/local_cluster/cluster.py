"""A cluster on this machine from its folders: `headrace start --brokers N`.

`open_cluster` locks the folder of node 1 against a second start, reads or makes the plan, formats
the folders that are new, and gives what each node is started with; `run` then runs until all have
stopped. The plan notes each folder that was formatted, so a folder that is empty later is a lost
one: it is formatted anew under another directory id, never as the one that was lost.
Not done: `--secure`; controllers on other machines (`headrace format` and `start --config`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.server import java_properties
from headrace.server.addresses import parse_address
from headrace.server.folder_format import format_folder, initial_controllers, levels_of
from headrace.server.local_cluster.child import Order
from headrace.server.local_cluster.parent import Parent
from headrace.server.local_cluster.plan import (
    DECIDED,
    ClusterPlan,
    PlannedNode,
    folder_of,
    free_ports,
    new_plan,
    read_plan,
    settings_of,
    write_plan,
)
from headrace.server.local_cluster.process_title import set_title
from headrace.server.local_cluster.supervision import Supervision
from headrace.server.real_disk import FOLDER_MODE, FolderInUse, FolderLock, RealDisk
from headrace.server.settings import CannotStart, load_settings
from headrace.storage.checkpoints import META_PROPERTIES

LOCK = ".cluster-lock"
MOST_BROKERS = 100
DEFAULT_LISTEN = "localhost:9092"


@dataclass(slots=True)
class Wanted:
    """What the command was given."""

    data: str
    brokers: int | None  # None: as many as there are
    listen: str | None
    overrides: Mapping[str, str]
    config_file: Path | None = None
    metrics: str | None = None
    insecure: bool = False


@dataclass(slots=True)
class OpenCluster:
    plan: ClusterPlan
    orders: dict[int, Order]
    lock: FolderLock

    def close(self) -> None:
        self.lock.release()


def open_cluster(
    wanted: Wanted, *, randomness: Callable[[int], bytes], wall_ms: int
) -> OpenCluster:
    disk = RealDisk()
    given = _given(wanted)
    lock = _lock(wanted.data)
    try:
        plan = _plan(disk, wanted, randomness)
        addresses = _addresses(wanted, len(plan.nodes))
        orders = {
            node.id: _order(plan, node, address, given, wanted)
            for node, address in zip(plan.nodes, addresses, strict=True)
        }
        for node in plan.nodes:
            _format(disk, plan, node, orders[node.id], randomness, wall_ms)
            write_plan(disk, wanted.data, plan)
    except BaseException:
        lock.release()
        raise
    return OpenCluster(plan, orders, lock)


def run(
    cluster: OpenCluster,
    show: Callable[[dict[int, dict[str, Any]]], None],
    write: Callable[[str], None],
    *,
    coloured: bool,
) -> None:
    """Raises ClusterFailed; returns after all nodes have stopped."""
    set_title(f"headrace cluster of {len(cluster.orders)}", "headrace")
    supervision = Supervision(cluster.orders, cluster.plan.stop_order())
    try:
        Parent(supervision, cluster.orders, show=show, write=write, coloured=coloured).run()
    finally:
        cluster.close()


def _given(wanted: Wanted) -> dict[str, str]:
    """All that somebody has set, by a file or an option; what the plan decides cannot be."""
    given: dict[str, str] = {}
    if wanted.config_file is not None:
        # What is wrong with the file is said by `load_settings`, with its line.
        try:
            entries = java_properties.parse(wanted.config_file.read_bytes())
        except (OSError, java_properties.MalformedProperties):
            load_settings(config_file=wanted.config_file)
            raise
        given |= {entry.name: entry.value for entry in entries}
    given |= wanted.overrides
    decided = [name for name in DECIDED if name in given]
    if decided:
        raise CannotStart(
            f"{decided[0]} is decided by --brokers: leave it out, or start each node with a file "
            "of its own (`headrace start --config FILE`)."
        )
    return given


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


def _plan(disk: RealDisk, wanted: Wanted, randomness: Callable[[int], bytes]) -> ClusterPlan:
    plan = read_plan(disk, wanted.data)
    if plan is None:
        if disk.exists(f"{wanted.data}/{META_PROPERTIES}"):
            raise CannotStart(
                f"{wanted.data} holds a cluster of one, which cannot grow yet: name another folder "
                "with --data."
            )
        plan = new_plan(wanted.brokers or 1, randomness, free_ports)
        write_plan(disk, wanted.data, plan)
        return plan
    if wanted.brokers is not None and wanted.brokers != len(plan.nodes):
        _resize(plan, wanted.brokers, wanted.data)
        write_plan(disk, wanted.data, plan)
    return plan


def _resize(plan: ClusterPlan, brokers: int, data: str) -> None:
    has = len(plan.nodes)
    if brokers < has:
        raise CannotStart(
            f"The cluster of {data} has {has} brokers, whose replicas would be missing: start it "
            f"with --brokers {has}."
        )
    if len(plan.controllers) == 1 and brokers >= 3:
        raise CannotStart(
            f"The cluster of {data} has one controller and {has} brokers; it cannot grow to three "
            "controllers yet."
        )
    plan.nodes += [PlannedNode(number) for number in range(has + 1, brokers + 1)]


def _addresses(wanted: Wanted, count: int) -> list[tuple[str, int]]:
    host, port = parse_address(wanted.listen or DEFAULT_LISTEN, "--listen")
    if port == 0:
        return [(host, each) for each in free_ports(count, host)]
    if port + count - 1 > 65_535:
        raise CannotStart(f"There are not {count} ports from {port} on.")
    return [(host, port + number) for number in range(count)]


def _order(
    plan: ClusterPlan,
    node: PlannedNode,
    address: tuple[str, int],
    given: Mapping[str, str],
    wanted: Wanted,
) -> Order:
    metrics = wanted.metrics
    if metrics is not None:
        host, port = parse_address(metrics, "--metrics")
        metrics = f"{host}:{port + node.id - 1 if port else 0}"
    return Order(
        node=node.id,
        data=folder_of(wanted.data, node.id),
        overrides={**wanted.overrides, **settings_of(plan, node, address, given)},
        config_file=None if wanted.config_file is None else str(wanted.config_file),
        metrics=metrics,
        insecure=wanted.insecure,
    )


def _format(
    disk: RealDisk,
    plan: ClusterPlan,
    node: PlannedNode,
    order: Order,
    randomness: Callable[[int], bytes],
    wall_ms: int,
) -> None:
    settings = load_settings(
        config_file=order.config_file,
        overrides=order.overrides,
        data=order.data,
        metrics=order.metrics,
        insecure=order.insecure,
    )
    is_first = node.is_controller and not node.formatted
    names = settings.place.controller_listener
    identity = format_folder(
        disk,
        settings,
        cluster_id=plan.cluster_id,
        standalone=False,
        controllers=initial_controllers(plan.initial_controllers(), names) if is_first else None,
        levels=levels_of({}),
        randomness=randomness,
        wall_ms=wall_ms,
    )
    if identity.cluster_id != plan.cluster_id:
        raise CannotStart(
            f"{order.data} belongs to the cluster {identity.cluster_id}, not to that of this "
            f"folder's node 1, {plan.cluster_id}: name another folder with --data."
        )
    node.formatted = True
