"""Whose data folder this is: `meta.properties`, as Apache Kafka writes it.

Cluster id, node id and the id of the folder itself. A folder of another node is refused; a folder
without the file is new, and the file is written last, when everything else of a new cluster is
there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.environment import Disk
from headrace.protocol import uuids
from headrace.storage.checkpoints import (
    META_PROPERTIES,
    MalformedCheckpoint,
    properties_from_bytes,
    properties_to_bytes,
)


class UnusableFolder(Exception):
    """The data folder cannot be used; the sentence says why and what to do."""


@dataclass(slots=True)
class Identity:
    cluster_id: str
    node_id: int
    directory_id: bytes
    is_new: bool = False


def read_identity(
    disk: Disk, folder: str, node_id: int, randomness: Callable[[int], bytes]
) -> Identity:
    path = f"{folder}/{META_PROPERTIES}"
    if not disk.exists(path):
        return Identity(
            cluster_id=uuids.to_text(uuids.random_id(randomness(16))),
            node_id=node_id,
            directory_id=uuids.random_id(randomness(16)),
            is_new=True,
        )
    try:
        properties = properties_from_bytes(disk.read_file(path))
        identity = Identity(
            cluster_id=properties["cluster.id"],
            node_id=int(properties["node.id"]),
            directory_id=uuids.from_text(properties["directory.id"]),
        )
    except (MalformedCheckpoint, KeyError, ValueError) as problem:
        raise UnusableFolder(f"{path} cannot be understood: {problem}.") from problem
    if identity.node_id != node_id:
        raise UnusableFolder(
            f"The data in {folder} belongs to node {identity.node_id}, and this is node {node_id}: "
            f"start with --set node.id={identity.node_id}, or name another folder with --data."
        )
    return identity


def write_identity(disk: Disk, folder: str, identity: Identity) -> None:
    disk.write_file(
        f"{folder}/{META_PROPERTIES}",
        [
            properties_to_bytes(
                {
                    "version": "1",
                    "node.id": str(identity.node_id),
                    "cluster.id": identity.cluster_id,
                    "directory.id": uuids.to_text(identity.directory_id),
                }
            )
        ],
    )
