"""The data folders of a cluster on this machine: formatted when new, or again when lost.

A folder that is formatted in the plan and has no `meta.properties` any more is lost: its node comes
back empty under another directory id, so it never votes for the one that was lost, and the others
fill it. That needs a majority of the controllers: without one the metadata is lost, and nothing is
formatted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.environment import Disk
from headrace.node.broker.folders.identity import Identity, UnusableFolder, identity_from_bytes
from headrace.node.consensus.batches import batches_in
from headrace.node.consensus.first_files import METADATA_FOLDER
from headrace.node.consensus.snapshots import list_snapshots, read_snapshot
from headrace.node.process.folders.folder_format import (
    format_folder,
    initial_controllers,
    levels_of,
)
from headrace.node.process.folders.folder_locks import lock_folder
from headrace.node.process.local_cluster.child import Order
from headrace.node.process.local_cluster.plan import ClusterPlan, PlannedNode, folder_of, write_plan
from headrace.node.process.settings.settings import CannotStart, UnusableData
from headrace.node.storage.checkpoints import META_PROPERTIES, MalformedCheckpoint
from headrace.node.storage.log_folder import partition_of
from headrace.wire.protocol import uuids
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages.kraft_version_record import KRaftVersionRecord

log = logging.getLogger(__name__)


class Folders:
    def __init__(
        self, disk: Disk, data: str, randomness: Callable[[int], bytes], wall_ms: int
    ) -> None:
        self._disk = disk
        self._data = data
        self._randomness = randomness
        self._wall_ms = wall_ms

    def write(self, plan: ClusterPlan) -> None:
        write_plan(self._disk, self._data, plan)

    def prepare(self, plan: ClusterPlan, node: PlannedNode, order: Order) -> None:
        """Format the folder of `node` if it is new or lost."""
        if self._is_lost(node):
            self._require_others(plan)
            log.warning(
                "the data folder %s of broker %d is gone: it begins with an empty one, which the "
                "other brokers fill",
                order.data,
                node.id,
            )
            node.folder_id = None
        elif node.formatted and node.folder_id is not None:
            self._require_member(plan, node, order)
            return
        self._format(plan, node, order)
        node.folder_id = uuids.to_text(self._require_member(plan, node, order).directory_id)
        node.formatted = True
        self.write(plan)

    def _is_lost(self, node: PlannedNode) -> bool:
        folder = folder_of(self._data, node.id)
        return node.formatted and not self._disk.exists(f"{folder}/{META_PROPERTIES}")

    def _require_others(self, plan: ClusterPlan) -> None:
        lost = [node for node in plan.controllers if self._is_lost(node)]
        if 2 * len(lost) < len(plan.controllers):
            return
        folders = ", ".join(folder_of(self._data, node.id) for node in lost)
        raise CannotStart(
            f"{len(lost)} of {len(plan.controllers)} controllers have lost their data folders, and "
            f"with them the metadata of the cluster: {folders}. Bring them back from a copy, or "
            "begin another cluster with --data."
        )

    def _format(self, plan: ClusterPlan, node: PlannedNode, order: Order) -> None:
        settings = order.settings()
        # Only the controllers of a new cluster begin its quorum; others join it by themselves.
        begins = node.is_controller and node.directory_id is not None and not node.formatted
        names = settings.cluster.controller_listener
        first = initial_controllers(plan.initial_controllers(), names) if begins else None
        try:
            format_folder(
                self._disk,
                settings,
                cluster_id=plan.cluster_id,
                standalone=False,
                controllers=first,
                levels=levels_of({}),
                randomness=self._randomness,
                wall_ms=self._wall_ms,
            )
        except OSError as problem:
            raise CannotStart(
                f"The data folder {order.data} of broker {node.id} cannot be made: "
                f"{problem.strerror}. Repair that, then start again: it continues where it was."
            ) from None

    def _require_member(self, plan: ClusterPlan, node: PlannedNode, order: Order) -> Identity:
        identity = identity_in(self._disk, order.data)
        assert identity is not None, "just formatted, or looked for"
        if identity.cluster_id != plan.cluster_id:
            raise CannotStart(
                f"{order.data} belongs to the cluster {identity.cluster_id}, not to that of this "
                f"folder's node 1, {plan.cluster_id}: name another folder with --data."
            )
        directory = uuids.to_text(identity.directory_id)
        if node.folder_id is not None and directory != node.folder_id:
            raise CannotStart(
                f"{order.data} is an old folder of broker {node.id}: its directory.id is "
                f"{directory}, and the cluster has replaced it by {node.folder_id}. Put that one "
                "back, or move this one away: the others fill an empty folder."
            )
        return identity


def identity_in(disk: Disk, folder: str) -> Identity | None:
    """Returns the identity of a folder; None if it is not formatted."""
    path = f"{folder}/{META_PROPERTIES}"
    if not disk.exists(path):
        return None
    try:
        return identity_from_bytes(disk.read_file(path))
    except OSError as problem:
        raise UnusableData(f"{path} cannot be read: {problem.strerror}.") from None
    except (MalformedCheckpoint, UnusableFolder) as problem:
        raise UnusableData(
            f"{path} is damaged: {problem}. `headrace segment check {folder}` shows all damage."
        ) from None


def require_first(data: str, identity: Identity) -> None:
    """The other folders have copies of the plan, but a cluster is named by that of broker 1."""
    if identity.node_id == 1:
        return
    first = data.rstrip("/").removesuffix(f"-{identity.node_id}")
    its = f", {first}," if folder_of(first, identity.node_id) == data.rstrip("/") else ""
    raise CannotStart(
        f"{data} is the folder of broker {identity.node_id} of a cluster: name that of its broker "
        f"1{its} with --data."
    )


def require_growing(disk: Disk, data: str, identity: Identity) -> None:
    """A folder of one that can become the first of several."""
    lock_folder(data).release()  # CannotStart: its node runs
    if identity.node_id != 1:
        raise CannotStart(
            f"{data} is the folder of node {identity.node_id}; --brokers grows a cluster of one "
            "whose node is 1. Name another folder with --data."
        )
    if kraft_version_in(disk, f"{data}/{METADATA_FOLDER}") < 1:
        raise CannotStart(
            f"The cluster of {data} has kraft.version 0: its voters are configured, so none can be "
            "added. Raise it first, with its node running under Apache Kafka "
            "(kafka-features upgrade --feature kraft.version=1), or name another folder with "
            "--data."
        )


def partitions_in(disk: Disk, folder: str) -> int:
    """Returns how many partitions the node of this folder has."""
    return sum(partition_of(name) is not None for name in disk.list(folder))


def kraft_version_in(disk: Disk, folder: str) -> int:
    """The level that the latest snapshot and the log behind it name; damage is the start's."""
    version = 0
    try:
        for snapshot in list_snapshots(disk, folder)[-1:]:
            content = disk.read_file(f"{folder}/{snapshot.file_name}")
            version = read_snapshot(content, snapshot.file_name).kraft_version
        for name in sorted(disk.list(folder)):
            if version or not name.endswith(".log"):
                continue
            for batch in batches_in(memoryview(disk.read_file(f"{folder}/{name}"))):
                if batch.is_control:
                    for record in batch.records:
                        if isinstance(record, KRaftVersionRecord):
                            version = record.kraft_version
    except MalformedMessage as fault:
        log.warning("%s has damage: %s", folder, fault)
    return version
