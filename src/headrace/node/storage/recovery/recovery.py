"""How a log is found again on disk, after a clean shutdown and after a kill.

After a clean shutdown nothing is read but the end of the last segment and the producers' snapshot.
Otherwise every segment from the one with the recovery point on is read batch by batch, the indexes
are rebuilt, leader epochs and producers are taken from the batches. At or above the recovery point
the log ends before the first batch that is incomplete, fails its checksum or steps back in offsets;
everything after it is removed. Below it nothing is: damage there is noted and kept (`damage.py`).
The numbers in checkpoints are used as far as the rest agrees with them. Batches of the formats
before 0.11 (magic 0 and 1) are refused, not cut: they may be a user's data. A segment that is
missing between two others, or before the first one, is damage as well (`holes.py`); at or above the
recovery point the log ends before it.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass

from headrace.node.storage.checkpoints import LEADER_EPOCHS, MalformedCheckpoint
from headrace.node.storage.compaction.compaction_gaps import GAPS, CompactionGaps
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.leader_epochs import LeaderEpochs
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.producer_state import ProducerState
from headrace.node.storage.recovery.damage import (
    DAMAGED_RANGES,
    Cut,
    ranges_from_bytes,
    save_ranges,
)
from headrace.node.storage.recovery.epoch_check import epochs_of_batches, find_wrong_epoch
from headrace.node.storage.recovery.holes import MISSING, find_holes, gaps_between, hole_before
from headrace.node.storage.recovery.leftovers import SWAP, finish_interrupted_work, offset_of
from headrace.node.storage.recovery.segment_recovery import SegmentRecovery
from headrace.node.storage.segments.segment import DELETED, Segment
from headrace.node.storage.segments.segment_damage import find_damage
from headrace.node.storage.segments.segment_list import SegmentList
from headrace.node.storage.segments.segment_scan import replay_producers

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedLog:
    segments: list[Segment]
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    cut: Cut | None  # what this start has removed from the end
    gaps: CompactionGaps


@dataclass(slots=True)
class Loader:
    """One log on its way from files to memory."""

    open_files: OpenFiles
    folder: str
    settings: LogSettings
    wall_ms: int
    cut: Cut | None = None
    was_compacted: bool = False  # at some time, as the checkpoint of the cleaner says

    def load(self, *, recovery_point: int | None, start_offset: int, clean: bool) -> LoadedLog:
        """`recovery_point` None: it is not known any more."""
        disk = self.open_files.disk
        found = disk.list(self.folder)
        epochs = LeaderEpochs(disk, self.folder)
        if any(name.endswith(".log" + DELETED) for name in found):
            keep_deleted_beginning(found, epochs)
        names = finish_interrupted_work(disk, self.folder, found, self._next_offset_of_swap)
        gaps = CompactionGaps(disk, self.folder)
        was_compacted = (
            self.was_compacted
            or self.settings.needs_keys
            or any(name.endswith(SWAP) for name in found)
        )
        gaps.load(exists=GAPS in names, was_compacted=was_compacted)
        if not names and self.settings.needs_keys:
            gaps.note([], [])
        epochs_are_lost = False
        try:
            if LEADER_EPOCHS in names:
                epochs.entries = []
                epochs.load()
            else:  # made now, so that its name reaches the disk with those of the log
                epochs.save()
        except MalformedCheckpoint as problem:
            # Written but not flushed before a power cut: all batches are asked again.
            log.warning("%s: %s; it is rebuilt from the log", epochs.path, problem)
            clean, epochs_are_lost = False, True
        producers = ProducerState(disk, self.folder)
        producers.find_snapshots(names)
        epochs_begin = epochs.entries[0][1] if epochs.entries else 0
        segments = self._find_segments(names, gaps)
        if segments:
            if DAMAGED_RANGES in names:
                self._remember_damage(segments, gaps)
            self._note_hole_before(segments[0], start_offset, epochs)
            start_offset = self._believable_start(start_offset, segments, epochs, recovery_point)
            self._say_if_deleted_records_are_back(start_offset, epochs)
        end_offset = segments[-1].next_offset() if clean and segments else None
        if end_offset is not None and end_offset < (recovery_point or 0):
            clean, end_offset = False, None  # the end is missing
        if end_offset is not None or not segments:
            end_offset = start_offset if end_offset is None else end_offset
            self._load_producers(segments, producers, start_offset, end_offset, clean=True)
        else:
            first = self._first_to_read(segments, recovery_point, clean=clean)
            if epochs_are_lost:
                first = 0
            end_offset = self._recover(
                segments, first, epochs, producers, recovery_point, start_offset
            )
            if recovery_point is not None and recovery_point > end_offset:
                log.error(
                    "%s: the checkpoint says that the log is flushed up to %d, but it ends at %d: "
                    "it is not believed, and all of the log is read",
                    self.folder, recovery_point, end_offset,
                )  # fmt: skip
                self.cut = Cut(end_offset, 0)
                self.open_files.findings.count_cut(0)
                recovery_point = None
                end_offset = self._recover(segments, 0, epochs, producers, None, start_offset)
        if end_offset < start_offset or not segments:
            self._begin_anew(segments, epochs, producers, start_offset)
            end_offset = start_offset
        self._note_holes(segments, gaps, found, epochs_begin)
        self._make_active(segments[-1])
        if epochs.entries and start_offset < min(epochs.entries[0][1], end_offset):
            epochs.begin_with(self._epochs_before(epochs.entries[0][1], segments))
        if start_offset < end_offset:
            self._check_epochs(epochs, segments)
        # An empty log keeps the epoch in which it was emptied.
        epochs.fit(start_offset, max(end_offset, start_offset + 1))
        producers.remove_snapshots_except({segment.base_offset for segment in segments})
        flushed = end_offset if clean else min(recovery_point or 0, end_offset)
        self._save_damage(segments, is_noted=DAMAGED_RANGES in names)
        return LoadedLog(
            segments, start_offset, end_offset, flushed, epochs, producers, self.cut, gaps
        )

    def _believable_start(
        self,
        start_offset: int,
        segments: list[Segment],
        epochs: LeaderEpochs,
        recovery_point: int | None,
    ) -> int:
        """Returns where the log begins. A checkpoint with a wrong number must not hide records:
        what is before the start was flushed or deleted, so the recovery point is not below it, and
        the first leader epoch begins there (`PartitionLog.delete_records_before`)."""
        first = segments[0].base_offset
        hole = next((damage for damage in segments[0].damage if damage.next_offset == first), None)
        if hole is not None:
            return hole.first_offset
        if start_offset <= first:
            return first
        believable = start_offset
        if recovery_point is not None and start_offset > recovery_point:
            believable = first
        elif epochs.entries:
            believable = max(min(start_offset, epochs.entries[0][1]), first)
        if believable != start_offset:
            log.error(
                "%s: the checkpoint says that the log begins at %d, which nothing else agrees with;"
                " it begins at %d",
                self.folder, start_offset, believable,
            )  # fmt: skip
        return believable

    def _say_if_deleted_records_are_back(self, start_offset: int, epochs: LeaderEpochs) -> None:
        """DeleteRecords writes the first epoch's start at once, the checkpoint some time later. A
        wrong epoch must not hide records, so it is the checkpoint that holds."""
        if epochs.entries and epochs.entries[0][1] > start_offset:
            log.warning(
                "%s: no checkpoint says that the log begins at %d, as its first leader epoch does: "
                "it begins at %d, and deleted records may be served again",
                self.folder, epochs.entries[0][1], start_offset,
            )  # fmt: skip

    def _epochs_before(self, offset: int, segments: list[Segment]) -> list[tuple[int, int]]:
        """Returns the leader epochs according to the batches. The file lost them when the log was
        truncated at its beginning, and a power cut has brought that beginning back. Without them
        this replica would name the epoch of its oldest batch as that of its newest, and the leader
        would make it truncate committed records."""
        found: list[tuple[int, int]] = []
        for segment in segments:
            for batch in segment.headers():
                if batch.base_offset >= offset:
                    return found
                if not found or batch.leader_epoch > found[-1][0]:
                    found.append((batch.leader_epoch, batch.base_offset))
        return found

    def _check_epochs(self, epochs: LeaderEpochs, segments: list[Segment]) -> None:
        """The file is rebuilt if the log's own batches contradict it."""
        wrong = find_wrong_epoch(epochs, segments)
        if wrong:
            log.error("%s is wrong: %s; it is rebuilt from the log", epochs.path, wrong)
            epochs.replace(epochs_of_batches(segments))

    def _note_hole_before(self, first: Segment, start_offset: int, epochs: LeaderEpochs) -> None:
        """The first leader epoch begins where the log does: what deletes the beginning of a log
        moves both at once (`PartitionLog.delete_records_before`). If the first segment begins
        later, the segments before it were not removed by this log."""
        if epochs.entries and max(epochs.entries[0][1], start_offset) < first.base_offset:
            hole = hole_before(first, max(epochs.entries[0][1], start_offset))
            first.damage.insert(0, hole)
            self.open_files.findings.damaged(first.path, [hole])

    def _note_holes(
        self,
        segments: list[Segment],
        gaps: CompactionGaps,
        names: list[str],
        epochs_begin: int,
    ) -> None:
        if gaps.may_be and gaps.noted is None:
            self._note_gaps_of_older_version(segments, gaps)
        deleted = {offset_of(name) for name in names if name.endswith(DELETED)}
        for segment, hole in find_holes(segments, gaps):
            if hole.first_offset in deleted or epochs_begin >= hole.next_offset:
                # The log has deleted it, and a power cut has brought an older one back.
                gaps.note([hole[3:5]], {each.base_offset for each in segments})
                continue
            segment.damage.append(hole)
            self.open_files.findings.damaged(segment.path, [hole])

    def _note_gaps_of_older_version(self, segments: list[Segment], gaps: CompactionGaps) -> None:
        if len(segments) > 1:
            found = [gap for _, gap in gaps_between(segments)]
            gaps.note(found, {segment.base_offset for segment in segments})
            if found:
                log.warning(
                    "%s: the log was compacted without a list of the gaps that this left; from now "
                    "on %d gaps between its segments count as such",
                    self.folder, len(found),
                )  # fmt: skip

    def _remember_damage(self, segments: list[Segment], gaps: CompactionGaps) -> None:
        """The damage that an earlier start found and that is still there; segments that are read
        now find it themselves."""
        path = f"{self.folder}/{DAMAGED_RANGES}"
        by_base = {segment.base_offset: segment for segment in segments}
        for damage in ranges_from_bytes(self.open_files.disk.read_file(path)):
            segment = by_base.get(damage.segment)
            if segment is not None and damage.end <= segment.size:
                segment.damage.append(damage)
        SegmentList(segments, gaps).confirm_damage()

    def _save_damage(self, segments: list[Segment], *, is_noted: bool) -> None:
        found = [damage for segment in segments for damage in segment.damage]
        if found or is_noted:
            save_ranges(self.open_files.disk, self.folder, found)

    def _first_to_read(
        self, segments: list[Segment], recovery_point: int | None, *, clean: bool
    ) -> int:
        """Returns the number of the first segment that must be read."""
        if clean:  # only its end was not certain
            return len(segments) - 1
        bases = [segment.base_offset for segment in segments]
        return max(bisect_right(bases, recovery_point or 0) - 1, 0)

    def _find_segments(self, names: list[str], gaps: CompactionGaps) -> list[Segment]:
        segments = []
        there = set(names)
        for name in names:
            stem = name.removesuffix(".log")
            if stem == name or not stem.isdigit():
                continue
            segment = Segment.load(
                self.open_files, self.folder, int(stem), self.settings, wall_ms=self.wall_ms
            )
            segment.gaps = gaps
            if stem + ".index" not in there or stem + ".timeindex" not in there:
                find_damage(segment)  # a wrong header must not get into the new ones
                segment.rebuild_indexes(self.settings)
                segment.seal()
            segments.append(segment)
        return segments

    def _next_offset_of_swap(self, base_offset: int, name: str) -> int:
        """Returns where a compacted segment ends that is waiting to be swapped in."""
        segment = Segment(
            self.open_files, self.folder, base_offset, wall_ms=self.wall_ms, jitter_ms=0
        )
        segment.path = f"{self.folder}/{name}"
        segment.size = self.open_files.disk.size(segment.path)
        next_offset = base_offset
        for batch in segment.headers():
            next_offset = batch.last_offset + 1
        segment.let_go()
        return next_offset

    def _make_active(self, segment: Segment) -> None:
        segment.grow_indexes(self.settings)
        for batch in segment.headers():
            segment.remember_first_batch(batch.max_timestamp)
            break

    def _begin_anew(
        self,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerState,
        start_offset: int,
    ) -> None:
        """Nothing is left at or after the start offset (or nothing ever was)."""
        self._remove(segments, 0)
        epochs.clear()
        producers.start_anew()
        segments.append(
            Segment.create(
                self.open_files, self.folder, start_offset, self.settings, wall_ms=self.wall_ms
            )
        )

    def _remove(self, segments: list[Segment], first: int) -> None:
        for segment in segments[first:]:
            segment.let_go()
            for path in segment.paths():
                self.open_files.disk.remove(path)
        del segments[first:]

    # --- after a kill

    def _recover(
        self,
        segments: list[Segment],
        first: int,
        epochs: LeaderEpochs,
        producers: ProducerState,
        recovery_point: int | None,
        start_offset: int,
    ) -> int:
        """Read the batches that may not have reached the disk; returns where the log ends."""
        bases = [segment.base_offset for segment in segments]
        self._load_producers(segments, producers, start_offset, bases[first], clean=False)
        end_offset = bases[first]
        for number in range(first, len(segments)):
            segment = segments[number]
            if number > first:
                segments[number - 1].seal()
                producers.take_snapshot(segment.base_offset)
            recovery = SegmentRecovery(
                segment,
                self.settings,
                epochs,
                producers,
                recovery_point,
                below=bases[number + 1] if number + 1 < len(bases) else None,
            )
            end_offset = recovery.run()
            self.open_files.findings.damaged(segment.path, segment.damage)
            if self._ends_before_hole(recovery, end_offset):
                recovery.cut_reason = MISSING
            if recovery.cut_reason:
                self._cut_behind(segments, number, end_offset, recovery)
                break
        self._close_damaged_end(segments, producers, end_offset)
        return end_offset

    def _ends_before_hole(self, recovery: SegmentRecovery, end_offset: int) -> bool:
        """Returns whether the next segment begins later, and the records between were never
        flushed: after a power cut they are lost, so the log ends here, as before a torn batch."""
        gaps, below, flushed = recovery.segment.gaps, recovery.below, recovery.recovery_point
        if below is None or flushed is None or not flushed <= end_offset < below:
            return False
        assert gaps is not None, "of the log"
        is_of_older_version = gaps.may_be and gaps.noted is None
        return not is_of_older_version and not gaps.is_noted((end_offset, below))

    def _cut_behind(
        self, segments: list[Segment], number: int, end_offset: int, recovery: SegmentRecovery
    ) -> None:
        later = sum(segment.size for segment in segments[number + 1 :])
        self._remove(segments, number + 1)
        self.cut = Cut(end_offset, recovery.cut_bytes + later)
        self.open_files.findings.cut(self.folder, self.cut, recovery.cut_reason)

    def _close_damaged_end(
        self, segments: list[Segment], producers: ProducerState, end_offset: int
    ) -> None:
        """New batches go to a new segment: a reader would not find them behind the damage."""
        last = segments[-1]
        if last.damage and last.damage[-1].end == last.size:
            last.seal()
            producers.take_snapshot(end_offset)
            segments.append(
                Segment.create(
                    self.open_files, self.folder, end_offset, self.settings, wall_ms=self.wall_ms
                )
            )

    def _load_producers(
        self,
        segments: list[Segment],
        producers: ProducerState,
        start_offset: int,
        up_to: int,
        *,
        clean: bool,
    ) -> None:
        if clean and not producers.snapshots:
            return  # a clean log without a snapshot never had a producer to remember
        reload_producers(
            segments,
            producers,
            self.settings,
            start_offset=start_offset,
            up_to=up_to,
            wall_ms=self.wall_ms,
        )


def keep_deleted_beginning(names: list[str], epochs: LeaderEpochs) -> None:
    """The log has deleted segments shortly before its end, and its first epoch may not have reached
    the disk with that. It does now, before the last traces of these segments go."""
    bases = [offset_of(name) for name in names if name.endswith((".log", ".log" + SWAP))]
    if LEADER_EPOCHS not in names or not bases:
        return
    with suppress(MalformedCheckpoint):
        epochs.load()
        if epochs.entries and epochs.entries[0][1] < min(bases):
            epochs.truncate_from_start(min(bases))
            epochs.save(flush=True)


def reload_producers(
    segments: list[Segment],
    producers: ProducerState,
    settings: LogSettings,
    *,
    start_offset: int,
    up_to: int,
    wall_ms: int,
) -> None:
    """The producers as of `up_to`: the last snapshot before it, and the batches since."""
    known_to = producers.load_snapshot(
        not_above=up_to, wall_ms=wall_ms, expiration_ms=settings.producer_id_expiration_ms
    )
    if known_to is None:
        known_to = start_offset
    replay_producers(segments, producers, known_to, up_to)
