"""Restricts a data folder to its owner, also if an older version or Apache Kafka made it.

Partitions' folders and that of the metadata log, which holds the hashes of passwords, are closed to
others when a node starts. The data folder itself is closed too if it holds nothing but Kafka's
files; a folder that others share (`--data /tmp`) is left as it is, and the log says so. Not done:
files in folders that are closed already; no other user can reach them.
"""

from __future__ import annotations

import logging
import os

from headrace.node.consensus.first_files import METADATA_FOLDER
from headrace.node.consensus.snapshots import BOOTSTRAP_FILE
from headrace.node.storage import checkpoints
from headrace.node.storage.log_folder import DELETE, FUTURE, STRAY, partition_of
from headrace.private_files import FOLDER_MODE, OTHERS

log = logging.getLogger(__name__)

OWN_FILES = {
    ".lock",
    ".cluster-lock",
    "headrace-cluster.json",
    BOOTSTRAP_FILE,
    checkpoints.CLEAN_SHUTDOWN,
    checkpoints.CLEANED_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.META_PROPERTIES,
    checkpoints.RECOVERY_POINTS,
    checkpoints.START_OFFSETS,
}


def close_to_others(folder: str) -> None:
    """At a start, once the folder is locked."""
    with os.scandir(folder) as found:
        entries = list(found)
    folders = [entry.path for entry in entries if entry.is_dir() and is_own_folder(entry.name)]
    closed = sum(_close(path) for path in folders)
    if closed:
        log.warning(
            "%d folders in %s could be read by others, and cannot any more (mode 0700)",
            closed,
            folder,
        )
    if not _is_open(folder):
        return
    if all(entry.name in OWN_FILES or is_own_folder(entry.name) for entry in entries):
        if _close(folder):
            log.warning("%s could be read by others, and cannot any more (mode 0700)", folder)
    else:
        log.warning("others may see what %s holds; `chmod 700 %s` closes it", folder, folder)


def is_own_folder(name: str) -> bool:
    return (
        name == METADATA_FOLDER
        or partition_of(name) is not None
        or name.endswith((DELETE, FUTURE, STRAY))
    )


def _is_open(folder: str) -> bool:
    return bool(os.stat(folder).st_mode & OTHERS)


def _close(folder: str) -> bool:
    """True if it was open and is closed now."""
    if not _is_open(folder):
        return False
    try:
        os.chmod(folder, FOLDER_MODE)
    except OSError as problem:
        log.warning("others may read %s: chmod 700 failed: %s", folder, problem.strerror)
        return False
    return True
