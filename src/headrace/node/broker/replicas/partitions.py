"""The logs of this node's partitions, opened according to the metadata image and its settings.

This module is between the broker, which knows topics, and `storage/`, which knows folders;
`data_folders.py` knows which data folder has a replica. Deleted files wait for
`file.delete.delay.ms` and are then removed outside the loop; checkpoints are written there too
(`due_work`, `checkpoint_work`): each piece of work names its data folder, which may fail alone.
Folders that no topic of the image owns are renamed, and removed after a long wait
(`stray_folders.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush
from typing import Any

from headrace.environment import Disk, Now
from headrace.node.broker.folders.data_folders import DataFolders
from headrace.node.broker.folders.folder_survey import (
    FolderSurvey,
    lost_directories,
    survey,
    take_new,
)
from headrace.node.broker.folders.identity import Identity
from headrace.node.broker.folders.stray_folders import mark_strays, remove_old_strays, say_loudly
from headrace.node.metadata import configs
from headrace.node.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage, TopicImage
from headrace.node.storage import checkpoints
from headrace.node.storage.checkpoints import Partition
from headrace.node.storage.durability.flush import Together, one_by_one, write_and_flush_again
from headrace.node.storage.durability.folder_failures import FolderFailures
from headrace.node.storage.durability.open_files import OpenFiles, is_shortage
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_folder import LogFolder
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol import uuids

log = logging.getLogger(__name__)

Work = tuple[str, Callable[[], None]]  # the data folder, and what to do there

REMOVED_AFTER_MS = 60_000  # a copy that is not needed any more
METADATA_SEGMENT_BYTES = 1 << 30
# Ids are random: on average two of them agree in a third or a quarter of one of 22 characters.
DAMAGED_CHARACTERS = 2
# The controller's own records are never refused for their size: a batch has up to 10,000 of them.
METADATA_BATCH_BYTES = 64 << 20


class Partitions:
    def __init__(
        self,
        disk: Disk,
        metadata_folder: str,
        log_dirs: tuple[str, ...],
        given: Mapping[str, str],
        now: Now,
        *,
        randomness: Callable[[int], bytes],
        unwritten: Unwritten,
        flushes: list[Any],
        failures: FolderFailures,
        open_files: int,
        space: Callable[[str], tuple[int, int]],
    ) -> None:
        self.metadata_folder = metadata_folder
        self.space = space  # bytes of a folder's volume in all, and free for us
        self.failures = failures
        self._disk = disk
        self._given = given
        self._now = now
        self._randomness = randomness
        self._unwritten = unwritten
        self._flushes = flushes
        self.open_files = OpenFiles(disk, open_files)
        self.folders = DataFolders(
            self.open_files, log_dirs, unwritten=unwritten, wants_flush=flushes
        )
        self._survey = FolderSurvey()
        self._identity: Identity
        self._new_folders: list[str] = []  # formatted by this start
        self.has_lost_folders = False  # replicas were in folders that are not configured any more
        self.compacting: PartitionLog | None = None  # the log that the log cleaner works on
        self._removals: list[tuple[int, str]] = []  # monotonic time, path
        self._noted: dict[str, dict[Partition, int]] = {}  # high watermarks, as last written
        # For one image's configs: the defaults of topics, and the settings of this broker.
        self._defaults: tuple[Any, dict[str, Any], dict[str, Any]] = (None, {}, {})

    # Start

    def was_closed_cleanly(self) -> bool:
        """Call before `load`, which removes the mark of a clean shutdown."""
        return self._disk.exists(f"{self.metadata_folder}/{checkpoints.CLEAN_SHUTDOWN}")

    def open_metadata_log(
        self, name: str, start_offset: int, recovery_point: int, cut_bytes: int, *, clean: bool
    ) -> PartitionLog:
        """The metadata log is in the metadata folder. The quorum owns it, decides what is deleted
        from it, and has just cut `cut_bytes` from its end."""
        if cut_bytes:
            self.open_files.findings.count_cut(cut_bytes)
        settings = LogSettings(
            segment_bytes=METADATA_SEGMENT_BYTES,
            max_message_bytes=METADATA_BATCH_BYTES,
            retention_ms=-1,
            retention_bytes=-1,
        )
        self._metadata_log = PartitionLog.open(
            self.open_files,
            f"{self.metadata_folder}/{name}",
            settings,
            now_wall_ms=self._now.wall_ms,
            start_offset=start_offset,
            recovery_point=recovery_point,
            clean=clean,
            unwritten=self._unwritten,
            wants_flush=self._flushes,
        )
        return self._metadata_log

    def survey(self, identity: Identity, failed: Mapping[str, str]) -> None:
        """Check all data folders, before `load`; raises UnusableFolder. `identity` is that of the
        metadata folder; `failed` are the folders that could not be locked."""
        self._identity = identity
        self._survey = survey(
            self._disk, self.folders.paths, identity, self.metadata_folder, failed.items()
        )

    def load_at_once(self, image: MetadataImage) -> str | None:
        """Like `load`, for a node without other nodes: it serves no client before."""
        loading = self.load(image)
        while True:
            try:
                next(loading)
            except StopIteration as done:
                why: str | None = done.value
                return why

    def load(self, image: MetadataImage) -> Generator[None, None, str | None]:
        """Open the existing logs, one in each step, and rename those that no topic of the image
        owns. Returns why no data folder can be used, or None."""
        self._new_folders = take_new(
            self._disk, self._survey, self._identity, image, self._randomness
        )
        self.folders.adopt(self._survey)
        self._look_for_lost_folders(image)
        for folder in list(self.folders.online.values()):
            yield from self._load_unless_it_fails(folder, image)
        if len(self.folders.online) > 1:
            self._put_aside_doubles(image)
        for folder in list(self.folders.online.values()):
            self._unless_it_fails(folder, partial(self._put_aside_strays, folder, image))
        if self.folders.offline:
            self._find_moved(image)
        if self._given.get("headrace.durability") == "disk":
            write_and_flush_again(self._metadata_log, self._disk)
            for folder in list(self.folders.online.values()):
                self._unless_it_fails(folder, partial(self._flush_again, folder))
        return self.folders.none_left

    def _look_for_lost_folders(self, image: MetadataImage) -> None:
        lost = lost_directories(image, self._identity, self.folders.directories)
        self.has_lost_folders = bool(lost)
        if lost and not self.folders.offline:
            log.warning(
                "replicas of this node were in data folders that log.dirs no longer names, "
                "directory.id %s: they start empty in others", ", ".join(map(uuids.to_text, lost)),
            )  # fmt: skip

    def _unless_it_fails(self, folder: LogFolder, work: Callable[[], None]) -> None:
        """A failed folder does not prevent the start if it may fail alone."""
        try:
            work()
        except OSError as problem:
            self._has_failed(folder, problem)

    def _load_unless_it_fails(self, folder: LogFolder, image: MetadataImage) -> Iterator[None]:
        def settings_for(topic: str) -> LogSettings:
            return self.settings_of(topic, image)[0]

        try:
            yield from folder.load(settings_for, wall_ms=self._now.wall_ms)
        except OSError as problem:
            self._has_failed(folder, problem)

    def _has_failed(self, folder: LogFolder, problem: OSError) -> None:
        if is_shortage(problem) or not self.failures.met(folder.path, problem, in_flush=True):
            raise problem
        self.failures.take()
        self.folders.fail(folder.path, problem.strerror or str(problem))

    def _flush_again(self, folder: LogFolder) -> None:
        for found in folder.logs.values():
            write_and_flush_again(found, self._disk)

    def _put_aside_strays(self, folder: LogFolder, image: MetadataImage) -> None:
        strays = 0
        for topic, index in list(folder.logs):
            known = image.topics.get(topic)
            found_id = folder.topic_ids.get((topic, index))
            if known is not None and found_id is not None and is_damaged_copy(found_id, known.id):
                log.warning(
                    "%s-%d: partition.metadata is damaged, its topic id is %s: it is written again",
                    topic, index, uuids.to_text(known.id),
                )  # fmt: skip
                folder.assign_topic_id(topic, index, known.id)
                found_id = known.id
            if known is None or found_id not in (None, known.id):
                renamed = folder.put_aside_stray(topic, index, self._randomness(16).hex())
                log.warning("no topic owns %s-%d: its folder is now %s", topic, index, renamed)
                strays += 1
        say_loudly(strays, len(folder.logs), folder.path)
        mark_strays(self._disk, folder.path, self._now.wall_ms)

    def _put_aside_doubles(self, image: MetadataImage) -> None:
        """Rename duplicates: a disk that was away may come back with replicas that were created
        again elsewhere."""
        holders: dict[Partition, list[LogFolder]] = {}
        for folder in self.folders.online.values():
            for partition in folder.logs:
                holders.setdefault(partition, []).append(folder)
        for (topic, index), found in holders.items():
            named = self.directory_in(image, topic, index)
            found.sort(key=lambda folder: folder.directory_id != named)  # stable
            for folder in found[1:]:
                used = found[0].path
                aside = partial(self._put_aside_double, folder, (topic, index), used)
                self._unless_it_fails(folder, aside)

    def _put_aside_double(self, folder: LogFolder, key: Partition, used: str) -> None:
        renamed = folder.put_aside_stray(*key, self._randomness(16).hex())
        log.error(
            "%s-%d is in %s and in %s: the first is used, the second is now %s",
            *key, used, folder.path, renamed,
        )  # fmt: skip

    def _find_moved(self, image: MetadataImage) -> None:
        """Find replicas that are not where the metadata says: they had moved to a folder that is
        offline now, and the controller does not know it. For a broker with one folder the
        controller itself names the directory of new replicas, so these may never have been created.
        """
        registered = image.brokers.get(self._identity.node_id)
        if registered is None or len(registered.log_dirs) < 2:
            return
        there, missing = self.folders.directories, next(iter(self.folders.offline))
        for topic in image.topics.values():
            for index in range(len(topic.partitions)):
                named = self.directory_in(image, topic.name, index)
                if named in there and self.folders.holder(topic.name, index) is None:
                    self.folders.offline_replicas[topic.name, index] = missing

    def directory_in(self, image: MetadataImage, topic: str, index: int) -> bytes:
        """Returns the directory of a replica of this broker according to the metadata."""
        known = image.topics.get(topic)
        if known is None or index >= len(known.partitions):
            return UNASSIGNED_DIRECTORY
        partition = known.partitions[index]
        if self._identity.node_id not in partition.replicas:
            return UNASSIGNED_DIRECTORY
        return partition.directories[partition.replicas.index(self._identity.node_id)]

    # For the broker

    def open(self, topic: TopicImage, index: int, image: MetadataImage) -> PartitionLog:
        """Returns the log of a partition; creates a new one."""
        holder = self.folders.holder(topic.name, index)
        if holder is None:
            directory = self.directory_in(image, topic.name, index)
            return self.folders.folder_for(topic.name, index, directory).create(
                topic.name,
                index,
                topic.id,
                self.settings_of(topic.name, image)[0],
                wall_ms=self._now.wall_ms,
            )
        if (topic.name, index) not in holder.topic_ids:
            holder.assign_topic_id(topic.name, index, topic.id)
        return holder.logs[topic.name, index]

    def is_offline(self, topic: TopicImage, index: int, image: MetadataImage) -> bool:
        """Returns whether this replica is in a data folder that has failed."""
        if not self.folders.offline:
            return False
        directory = self.directory_in(image, topic.name, index)
        return self.folders.is_offline(topic.name, index, directory)

    def high_watermark(self, topic: TopicImage, index: int) -> int:
        """Returns the high watermark that was written last; an unknown one is 0: readers
        have seen nothing."""
        holder = self.folders.holder(topic.name, index)
        return 0 if holder is None else holder.high_watermarks.get((topic.name, index), 0)

    def delete(self, topic: str, index: int) -> None:
        """Delete a replica, and its copy if it is moving."""
        self.folders.offline_replicas.pop((topic, index), None)
        for folder in list(self.folders.online.values()):
            try:
                self._delete_in(folder, (topic, index))
            except OSError as problem:  # the next start finds the folder as a stray
                self.failures.met(folder.path, problem)
                log.error("%s-%d stays in %s: %s", topic, index, folder.path, problem.strerror)

    def _delete_in(self, folder: LogFolder, key: Partition) -> None:
        if key in folder.futures:
            self.remove_later([folder.drop_future(*key)], REMOVED_AFTER_MS)
        if key in folder.logs:
            delay_ms = folder.logs[key].settings.file_delete_delay_ms
            self.remove_later([folder.delete(*key, self._randomness(16).hex())], delay_ms)

    def delete_before(self, found: PartitionLog, offset: int) -> None:
        found.delete_records_before(offset)
        self.apply_retention(found, found.end_offset)

    def apply_retention(self, found: PartitionLog, high_watermark: int) -> None:
        if found is self.compacting:
            return  # its segments are being read; the next call deletes them
        try:
            removed = found.apply_retention(self._now.wall_ms, high_watermark=high_watermark)
        except OSError as problem:  # deleting the others may free space
            self.failures.met(found.folder, problem)
            log.error("%s: nothing is removed: %s", found.folder, problem.strerror)
            return
        self.remove_later(removed, found.settings.file_delete_delay_ms)

    def due_flushes(self, now_ms: int) -> Iterator[PartitionLog]:
        """Returns logs whose `flush.ms` is over."""
        for found in self.folders.logs():
            if found.recovery_point == found.end_offset:
                found.last_flush_ms = now_ms
            elif now_ms - found.last_flush_ms >= found.settings.flush_ms:
                found.last_flush_ms = now_ms
                yield found

    def expire_producers(self) -> None:
        for found in self.folders.logs():
            found.producers.remove_expired(
                self._now.wall_ms, found.settings.producer_id_expiration_ms
            )

    # Work for another thread

    def due_work(self) -> list[Work]:
        """Returns work that deletes files whose delay is over."""
        due: dict[str, list[str]] = {}
        while self._removals and self._removals[0][0] <= self._now.monotonic_ms:
            path = heappop(self._removals)[1]
            if not self.failures.has_failed(path):
                due.setdefault(self.failures.folder_of(path) or "", []).append(path)
        return [(folder, partial(self._remove, paths)) for folder, paths in due.items()]

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            if path.endswith("-delete"):
                self._disk.remove_folder(path)
            else:
                self._disk.remove(path)

    def stray_work(self, retention_ms: int) -> list[Work]:
        return [
            (path, partial(remove_old_strays, self._disk, path, self._now.wall_ms, retention_ms))
            for path in self.folders.online
        ]

    def start_checkpoints(self) -> list[tuple[str, bytes]]:
        """Returns the log start offsets, after the recovery points: without these they are not
        trusted."""
        return [each for folder in self.folders.online.values() for each in folder.checkpoints()]

    def checkpoint_work(self, high_watermarks: dict[Partition, int]) -> list[Work]:
        return [
            (path, partial(self._write, folder.checkpoints(high_watermarks)))
            for path, folder in self.folders.online.items()
        ]

    def _write(self, files: list[tuple[str, bytes]]) -> None:
        for path, data in files:
            self._disk.write_file(path, [data])

    def high_watermark_work(self, high_watermarks: dict[Partition, int]) -> list[Work]:
        """Returns the writes for the folders whose high watermarks differ from the last write."""
        return [
            (path, partial(self._write_high_watermarks, path, offsets))
            for path, offsets in self._by_folder(high_watermarks).items()
            if self._note(path, offsets)
        ]

    def _by_folder(self, offsets: dict[Partition, int]) -> dict[str, dict[Partition, int]]:
        """Offsets by folder; a folder that is not loaded keeps its checkpoint of the last start."""
        loaded = {path: each for path, each in self.folders.online.items() if each.is_loaded}
        if len(self.folders.paths) == 1:
            return dict.fromkeys(loaded, offsets)
        return {path: found.those_here(offsets) for path, found in loaded.items()}

    def _note(self, path: str, offsets: dict[Partition, int]) -> bool:
        """Returns whether the offsets differ from the last write."""
        if self._noted.get(path) == offsets:
            return False
        self._noted[path] = offsets
        return True

    def _write_high_watermarks(self, folder: str, offsets: dict[Partition, int]) -> None:
        data = checkpoints.offsets_to_bytes(offsets)  # 10 ms for 10,000 of them
        self._disk.write_file(f"{folder}/{checkpoints.HIGH_WATERMARKS}", [data])

    def close(
        self,
        broker_epoch: int,
        high_watermarks: dict[Partition, int],
        together: Together = one_by_one,
    ) -> None:
        """Close cleanly; waits for the disk. A folder that may fail alone fails alone here too."""
        self._metadata_log.close().run(self._disk)
        for path, folder in list(self.folders.online.items()):
            try:
                folder.close(
                    broker_epoch=broker_epoch, high_watermarks=high_watermarks, together=together
                )
            except OSError as problem:
                if not self.failures.met(path, problem, in_flush=True):
                    raise
                log.critical("the shutdown of %s is not clean: %s", path, problem)

    @property
    def last_broker_epoch(self) -> int:
        """The broker epoch of the last clean stop, as `load` found it; -1 if the stop was unclean,
        if a folder is missing, or if a folder stopped at another time than the others."""
        if self.folders.offline:
            return -1
        epochs = {
            folder.last_broker_epoch
            for path, folder in self.folders.online.items()
            if path not in self._new_folders
        }
        return epochs.pop() if len(epochs) == 1 else -1

    @property
    def count(self) -> int:
        return self.folders.count

    def remove_later(self, paths: list[str], delay_ms: int) -> None:
        for path in paths:
            heappush(self._removals, (self._now.monotonic_ms + delay_ms, path))

    def settings_of(self, topic: str, image: MetadataImage) -> tuple[LogSettings, int]:
        """Returns the settings of a topic's logs, and its `min.insync.replicas`."""
        if self._defaults[0] is not image.configs:
            self._defaults = (
                image.configs,
                configs.topic_defaults(self._given, image.configs),
                configs.broker_values(self._given, image.configs),
            )
        _, defaults, broker_values = self._defaults
        values = configs.topic_values(self._given, image.configs, topic, defaults)
        settings = LogSettings(**configs.log_settings(values, broker_values))
        return settings, values["min.insync.replicas"]


def is_damaged_copy(found: bytes, known: bytes) -> bool:
    """Returns whether `found` is the id `known` with one or two wrong characters.
    partition.metadata has no checksum, and a folder with another id is not a partition of the
    topic."""
    pairs = zip(uuids.to_text(found), uuids.to_text(known), strict=True)
    return 0 < sum(one != other for one, other in pairs) <= DAMAGED_CHARACTERS
