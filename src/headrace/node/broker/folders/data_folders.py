"""The data folders of this node: which are online, and which one holds a replica.

A new replica is created where the metadata or an operator placed it, or in the online folder with
the fewest partitions. A replica that is in no online folder may be in one that has failed: it is
offline then, and not created again. A failed folder stays offline until the node starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from headrace.node.broker.folders.folder_survey import RESERVED_DIRECTORIES, FolderSurvey
from headrace.node.storage.checkpoints import Partition
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_folder import LogFolder
from headrace.node.storage.partition_log import LogList, PartitionLog
from headrace.wire.protocol import uuids

log = logging.getLogger(__name__)

ALL_FOLDERS = "*"


class DataFolders:
    def __init__(
        self,
        open_files: OpenFiles,
        paths: tuple[str, ...],
        *,
        unwritten: Unwritten,
        wants_flush: LogList,
    ) -> None:
        self.paths = paths  # as configured
        self.online = {
            path: LogFolder(open_files, path, unwritten=unwritten, wants_flush=wants_flush)
            for path in paths
        }
        self.offline: dict[str, str] = {}  # reasons, by path
        # Directory ids of folders that have failed while they were in use.
        self.failed_directories: dict[str, bytes] = {}
        # The replicas that were in them, by topic and index.
        self.offline_replicas: dict[Partition, str] = {}
        self.moves = 0  # replicas that have moved between folders since the start
        # The folders that an operator chose for replicas that do not exist yet
        # (AlterReplicaLogDirs).
        self.preferred: dict[Partition, str] = {}
        self.cordoned: frozenset[str] = frozenset()  # paths that take no new replicas

    def adopt(self, found: FolderSurvey) -> None:
        """Take over the state of the folders before anything is read from them."""
        for path, directory in found.directories.items():
            self.online[path].directory_id = directory
        for path, why in found.failed.items():
            del self.online[path]
            self.offline[path] = why
            log.error(
                "the data folder %s is offline: %s. Its partitions are offline too, and this node "
                "continues with %s", path, why, ", ".join(self.online) or "none",
            )  # fmt: skip

    # Which are there

    @property
    def none_left(self) -> str | None:
        """Returns why this node cannot be a broker, or None if it can."""
        if self.online:
            return None
        reasons = "; ".join(f"{path}: {why}" for path, why in self.offline.items())
        return f"None of this node's data folders can be used ({reasons})."

    @property
    def directories(self) -> tuple[bytes, ...]:
        """Returns the ids of the online folders, as a registration names them."""
        return tuple(folder.directory_id for folder in self.online.values())

    def logs(self) -> Iterator[PartitionLog]:
        for folder in self.online.values():
            yield from folder.logs.values()

    @property
    def count(self) -> int:
        return sum(len(folder.logs) for folder in self.online.values())

    def holder(self, topic: str, index: int) -> LogFolder | None:
        """Returns the folder that has this replica."""
        key = topic, index
        for folder in self.online.values():
            if key in folder.logs:
                return folder
        return None

    def is_moving(self, topic: str, index: int) -> bool:
        """Whether a copy of this replica is on its way to another folder."""
        return any((topic, index) in folder.futures for folder in self.online.values())

    # Where replicas are

    def folder_for(self, topic: str, index: int, directory: bytes) -> LogFolder:
        """Returns the folder for a new replica, for which the metadata names this directory."""
        wanted = self.online.get(self.preferred.pop((topic, index), ""))
        if wanted is not None:
            return wanted
        named = (folder for folder in self.online.values() if folder.directory_id == directory)
        return next(named, None) or self.emptiest()

    def emptiest(self) -> LogFolder:
        """Cordoned folders are used if there is no other: the metadata has a replica here."""
        open_ones = [self.online[path] for path in self.online if path not in self.cordoned]
        return min(open_ones or self.online.values(), key=lambda folder: len(folder.logs))

    def cordon(self, named: tuple[str, ...]) -> None:
        """`named` is the value of `cordoned.log.dirs`: paths, or * for all."""
        wanted = {path.rstrip("/") or "/" for path in named}
        cordoned = frozenset(p for p in self.paths if ALL_FOLDERS in wanted or p in wanted)
        unknown = sorted(wanted - {*self.paths, ALL_FOLDERS})
        if cordoned != self.cordoned or unknown:
            log.info(
                "data folders that take no new partitions (cordoned.log.dirs): %s%s",
                ", ".join(sorted(cordoned)) or "none",
                f"; not data folders of this node: {', '.join(unknown)}" if unknown else "",
            )
        self.cordoned = cordoned

    @property
    def cordoned_directories(self) -> list[bytes]:
        return [self.online[path].directory_id for path in self.online if path in self.cordoned]

    def is_offline(self, topic: str, index: int, directory: bytes) -> bool:
        """Returns whether a replica is, or may be, in a folder that has failed."""
        if not self.offline or self.holder(topic, index) is not None:
            return False
        if not self.online or (topic, index) in self.offline_replicas:
            return True
        return directory not in RESERVED_DIRECTORIES and directory not in self.directories

    def directory_of(self, topic: str, index: int) -> bytes | None:
        """Returns the directory of this replica; None if it is not known (yet)."""
        if len(self.paths) == 1 and self.online:
            return self.directories[0]
        holder = self.holder(topic, index)
        if holder is not None:
            return holder.directory_id
        return self.failed_directories.get(self.offline_replicas.get((topic, index), ""))

    def fail(self, path: str, why: str) -> list[Partition]:
        """Take a folder offline; returns the replicas that are in it."""
        folder = self.online.pop(path)
        self.offline[path] = why
        self.failed_directories[path] = folder.directory_id
        lost = list(folder.logs)
        self.offline_replicas.update(dict.fromkeys(lost, path))
        self.moves += len(lost)
        for found in (*folder.logs.values(), *folder.futures.values()):
            found.let_go()
        log.error(
            "the data folder %s (directory.id %s) has failed: %s. Its %d partitions are offline; "
            "this node continues with %s. Check the disk, then start the node again",
            path, uuids.to_text(folder.directory_id), why, len(lost), ", ".join(self.online),
        )  # fmt: skip
        return lost
