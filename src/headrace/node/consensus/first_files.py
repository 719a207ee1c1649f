"""A new cluster's first files, as Apache's `kafka-storage format` writes them.

`bootstrap.checkpoint` in the data folder and the first voters in the metadata folder. The caller
must refuse to format a folder that already belongs to a cluster: `meta.properties`, which is
written last, shows that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from headrace.environment import Disk
from headrace.node.consensus.metadata_recovery import UnusableMetadata, what_to_type
from headrace.node.consensus.snapshots import (
    BOOTSTRAP_FILE,
    SnapshotId,
    read_snapshot,
    snapshot_batches,
)
from headrace.node.consensus.voters import Voter
from headrace.node.metadata.features import METADATA_VERSION, NEW_CLUSTER_LEVELS
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord

log = logging.getLogger(__name__)

METADATA_FOLDER = "__cluster_metadata-0"


def new_cluster_records() -> list[Any]:
    """Which levels a new cluster begins with."""
    return [
        FeatureLevelRecord(name=name, feature_level=level) for name, level in NEW_CLUSTER_LEVELS
    ]


def format_data_folder(
    disk: Disk, data_folder: str, *, voter: Voter, records: Iterable[Any], wall_ms: int
) -> None:
    """After this, and `meta.properties`, a node can start here as a quorum of one."""
    write_first_files(disk, data_folder, voters=(voter,), records=records, wall_ms=wall_ms)


def write_first_files(
    disk: Disk,
    data_folder: str,
    *,
    voters: tuple[Voter, ...],
    records: Iterable[Any],
    wall_ms: int,
    metadata_version: int = dict(NEW_CLUSTER_LEVELS)[METADATA_VERSION],
) -> None:
    """Without `voters` the folder does not name the voters; its node finds the quorum by its
    settings."""
    folder = f"{data_folder}/{METADATA_FOLDER}"
    disk.make_folder(folder)
    disk.write_file(
        f"{data_folder}/{BOOTSTRAP_FILE}",
        snapshot_batches(
            records,
            epoch=0,
            last_contained_ms=0,
            wall_ms=wall_ms,
            metadata_version=metadata_version,
        ),
    )
    if not voters:
        return
    disk.write_file(
        f"{folder}/{SnapshotId(0, 0).file_name}",
        snapshot_batches(
            (),
            epoch=0,
            last_contained_ms=wall_ms,
            wall_ms=wall_ms,
            metadata_version=metadata_version,
            kraft_version=1,
            voters=voters,
        ),
    )


def read_bootstrap(disk: Disk, data_folder: str, *, needed: bool = True) -> list[Any]:
    """Returns the first records of a cluster; without the file, the levels of a new cluster.

    `needed` is False if the metadata log has them already: then a damaged file is logged and
    ignored.
    """
    path = f"{data_folder}/{BOOTSTRAP_FILE}"
    if not disk.exists(path):
        return new_cluster_records()
    try:
        return read_snapshot(disk.read_file(path), BOOTSTRAP_FILE).records
    except MalformedMessage as fault:
        if needed:
            raise UnusableMetadata(
                f"{path} is damaged, and the cluster has not begun yet: {fault}. "
                f"{what_to_type(f'{data_folder}/{METADATA_FOLDER}')}"
            ) from fault
        log.error("%s is damaged and not needed any more: %s", path, fault)
        return []
