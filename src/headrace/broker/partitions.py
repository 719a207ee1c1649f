"""The logs of this node's partitions: opened as the image says, with the settings it says.

Between the broker, which knows topics, and `storage/`, which knows folders. Files that are done
with wait out `file.delete.delay.ms` and are then removed elsewhere than on the loop, as are the
checkpoints written (`due_work`, `checkpoint_work`). Folders that no topic of the image owns are
put aside, and removed after a long wait (`stray_folders.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any

from headrace.broker.stray_folders import mark_strays, remove_old_strays, say_loudly
from headrace.environment import Disk, Now
from headrace.metadata import configs
from headrace.metadata.image import MetadataImage, TopicImage
from headrace.protocol import uuids
from headrace.storage import checkpoints
from headrace.storage.flush import Together, one_by_one, write_and_flush_again
from headrace.storage.log_folder import LogFolder
from headrace.storage.log_settings import LogSettings
from headrace.storage.open_files import OpenFiles
from headrace.storage.partition_log import PartitionLog
from headrace.storage.unwritten import Unwritten

log = logging.getLogger(__name__)

METADATA_SEGMENT_BYTES = 1 << 30
# Ids are random: of their 22 characters two that are not the same have a third or a quarter of one.
DAMAGED_CHARACTERS = 2
# The controller's own records are never refused for their size: a batch has up to 10,000 of them.
METADATA_BATCH_BYTES = 64 << 20


class Partitions:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        given: Mapping[str, str],
        now: Now,
        *,
        randomness: Callable[[int], bytes],
        unwritten: Unwritten,
        flushes: list[Any],
        open_files: int,
        space: Callable[[], tuple[int, int]],
    ) -> None:
        self.folder = folder
        self.space = space  # bytes of the volume in all, and free for us
        self._disk = disk
        self._given = given
        self._now = now
        self._randomness = randomness
        self._unwritten = unwritten
        self._flushes = flushes
        self.open_files = OpenFiles(disk, open_files)
        self._logs = LogFolder(self.open_files, folder, unwritten=unwritten, wants_flush=flushes)
        self.compacting: PartitionLog | None = None  # what the log cleaner works on
        self._removals: list[tuple[int, str]] = []  # monotonic time, path
        self._noted: dict[tuple[str, int], int] = {}  # high watermarks, as they were written last
        # Of one image's configs: what holds for topics that say nothing, and for this broker.
        self._defaults: tuple[Any, dict[str, Any], dict[str, Any]] = (None, {}, {})

    # Start

    def was_closed_cleanly(self) -> bool:
        """To be asked before `load`, which takes the sign of it away."""
        return self._disk.exists(f"{self.folder}/{checkpoints.CLEAN_SHUTDOWN}")

    def open_metadata_log(
        self, name: str, start_offset: int, recovery_point: int, cut_bytes: int, *, clean: bool
    ) -> PartitionLog:
        """Lies in the same folder, belongs to the quorum, which alone decides what goes; it has cut
        so many bytes from the log's end just now."""
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
            f"{self.folder}/{name}",
            settings,
            now_wall_ms=self._now.wall_ms,
            start_offset=start_offset,
            recovery_point=recovery_point,
            clean=clean,
            unwritten=self._unwritten,
            wants_flush=self._flushes,
        )
        return self._metadata_log

    def load(self, image: MetadataImage) -> None:
        """Find the logs again and put aside those that no topic of the image owns."""
        self._logs.load(lambda topic: self.settings_of(topic, image)[0], wall_ms=self._now.wall_ms)
        strays = 0
        for topic, index in list(self._logs.logs):
            known = image.topics.get(topic)
            found_id = self._logs.topic_ids.get((topic, index))
            if known is not None and found_id is not None and is_damaged_copy(found_id, known.id):
                log.warning(
                    "%s-%d: partition.metadata is damaged, its topic id is %s: it is made anew",
                    topic, index, uuids.to_text(known.id),
                )  # fmt: skip
                self._logs.assign_topic_id(topic, index, known.id)
                found_id = known.id
            if known is None or found_id not in (None, known.id):
                renamed = self._logs.put_aside_stray(topic, index, self._randomness(16).hex())
                log.warning("no topic owns %s-%d: its folder is now %s", topic, index, renamed)
                strays += 1
        say_loudly(strays, len(self._logs.logs), self.folder)
        mark_strays(self._disk, self.folder, self._now.wall_ms)
        if self._given.get("headrace.durability") == "disk":
            for found in (self._metadata_log, *self._logs.logs.values()):
                write_and_flush_again(found, self._disk)

    # What the broker asks for

    def open(self, topic: TopicImage, index: int, image: MetadataImage) -> PartitionLog:
        """The log of a partition, made if it is new."""
        found = self._logs.logs.get((topic.name, index))
        if found is None:
            return self._logs.create(
                topic.name,
                index,
                topic.id,
                self.settings_of(topic.name, image)[0],
                wall_ms=self._now.wall_ms,
            )
        if (topic.name, index) not in self._logs.topic_ids:
            self._logs.assign_topic_id(topic.name, index, topic.id)
        return found

    def high_watermark(self, topic: TopicImage, index: int) -> int:
        """As it was noted last; what is not known is nothing that anybody was shown."""
        return self._logs.high_watermarks.get((topic.name, index), 0)

    def delete(self, topic: str, index: int) -> None:
        if (topic, index) not in self._logs.logs:
            return  # there was no room for it
        settings = self._logs.logs[topic, index].settings
        renamed = self._logs.delete(topic, index, self._randomness(16).hex())
        self.remove_later([renamed], settings.file_delete_delay_ms)

    def delete_before(self, found: PartitionLog, offset: int) -> None:
        found.delete_records_before(offset)
        self.apply_retention(found, found.end_offset)

    def apply_retention(self, found: PartitionLog, high_watermark: int) -> None:
        if found is self.compacting:
            return  # its segments are being read; the next time will do
        try:
            removed = found.apply_retention(self._now.wall_ms, high_watermark=high_watermark)
        except OSError as problem:  # the others make room meanwhile
            log.error("%s: nothing is removed: %s", found.folder, problem.strerror)
            return
        self.remove_later(removed, found.settings.file_delete_delay_ms)

    def due_flushes(self, now_ms: int) -> Iterator[PartitionLog]:
        """Logs whose `flush.ms` is over."""
        for found in self._logs.logs.values():
            if found.recovery_point == found.end_offset:
                found.last_flush_ms = now_ms
            elif now_ms - found.last_flush_ms >= found.settings.flush_ms:
                found.last_flush_ms = now_ms
                yield found

    def expire_producers(self) -> None:
        for found in self._logs.logs.values():
            found.producers.remove_expired(
                self._now.wall_ms, found.settings.producer_id_expiration_ms
            )

    # Work for another thread

    def due_work(self) -> list[Callable[[], None]]:
        """Files whose time has come."""
        due = []
        while self._removals and self._removals[0][0] <= self._now.monotonic_ms:
            due.append(heappop(self._removals)[1])
        if not due:
            return []

        def remove() -> None:
            for path in due:
                if path.endswith("-delete"):
                    self._disk.remove_folder(path)
                else:
                    self._disk.remove(path)

        return [remove]

    def stray_work(self, retention_ms: int) -> Callable[[], None]:
        wall_ms = self._now.wall_ms
        return lambda: remove_old_strays(self._disk, self.folder, wall_ms, retention_ms)

    def start_checkpoints(self) -> list[tuple[str, bytes]]:
        """Where logs begin, behind the recovery points without which that is not believed."""
        return self._logs.checkpoints()

    def checkpoint_work(self, high_watermarks: dict[tuple[str, int], int]) -> Callable[[], None]:
        files = self._logs.checkpoints(high_watermarks)

        def write() -> None:
            for path, data in files:
                self._disk.write_file(path, [data])

        return write

    def high_watermark_work(
        self, high_watermarks: dict[tuple[str, int], int]
    ) -> Callable[[], None] | None:
        """None: they are as they were written last."""
        if high_watermarks == self._noted:
            return None
        self._noted = high_watermarks
        path = f"{self.folder}/{checkpoints.HIGH_WATERMARKS}"
        to_bytes = checkpoints.offsets_to_bytes  # 10 ms for 10,000 of them
        return lambda: self._disk.write_file(path, [to_bytes(high_watermarks)])

    def close(
        self,
        broker_epoch: int,
        high_watermarks: dict[tuple[str, int], int],
        together: Together = one_by_one,
    ) -> None:
        """A clean end; waits for the disk."""
        self._metadata_log.close().run(self._disk)
        self._logs.close(
            broker_epoch=broker_epoch, high_watermarks=high_watermarks, together=together
        )

    @property
    def last_broker_epoch(self) -> int:
        """Of the clean stop before this start, which `load` has found; -1: it was not clean."""
        return self._logs.last_broker_epoch

    @property
    def count(self) -> int:
        return len(self._logs.logs)

    def remove_later(self, paths: list[str], delay_ms: int) -> None:
        for path in paths:
            heappush(self._removals, (self._now.monotonic_ms + delay_ms, path))

    def settings_of(self, topic: str, image: MetadataImage) -> tuple[LogSettings, int]:
        """What a topic's logs need to know, and its `min.insync.replicas`."""
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
    """Whether `found` is the id `known` with a character or two gone wrong: partition.metadata has
    no checksum, and a folder with another id is no partition of the topic."""
    pairs = zip(uuids.to_text(found), uuids.to_text(known), strict=True)
    return 0 < sum(one != other for one, other in pairs) <= DAMAGED_CHARACTERS
