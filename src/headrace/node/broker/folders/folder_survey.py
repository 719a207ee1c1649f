"""Checks the data folders of a node at its start: their owner, new ones, unusable ones.

`survey` reads every folder's `meta.properties` and refuses mistakes of an operator: a folder of
another node or cluster, one that is named twice, a metadata log in the wrong one. A folder that
cannot be read is failed, and the node starts without it. `take_new` formats new folders, once the
metadata is known: an empty folder may be the mount point of a missing disk, and is not touched
while replicas of this broker are in a directory that no folder has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from headrace.environment import Disk
from headrace.node.broker.folders.identity import (
    Identity,
    UnusableFolder,
    identity_from_bytes,
    write_identity,
)
from headrace.node.consensus.first_files import METADATA_FOLDER
from headrace.node.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
)
from headrace.node.storage.checkpoints import META_PROPERTIES, MalformedCheckpoint
from headrace.wire.protocol import uuids

log = logging.getLogger(__name__)

RESERVED_DIRECTORIES = frozenset((MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY))


@dataclass(slots=True)
class FolderSurvey:
    directories: dict[str, bytes] = field(default_factory=dict)  # ids by path, of usable folders
    unformatted: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # why, by path


def survey(
    disk: Disk,
    paths: Sequence[str],
    own: Identity,
    metadata_folder: str,
    failed: Iterable[tuple[str, str]] = (),
) -> FolderSurvey:
    """`own` is the identity of the metadata folder; `failed`: folders that could not be locked."""
    found = FolderSurvey(failed=dict(failed))
    for path in paths:
        if path == metadata_folder:
            found.directories[path] = own.directory_id
        elif path not in found.failed:
            _look_at(disk, path, own, metadata_folder, found)
    _require_different(found, own, metadata_folder)
    return found


def _look_at(
    disk: Disk, path: str, own: Identity, metadata_folder: str, found: FolderSurvey
) -> None:
    properties = f"{path}/{META_PROPERTIES}"
    try:
        if METADATA_FOLDER in disk.list(path):
            raise UnusableFolder(
                f"{path}/{METADATA_FOLDER} is a metadata log, and that of this node is in "
                f"{metadata_folder}: name that folder first in log.dirs, or by metadata.log.dir."
            )
        if not disk.exists(properties):
            found.unformatted.append(path)
            return
        identity = identity_from_bytes(disk.read_file(properties))
    except OSError as problem:
        found.failed[path] = problem.strerror or str(problem)
    except MalformedCheckpoint as problem:
        found.failed[path] = f"{META_PROPERTIES} is damaged: {problem}"
    else:
        _require_same_node(path, identity, own, metadata_folder)
        found.directories[path] = identity.directory_id


def _require_same_node(path: str, identity: Identity, own: Identity, metadata_folder: str) -> None:
    if own.is_new:
        raise UnusableFolder(
            f"{path} belongs to the cluster {identity.cluster_id}, and {metadata_folder}, which "
            "holds the metadata of this node, is empty: name the folder with the metadata first "
            "in log.dirs, or by metadata.log.dir."
        )
    if (identity.node_id, identity.cluster_id) != (own.node_id, own.cluster_id):
        raise UnusableFolder(
            f"{path} belongs to node {identity.node_id} of the cluster {identity.cluster_id}, and "
            f"{metadata_folder} to node {own.node_id} of {own.cluster_id}: they are not folders "
            "of one node."
        )


def _require_different(found: FolderSurvey, own: Identity, metadata_folder: str) -> None:
    seen = {own.directory_id: metadata_folder}
    for path, directory in found.directories.items():
        other = seen.setdefault(directory, path)
        if other != path:
            raise UnusableFolder(
                f"{path} and {other} have the same directory.id {uuids.to_text(directory)}: "
                "meta.properties of one is a copy of the other's."
            )


def take_new(
    disk: Disk,
    found: FolderSurvey,
    own: Identity,
    image: MetadataImage,
    randomness: Callable[[int], bytes],
) -> list[str]:
    """Format the new folders, and return them; a folder that cannot be formatted is failed."""
    unformatted, found.unformatted = found.unformatted, []
    new = []
    lost = lost_directories(image, own, found.directories.values()) if unformatted else set()
    for path in unformatted:
        if lost:
            ids = ", ".join(sorted(map(uuids.to_text, lost)))
            found.failed[path] = (
                f"it is empty, and replicas of this node lie in a folder with directory.id {ids}, "
                "which is missing: bring that disk back; or, to begin empty, stop this node and "
                "run `headrace format --ignore-formatted`"
            )
            continue
        identity = replace(own, directory_id=uuids.random_id(randomness(16)), is_new=False)
        try:
            disk.make_folder(path)
            write_identity(disk, path, identity)
        except OSError as problem:
            found.failed[path] = problem.strerror or str(problem)
            continue
        log.info(
            "%s is a new data folder of this node, directory.id %s",
            path,
            uuids.to_text(identity.directory_id),
        )
        found.directories[path] = identity.directory_id
        new.append(path)
    return new


def lost_directories(image: MetadataImage, own: Identity, there: Iterable[bytes]) -> set[bytes]:
    """Returns directories of this broker that are missing here: it has replicas in them, or was
    registered with them."""
    known = set(RESERVED_DIRECTORIES.union(there))
    registered = image.brokers.get(own.node_id)
    lost = set() if registered is None else set(registered.log_dirs) - known
    for topic in image.topics.values():
        for partition in topic.partitions:
            if own.node_id in partition.replicas:
                directory = partition.directories[partition.replicas.index(own.node_id)]
                if directory not in known:
                    lost.add(directory)
    return lost
