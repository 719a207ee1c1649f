"""The log cleaner on the loop: chooses the next log to compact, and applies the result.

Looks every `log.cleaner.backoff.ms` for the log with the largest share of dirty bytes among those
that are due, has one log at a time compacted elsewhere (`Runner`), swaps in each group of segments
as it comes, and notes in `cleaner-offset-checkpoint` how far each log is clean. After a round it
looks again at once. A log whose bytes are damaged is left alone until the next start, and that is
logged; one that fails for another reason is retried after all others that are due. Settings are
read when a round begins, so a change of them counts from the next one on. Not done: more than one
log at a time (`log.cleaner.threads`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from headrace.environment import Disk, Now
from headrace.node.broker.replicas.partitions import Partitions
from headrace.node.broker.replicas.topics import Topics
from headrace.node.replication.replica import PartitionLeader
from headrace.node.storage import checkpoints
from headrace.node.storage.checkpoints import MalformedCheckpoint, Partition
from headrace.node.storage.compaction.compaction import CleanedGroup, CleaningJob, job_for
from headrace.node.storage.compaction.compaction_plan import Cleanable, measure
from headrace.node.storage.segments.segment import Segment
from headrace.wire.protocol.errors import KafkaError

log = logging.getLogger(__name__)

# `tick` comes every second, sometimes a little early: that must not cost another second.
HALF_A_TICK_MS = 500


class Reports(Protocol):
    """The events of a runner, on the loop."""

    def cleaned(self, group: CleanedGroup) -> None: ...

    def finished(self, cleaned_to: int) -> None: ...

    def failed(self, reason: str, *, damaged: bool) -> None: ...


class Runner(Protocol):
    """Runs compaction; one job at a time."""

    def start(self, job: CleaningJob, bytes_per_second: float, reports: Reports) -> None: ...

    def stop(self) -> None:
        """Cancel the job; it reports nothing more."""
        ...


@dataclass(slots=True)
class Round:
    """The log that is being compacted."""

    leader: PartitionLeader
    segments: dict[int, Segment]  # as they were when the round began, by base offset
    began_ms: int


class LogCleaner:
    """The numbers for the metrics are public: they count all rounds since the start."""

    def __init__(
        self,
        disk: Disk,
        partitions: Partitions,
        topics: Topics,
        now: Now,
        runner: Runner,
        *,
        values: Callable[[], Any],
        in_background: Callable[[Callable[[], None], str | None], None],
    ) -> None:
        self.rounds = 0
        self.failures = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.milliseconds = 0
        self.unreadable_batches = 0
        self.dirtiest_ratio = 0.0
        self.uncleanable: set[tuple[bytes, int]] = set()  # topic id, index
        self._disk = disk
        self._partitions = partitions
        self._topics = topics
        self._now = now
        self._runner = runner
        self._values = values
        self._in_background = in_background
        self._cleaned_to = self._read_checkpoints()
        self._topic_ids: dict[Partition, bytes] = {}  # the id of the topic that has the name
        self._failed: set[tuple[bytes, int]] = set()  # whose last round failed
        self._round: Round | None = None
        self._look_at_ms = 0
        self._stopped = False

    def tick(self) -> None:
        """Called every second, and after each round: begin a round if one is due and none is under
        way."""
        if self._round is not None or self._stopped:
            return
        if self._now.monotonic_ms + HALF_A_TICK_MS < self._look_at_ms:
            return
        self._forget_deleted()
        found = self._dirtiest()
        if found is None:
            self._rest()
        else:
            self._begin(*found)

    def stop(self) -> None:
        self._stopped = True
        self._end_round()
        self._runner.stop()

    # --- which one

    def _leaders(self) -> Iterator[PartitionLeader]:
        for topic in self._topics.by_name.values():
            yield from topic.here()

    def _compacted(self) -> Iterator[tuple[PartitionLeader, Cleanable]]:
        for leader in self._leaders():
            found = leader.log
            is_damaged = (leader.topic_id, leader.index) in self.uncleanable
            if is_damaged or "compact" not in found.settings.cleanup_policy:
                continue
            if self._partitions.folders.is_moving(leader.topic, leader.index):
                continue
            try:
                dirty = measure(
                    found.segments.items,
                    found.settings,
                    cleaned_to=self._cleaned_to.get((leader.topic, leader.index)),
                    start_offset=found.start_offset,
                    end_offset=found.end_offset,
                    last_stable_offset=leader.last_stable_offset(),
                    wall_ms=self._now.wall_ms,
                )
            except OSError:
                continue  # an index has to be rebuilt, and the disk is full
            yield leader, dirty

    def _dirtiest(self) -> tuple[PartitionLeader, Cleanable] | None:
        """Returns the dirtiest log that is due. A log whose last compaction failed comes after the
        others: otherwise one log that cannot be read would block the compaction of all."""
        found = list(self._compacted())
        self.dirtiest_ratio = max((dirty.dirty_ratio for _, dirty in found), default=0.0)
        due = [each for each in found if each[1].is_due]
        return max(
            due,
            key=lambda each: (
                (each[0].topic_id, each[0].index) not in self._failed,
                each[1].dirty_ratio,
            ),
            default=None,
        )

    def _forget_deleted(self) -> None:
        """Forget deleted topics. A topic that was deleted and created again is dirty from its
        beginning, and not damaged. Checkpoint entries for topics that are not known yet may be
        needed later."""
        ids = {(leader.topic, leader.index): leader.topic_id for leader in self._leaders()}
        there = {(topic_id, index) for (_, index), topic_id in ids.items()}
        self.uncleanable &= there
        self._failed &= there
        stale = [p for p, topic_id in self._topic_ids.items() if ids.get(p) != topic_id]
        for partition in stale:
            del self._topic_ids[partition]
            self._cleaned_to.pop(partition, None)
        for partition in self._cleaned_to.keys() & ids.keys():
            self._topic_ids[partition] = ids[partition]
        if stale:
            self._checkpoint()

    # --- one round

    def _begin(self, leader: PartitionLeader, cleanable: Cleanable) -> None:
        values = self._values()
        job = job_for(
            leader.log,
            cleanable,
            wall_ms=self._now.wall_ms,
            memory=values["log.cleaner.dedupe.buffer.size"],
        )
        segments = {segment.base_offset: segment for segment in leader.log.segments.items}
        self._round = Round(leader, segments, self._now.monotonic_ms)
        self._partitions.compacting = leader.log
        try:
            # With a wrong entry, aborted records would be kept, or committed ones removed.
            leader.log.segments.check_aborted(leader.log.end_offset)
            self._runner.start(job, values["log.cleaner.io.max.bytes.per.second"], self)
        except OSError as problem:
            self.failed(f"it could not be begun: {problem.strerror}", damaged=False)

    def cleaned(self, group: CleanedGroup) -> None:
        """These segments have a `.cleaned` replacement now."""
        if self._round is None:
            return
        leader = self._round.leader
        old = [self._round.segments[base] for base in group.sources]
        try:
            # A follower may have cut its log meanwhile: then its last segment may be in this group.
            cut = leader.log.active in old
            removed = None if cut else leader.log.swap_in(old, wall_ms=self._now.wall_ms)
        except KafkaError as problem:
            self.failed(str(problem), damaged=False)
            self._runner.stop()
            return
        if removed is None:
            self.failed("the log has changed during the compaction", damaged=False)
            self._runner.stop()
            return
        self._partitions.remove_later(removed, leader.log.settings.file_delete_delay_ms)
        self.bytes_read += group.bytes_read
        self.bytes_written += group.bytes_written
        if group.unreadable:
            self.unreadable_batches += group.unreadable
            log.warning(
                "%s-%d: compaction kept %d batches whole, the first at offset %d: "
                "their records cannot be read (%s)",
                leader.topic,
                leader.index,
                group.unreadable,
                group.first_unreadable,
                group.why_unreadable,
            )

    def finished(self, cleaned_to: int) -> None:
        if self._round is None:
            return
        leader = self._round.leader
        self.rounds += 1
        self._failed.discard((leader.topic_id, leader.index))
        self._end_round()
        self._cleaned_to[leader.topic, leader.index] = cleaned_to
        self._topic_ids[leader.topic, leader.index] = leader.topic_id
        self._checkpoint(leader.log.folder)
        self._apply_retention(leader)
        self.tick()

    def failed(self, reason: str, *, damaged: bool) -> None:
        if self._round is None:
            return
        leader = self._round.leader
        self.failures += 1
        if damaged:
            self.uncleanable.add((leader.topic_id, leader.index))
            log.error("%s-%d is not compacted any more: %s", leader.topic, leader.index, reason)
        else:
            self._failed.add((leader.topic_id, leader.index))
            log.warning("%s-%d was not compacted: %s", leader.topic, leader.index, reason)
        self._end_round()
        self._rest()

    def _apply_retention(self, leader: PartitionLeader) -> None:
        """Retention is deferred during a round; consecutive rounds would prevent it."""
        if any(each is leader for each in self._leaders()):
            with suppress(KafkaError):  # a full disk: the next call retries
                self._partitions.apply_retention(leader.log, leader.high_watermark)

    def _end_round(self) -> None:
        if self._round is not None:
            self.milliseconds += self._now.monotonic_ms - self._round.began_ms
        self._round = None
        self._partitions.compacting = None

    def _rest(self) -> None:
        self._look_at_ms = self._now.monotonic_ms + self._values()["log.cleaner.backoff.ms"]

    # --- how far each log is clean

    def _read_checkpoints(self) -> dict[Partition, int]:
        """A file that is missing or damaged costs a longer round, nothing else. A partition that
        has moved may be in the files of two folders: the smaller offset holds for both."""
        cleaned: dict[Partition, int] = {}
        for folder in self._partitions.folders.paths:
            for partition, offset in self._read_checkpoint(folder).items():
                cleaned[partition] = min(offset, cleaned.get(partition, offset))
        return cleaned

    def _read_checkpoint(self, folder: str) -> dict[Partition, int]:
        path = f"{folder}/{checkpoints.CLEANED_OFFSETS}"
        try:
            if self._disk.exists(path):
                return checkpoints.offsets_from_bytes(self._disk.read_file(path))
        except (MalformedCheckpoint, OSError):
            pass
        return {}

    def _checkpoint(self, cleaned: str | None = None) -> None:
        """Write the checkpoints outside the loop, per data folder; deleted partitions are left out.
        First the new names in the folder of the `cleaned` log must survive a power cut: old
        segments that count as clean would bring deleted keys back when their tombstones have gone.
        """
        there = {(leader.topic, leader.index) for leader in self._leaders()}
        self._cleaned_to = {p: offset for p, offset in self._cleaned_to.items() if p in there}
        for path, folder in self._partitions.folders.online.items():
            is_concerned = cleaned is None or cleaned.rpartition("/")[0] == path
            if is_concerned:
                data = checkpoints.offsets_to_bytes(folder.those_here(self._cleaned_to))
                self._in_background(partial(self._write_checkpoint, path, data, cleaned), path)

    def _write_checkpoint(self, folder: str, data: bytes, cleaned: str | None) -> None:
        if cleaned is not None:
            with suppress(FileNotFoundError):  # the topic was deleted meanwhile
                self._disk.flush_folder(cleaned)
        self._disk.write_file(f"{folder}/{checkpoints.CLEANED_OFFSETS}", [data])
