"""One data folder: a folder per partition, and the small files about all of them.

On start the partitions are found again, each from its own checkpointed recovery point; folders
marked for deletion (`-delete`) are deleted. `__cluster_metadata-0` is in the same folder but
belongs to the quorum. The clean-shutdown file is removed, durably, before anything else may happen,
and written only when everything is on the disk. A start that ends before it has found its
partitions leaves every file unchanged. This module does not know the cluster, nor other data
folders of the node (`broker/folders/data_folders.py`): the caller says which partitions exist and
which are strays.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from headrace.node.storage import checkpoints
from headrace.node.storage.checkpoints import MalformedCheckpoint, Partition
from headrace.node.storage.durability.flush import Together, one_by_one
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.partition_log import LogList, PartitionLog

log = logging.getLogger(__name__)

EMPTY_CHECKPOINT = checkpoints.offsets_to_bytes({})
METADATA_TOPIC = "__cluster_metadata"
DELETE = "-delete"
STRAY = "-stray"
FUTURE = "-future"
LONGEST_NAME = 255
CLOSED_TOGETHER = 256  # bounds the files that wait for their flush
_PARTITION_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<index>[0-9]+)")
_FUTURE_FOLDER = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<index>[0-9]+)\.[0-9a-f]{32}" + FUTURE
)


class LogFolder:
    __slots__ = (
        "path",
        "directory_id",
        "logs",
        "futures",
        "topic_ids",
        "was_clean",
        "is_loaded",
        "high_watermarks",
        "last_broker_epoch",
        "_open_files",
        "_unwritten",
        "_wants_flush",
    )

    def __init__(
        self, open_files: OpenFiles, path: str, *, unwritten: Unwritten, wants_flush: LogList
    ) -> None:
        """Both lists are handed to every log, see `PartitionLog`."""
        self.path = path
        self.directory_id = bytes(16)  # as meta.properties says it
        self.logs: dict[Partition, PartitionLog] = {}
        # Copies of replicas from other data folders that are being moved here.
        self.futures: dict[Partition, PartitionLog] = {}
        self.topic_ids: dict[Partition, bytes] = {}  # as partition.metadata says
        self.was_clean = False
        self.is_loaded = False  # all partitions are found, and may be spoken for
        self.high_watermarks: dict[Partition, int] = {}  # as the last start noted them
        self.last_broker_epoch = -1  # of a clean shutdown (KIP-966)
        self._open_files = open_files
        self._unwritten = unwritten
        self._wants_flush = wants_flush

    # --- start

    def load(self, settings_for: Callable[[str], LogSettings], *, wall_ms: int) -> Iterator[None]:
        """Find the partitions again, one in each step; this reads as much as their last end makes
        necessary. `settings_for` is asked once for each topic."""
        self._take_clean_shutdown_file()
        settings_for = cache(settings_for)
        disk = self._open_files.disk
        names = disk.list(self.path)
        if not any(map(partition_of, names)):
            # A checkpoint that is missing later was lost.
            disk.write_file(f"{self.path}/{checkpoints.RECOVERY_POINTS}", [EMPTY_CHECKPOINT])
        recovery_points = self._offsets(checkpoints.RECOVERY_POINTS)
        start_offsets = self._offsets(checkpoints.START_OFFSETS) or {}
        self.high_watermarks = self._offsets(checkpoints.HIGH_WATERMARKS) or {}
        compacted = self._offsets(checkpoints.CLEANED_OFFSETS) or {}
        for name in names:
            if name.endswith(DELETE):
                disk.remove_folder(f"{self.path}/{name}")
                continue
            self._load_future(name, settings_for, wall_ms)
            partition = partition_of(name)
            if partition is None:
                continue
            self.logs[partition] = PartitionLog.open(
                self._open_files,
                f"{self.path}/{name}",
                settings_for(partition[0]),
                now_wall_ms=wall_ms,
                recovery_point=_known(recovery_points, partition),
                start_offset=start_offsets.get(partition),
                clean=self.was_clean,
                was_compacted=partition in compacted,
                unwritten=self._unwritten,
                wants_flush=self._wants_flush,
            )
            self._read_topic_id(partition, f"{self.path}/{name}")
            if self.was_clean and has_lost_records(self.logs[partition]):
                # The controller must not assume that this start has all records of the last one.
                self.last_broker_epoch = -1
            yield
        self.is_loaded = True

    def _load_future(
        self, name: str, settings_for: Callable[[str], LogSettings], wall_ms: int
    ) -> None:
        """A move that the last stop has interrupted: it is made again from its beginning."""
        partition = future_of(name)
        if partition is not None:
            self.futures[partition] = self._open(
                f"{self.path}/{name}", settings_for(partition[0]), wall_ms=wall_ms, clean=False
            )

    def _open(
        self,
        folder: str,
        settings: LogSettings,
        *,
        wall_ms: int,
        clean: bool,
        start_offset: int = 0,
        recovery_point: int = 0,
    ) -> PartitionLog:
        return PartitionLog.open(
            self._open_files,
            folder,
            settings,
            now_wall_ms=wall_ms,
            start_offset=start_offset,
            recovery_point=recovery_point,
            clean=clean,
            unwritten=self._unwritten,
            wants_flush=self._wants_flush,
        )

    def _take_clean_shutdown_file(self) -> None:
        disk = self._open_files.disk
        path = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        self.was_clean = disk.exists(path)
        if self.was_clean:
            self.last_broker_epoch = checkpoints.broker_epoch_of_clean_shutdown(
                disk.read_file(path)
            )
            disk.remove(path)
            # A power cut must not bring the file back when the logs have moved on.
            disk.flush_folder(self.path)

    def _offsets(self, name: str) -> dict[Partition, int] | None:
        """None: the checkpoint is missing or damaged, which costs a longer recovery only."""
        disk = self._open_files.disk
        path = f"{self.path}/{name}"
        if not disk.exists(path):
            return None
        try:
            return checkpoints.offsets_from_bytes(disk.read_file(path))
        except MalformedCheckpoint as problem:
            log.error(
                "%s cannot be read (%s): its contents are found again in the logs", path, problem
            )
            return None

    def _read_topic_id(self, partition: Partition, folder: str) -> None:
        """Read the topic id. It stays unknown if the file is missing, damaged or was not flushed
        before a power cut; the code that knows the topic assigns the id then."""
        disk = self._open_files.disk
        path = f"{folder}/{checkpoints.PARTITION_METADATA}"
        if disk.exists(path):
            try:
                self.topic_ids[partition] = checkpoints.topic_id_from_bytes(disk.read_file(path))
            except MalformedCheckpoint as problem:
                log.warning("%s cannot be read (%s): it is written again", path, problem)
                disk.remove(path)

    # --- partitions come and go

    def create(
        self, topic: str, index: int, topic_id: bytes, settings: LogSettings, *, wall_ms: int
    ) -> PartitionLog:
        """A new partition with an empty log. Its names reach the disk with its first flush."""
        folder = f"{self.path}/{topic}-{index}"
        self._put_aside_older(folder, topic, index, topic_id)
        self.logs[topic, index] = log = self._open(folder, settings, wall_ms=wall_ms, clean=True)
        self.assign_topic_id(topic, index, topic_id)
        return log

    def _put_aside_older(self, folder: str, topic: str, index: int, topic_id: bytes) -> None:
        """A deleted topic of the same name whose folder could not be renamed: its records are not
        the new one's."""
        disk = self._open_files.disk
        path = f"{folder}/{checkpoints.PARTITION_METADATA}"
        if not disk.exists(path):
            return  # as it should be, or made half by the last try
        try:
            if checkpoints.topic_id_from_bytes(disk.read_file(path)) == topic_id:
                return
        except MalformedCheckpoint:
            pass  # not known whose it is
        renamed = f"{self.path}/{_with_tail(topic, f'-{index}.{topic_id.hex()}{STRAY}')}"
        disk.rename(folder, renamed)
        log.warning("%s is of a deleted topic: it is now %s", folder, renamed)

    def create_future(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        settings: LogSettings,
        unique: str,
        *,
        wall_ms: int,
    ) -> PartitionLog:
        """An empty copy of a replica in another data folder."""
        folder = f"{self.path}/{_with_tail(topic, f'-{index}.{unique}{FUTURE}')}"
        log = self._open(folder, settings, wall_ms=wall_ms, clean=True)
        self.futures[topic, index] = log
        self._write_topic_id(log, topic_id)
        return log

    def promote_future(
        self, topic: str, index: int, topic_id: bytes, source: PartitionLog, *, wall_ms: int
    ) -> PartitionLog:
        """The copy is whole: it becomes the replica, durably. `source` is the log that was copied.
        Waits for the disk. OSError: it is still a copy, which is useless now."""
        disk = self._open_files.disk
        copy = self.futures[topic, index]
        folder = f"{self.path}/{topic}-{index}"
        copy.close().run(disk)
        disk.rename(copy.folder, folder)
        try:
            disk.flush_folder(self.path)
            log = self._open(
                folder,
                source.settings,
                wall_ms=wall_ms,
                clean=True,
                start_offset=source.start_offset,
                recovery_point=source.end_offset,
            )
            # Copied from the source: some of the epochs cannot be found in the batches.
            log.epochs.replace(source.epochs.entries)
            log.producers.take_over(source.producers)
            self._write_topic_id(log, topic_id)
        except OSError:
            disk.rename(folder, copy.folder)
            raise
        del self.futures[topic, index]
        self.logs[topic, index] = log
        self.topic_ids[topic, index] = topic_id
        return log

    def drop_future(self, topic: str, index: int) -> str:
        """Give up a copy; returns its renamed folder, to be removed after a while."""
        log = self.futures.pop((topic, index))
        log.let_go()
        renamed = f"{log.folder.removesuffix(FUTURE)}{DELETE}"
        self._open_files.disk.rename(log.folder, renamed)
        return renamed

    def assign_topic_id(self, topic: str, index: int, topic_id: bytes) -> None:
        """Write a partition's `partition.metadata`."""
        self._write_topic_id(self.logs[topic, index], topic_id)
        self.topic_ids[topic, index] = topic_id

    def _write_topic_id(self, log: PartitionLog, topic_id: bytes) -> None:
        path = f"{log.folder}/{checkpoints.PARTITION_METADATA}"
        data = checkpoints.topic_id_to_bytes(topic_id)
        disk = self._open_files.disk
        self._open_files.with_descriptors(lambda: disk.write_file(path, [data], flush=False))
        log.flush_along(path)

    def delete(self, topic: str, index: int, unique: str) -> str:
        """Remove a partition; returns its renamed folder, to be removed after a while."""
        return self._put_aside(topic, index, unique, DELETE)

    def delete_moved(self, topic: str, index: int, unique: str) -> str:
        """As `delete`, for a replica that another data folder has now. The removal is durable,
        since a power cut must not bring the older replica back. Waits for the disk. OSError: it is
        still here."""
        path = self.logs[topic, index].folder
        renamed = f"{self.path}/{_with_tail(topic, f'-{index}.{unique}{DELETE}')}"
        disk = self._open_files.disk
        disk.rename(path, renamed)
        try:
            disk.flush_folder(self.path)
        except OSError as problem:  # it has left all the same
            log.error("a power cut may bring %s back: %s", path, problem)
        self.topic_ids.pop((topic, index), None)
        self.logs.pop((topic, index)).let_go()
        return renamed

    def put_aside_stray(self, topic: str, index: int, unique: str) -> str:
        """The cluster does not know this partition: keep its folder under another name."""
        return self._put_aside(topic, index, unique, STRAY)

    def _put_aside(self, topic: str, index: int, unique: str, suffix: str) -> str:
        """`unique` are 32 hexadecimal digits, since a topic may be deleted twice in a minute."""
        log = self.logs.pop((topic, index))
        self.topic_ids.pop((topic, index), None)
        log.let_go()
        renamed = f"{self.path}/{_with_tail(topic, f'-{index}.{unique}{suffix}')}"
        self._open_files.disk.rename(log.folder, renamed)
        return renamed

    # --- what is known of all of them

    def checkpoints(
        self, high_watermarks: Mapping[Partition, int] | None = None
    ) -> list[tuple[str, bytes]]:
        """The checkpoint files as they should be now: path and contents, for `Disk.write_file` on
        a thread that may wait for the disk; none before `load`."""
        if not self.is_loaded:
            return []
        recovery_points = {partition: log.recovery_point for partition, log in self.logs.items()}
        # A start behind the recovery point would be ignored (`recovery.py`); a flush is under way
        # that moves the recovery point there.
        start_offsets = {
            partition: min(log.start_offset, log.recovery_point)
            for partition, log in self.logs.items()
            if min(log.start_offset, log.recovery_point) > log.segments.bases[0]
        }
        files = {checkpoints.RECOVERY_POINTS: recovery_points}
        files[checkpoints.START_OFFSETS] = start_offsets
        if high_watermarks is not None:
            files[checkpoints.HIGH_WATERMARKS] = self.those_here(high_watermarks)
        return [
            (f"{self.path}/{name}", checkpoints.offsets_to_bytes(offsets))
            for name, offsets in files.items()
        ]

    def those_here(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """Returns the offsets of the partitions in this folder."""
        return {
            partition: offset for partition, offset in offsets.items() if partition in self.logs
        }

    def close(
        self,
        *,
        broker_epoch: int,
        high_watermarks: Mapping[Partition, int] | None = None,
        together: Together = one_by_one,
    ) -> None:
        """Shut down cleanly: close and flush every log, then write the clean-shutdown file. Waits
        for the disk.

        Before `load` the file is not written: the previous stop may not have been clean.
        """
        if not self.is_loaded:
            return
        disk = self._open_files.disk
        logs = list(self.logs.values())
        for first in range(0, len(logs), CLOSED_TOGETHER):
            closed = [(log, log.close()) for log in logs[first : first + CLOSED_TOGETHER]]
            together([partial(flush.run, disk) for _, flush in closed])
            for log, flush in closed:
                log.flushed(flush)
        for path, data in self.checkpoints(high_watermarks):
            disk.write_file(path, [data])
        path = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        disk.write_file(path, [checkpoints.clean_shutdown_to_bytes(broker_epoch)])


def partition_of(folder_name: str) -> Partition | None:
    """Topic and index of a partition's folder; None for any other name."""
    match = _PARTITION_FOLDER.fullmatch(folder_name)
    if match is None or match["topic"] == METADATA_TOPIC:
        return None
    return match["topic"], int(match["index"])


def future_of(folder_name: str) -> Partition | None:
    """Topic and index of a copy that was on its way; None for any other name."""
    match = _FUTURE_FOLDER.fullmatch(folder_name)
    return None if match is None else (match["topic"], int(match["index"]))


def _with_tail(topic: str, tail: str) -> str:
    return f"{topic[: LONGEST_NAME - len(tail)]}{tail}"


def _known(recovery_points: Mapping[Partition, int] | None, partition: Partition) -> int | None:
    """0 of a partition that is younger than the checkpoint; None without a checkpoint."""
    return None if recovery_points is None else recovery_points.get(partition, 0)


def has_lost_records(log: PartitionLog) -> bool:
    """Returns whether segments are missing, as far as is known, or the last start has cut off the
    end."""
    return log.cut is not None or any(not each.size for each in log.segments.damage())
