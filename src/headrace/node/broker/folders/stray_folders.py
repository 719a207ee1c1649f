"""Folders of partitions that no topic owns: kept for a long time, then removed with a log line.

A start renames such a folder to `NAME-stray`. Usually its topic was deleted while the node was
away; if it is many folders at once, the metadata has rather lost its topics, and the folders are
all that is left of them. So nothing is removed before `headrace.stray.retention.ms` is over,
counted from the file `stray-since` that the first start puts into the folder.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from crc32c import crc32c

from headrace.environment import Disk
from headrace.node.storage.log_folder import STRAY

log = logging.getLogger(__name__)

SINCE = "stray-since"  # wall-clock milliseconds and a checksum of them, as text
# Deleting a topic while a node is away is one topic's folders; more looks like lost metadata.
MANY = 10


def mark_strays(disk: Disk, data_folder: str, wall_ms: int) -> None:
    """Called at a start: mark the strays that have no mark, so that their retention time begins."""
    for name in _strays(disk, data_folder):
        path = f"{data_folder}/{name}/{SINCE}"
        if not disk.exists(path):
            with suppress(OSError):  # a full disk: the next start tries again
                disk.write_file(path, [_encoded(wall_ms)])


def say_loudly(new: int, remaining: int, data_folder: str) -> None:
    """Log that `new` folders have lost their topics in this start; `remaining` still have one."""
    if new >= MANY or (new > 1 and not remaining):
        log.critical(
            "%d of %d folders of partitions in %s belong to no topic any more: if you did not "
            "delete these topics, the metadata has lost them. Stop this node, look with `headrace "
            "segment check %s`, bring the metadata back from a copy; the folders are kept as *%s",
            new,
            new + remaining,
            data_folder,
            data_folder,
            STRAY,
        )


def remove_old_strays(disk: Disk, data_folder: str, wall_ms: int, retention_ms: int) -> None:
    """Remove strays after their retention time; waits for the disk. -1: nothing is ever removed. A
    folder whose mark is missing or cannot be read is kept: its age is unknown."""
    if retention_ms < 0:
        return
    for name in _strays(disk, data_folder):
        folder = f"{data_folder}/{name}"
        since_ms = _since(disk, folder)
        if since_ms is not None and wall_ms - since_ms >= retention_ms:
            days = (wall_ms - since_ms) / 86_400_000
            log.warning("removing %s: no topic has owned it for %.1f days", folder, days)
            disk.remove_folder(folder)


def _strays(disk: Disk, data_folder: str) -> list[str]:
    return [name for name in disk.list(data_folder) if name.endswith(STRAY)]


def _since(disk: Disk, folder: str) -> int | None:
    path = f"{folder}/{SINCE}"
    if not disk.exists(path):
        return None
    text = disk.read_file(path)
    moment = text.partition(b" ")[0]
    return int(moment) if moment.isdigit() and text == _encoded(int(moment)) else None


def _encoded(wall_ms: int) -> bytes:
    moment = str(wall_ms).encode()
    return moment + f" {crc32c(moment):08x}\n".encode()
