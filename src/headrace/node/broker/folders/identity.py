"""The identity of a data folder: `meta.properties`, as Apache Kafka writes it.

Cluster id, node id and the id of the folder itself. A folder of another node is refused; a folder
without the file is new, and the file is written last, when everything else of a new cluster is
there: a folder without it that has a metadata log has lost it, and is not formatted again. A folder
with partitions and without any metadata has lost that (`find_lost_metadata`).
A comment carries a checksum: without it, a flipped bit in the cluster's id would go unnoticed.
Apache Kafka ignores the comment, and a file without it (Apache's own) is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from headrace.environment import Disk
from headrace.node.consensus.first_files import METADATA_FOLDER
from headrace.node.storage.checkpoints import (
    META_PROPERTIES,
    MalformedCheckpoint,
    properties_from_bytes,
    properties_to_bytes,
)
from headrace.wire.protocol import uuids

# As Kafka names the folder of a partition.
_PARTITION = re.compile(r"[A-Za-z0-9._-]{1,249}-\d{1,10}", re.ASCII)
_CHECKSUM = re.compile(rb"^#headrace\.crc32c=([0-9a-f]{8})\n", re.MULTILINE)


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
        _require_new(disk, folder, path)
        return Identity(
            cluster_id=uuids.to_text(uuids.random_id(randomness(16))),
            node_id=node_id,
            directory_id=uuids.random_id(randomness(16)),
            is_new=True,
        )
    try:
        identity = identity_from_bytes(disk.read_file(path))
    except MalformedCheckpoint as problem:
        raise UnusableFolder(f"{path} is damaged: {problem}. {_what_to_type(folder)}") from problem
    if identity.node_id != node_id:
        raise UnusableFolder(
            f"The data in {folder} belongs to node {identity.node_id}, and this is node {node_id}: "
            f"start with --set node.id={identity.node_id}, or name another folder with --data."
        )
    return identity


def identity_from_bytes(data: bytes) -> Identity:
    """Raises MalformedCheckpoint if the contents are not valid."""
    checksum = _CHECKSUM.search(data)
    if checksum is not None:
        rest = data[: checksum.start()] + data[checksum.end() :]
        if crc32c(rest) != int(checksum[1], 16):
            raise MalformedCheckpoint("its checksum does not fit")
    properties = properties_from_bytes(data)
    try:
        return Identity(
            cluster_id=properties["cluster.id"],
            node_id=int(properties["node.id"]),
            directory_id=uuids.from_text(properties["directory.id"]),
        )
    except KeyError as missing:
        raise MalformedCheckpoint(f"it has no {missing}") from missing
    except ValueError as problem:
        raise MalformedCheckpoint(str(problem)) from problem


def identity_to_bytes(identity: Identity) -> bytes:
    data = properties_to_bytes(
        {
            "version": "1",
            "node.id": str(identity.node_id),
            "cluster.id": identity.cluster_id,
            "directory.id": uuids.to_text(identity.directory_id),
        }
    )
    return f"#headrace.crc32c={crc32c(data):08x}\n".encode() + data


def write_identity(disk: Disk, folder: str, identity: Identity) -> None:
    disk.write_file(f"{folder}/{META_PROPERTIES}", [identity_to_bytes(identity)])


def _require_new(disk: Disk, folder: str, path: str) -> None:
    metadata = f"{folder}/{METADATA_FOLDER}"
    if any(
        name.endswith(".log") and disk.size(f"{metadata}/{name}") for name in disk.list(metadata)
    ):
        raise UnusableFolder(
            f"{path} is missing, but {metadata} holds the metadata of a cluster: nothing is "
            f"formatted again. Bring the file back from a copy. {_what_to_type(folder)}"
        )


def find_lost_metadata(disk: Disk, folder: str) -> str | None:
    """Returns the name of a partition in a folder that has lost its metadata; None if all is well.

    A folder that was only formatted has no partitions, and one that has served some has a metadata
    log that is not empty, or a snapshot.
    """
    metadata = f"{folder}/{METADATA_FOLDER}"
    for name in disk.list(metadata):
        if name.endswith((".log", ".checkpoint")) and disk.size(f"{metadata}/{name}"):
            return None
    partitions = (name for name in disk.list(folder) if _PARTITION.fullmatch(name))
    return min((name for name in partitions if name != METADATA_FOLDER), default=None)


def _what_to_type(folder: str) -> str:
    return (
        f"`headrace segment check {folder}` shows all damage, `headrace segment repair {folder}` "
        "offers ways; neither removes anything."
    )
