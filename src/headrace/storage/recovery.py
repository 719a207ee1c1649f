"""How a log is found again on disk, after a clean shutdown and after a kill.

After a clean shutdown nothing is read but the end of the last segment and the producers' snapshot.
Otherwise every segment from the one with the recovery point on is read batch by batch: the log ends
before the first batch that is torn, fails its checksum or steps back in offsets; what follows is
removed, the indexes are made anew, leader epochs and producers are taken from the batches. What
lies before the recovery point was flushed and is believed.
Batches of the formats before 0.11 (magic 0 and 1) are refused, not cut: they are somebody's data.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from headrace.storage.checkpoints import MalformedCheckpoint
from headrace.storage.leader_epochs import LeaderEpochs
from headrace.storage.leftovers import finish_interrupted_work
from headrace.storage.log_settings import LogSettings
from headrace.storage.open_files import OpenFiles
from headrace.storage.producer_state import ProducerState
from headrace.storage.segment import Segment
from headrace.storage.segment_scan import recover_segment, replay_producers


@dataclass(slots=True)
class LoadedLog:
    segments: list[Segment]
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState


@dataclass(slots=True)
class Loader:
    """One log on its way from files to memory."""

    open_files: OpenFiles
    folder: str
    settings: LogSettings
    wall_ms: int

    def load(self, *, recovery_point: int, start_offset: int, clean: bool) -> LoadedLog:
        disk = self.open_files.disk
        names = finish_interrupted_work(disk, self.folder, self._next_offset_of_swap)
        epochs = LeaderEpochs(disk, self.folder)
        try:
            epochs.load()
        except MalformedCheckpoint:
            # Written but not flushed before a power cut: all batches are asked again.
            recovery_point, clean = 0, False
        producers = ProducerState(disk, self.folder)
        producers.find_snapshots(names)
        segments = self._find_segments(names)
        if segments:
            start_offset = max(start_offset, segments[0].base_offset)
        if clean or not segments:
            end_offset = segments[-1].next_offset() if segments else start_offset
            self._load_producers(segments, producers, start_offset, end_offset, clean=True)
        else:
            end_offset = self._recover(segments, epochs, producers, recovery_point, start_offset)
        if end_offset < start_offset or not segments:
            self._begin_anew(segments, epochs, producers, start_offset)
            end_offset = start_offset
        self._make_active(segments[-1])
        epochs.truncate_from_start(start_offset)
        # An empty log keeps the epoch in which it was emptied.
        epochs.truncate_from_end(max(end_offset, start_offset + 1))
        producers.remove_snapshots_except({segment.base_offset for segment in segments})
        recovery_point = end_offset if clean else min(recovery_point, end_offset)
        return LoadedLog(segments, start_offset, end_offset, recovery_point, epochs, producers)

    def _find_segments(self, names: list[str]) -> list[Segment]:
        segments = []
        there = set(names)
        for name in names:
            stem = name.removesuffix(".log")
            if stem == name or not stem.isdigit():
                continue
            segment = Segment.load(
                self.open_files, self.folder, int(stem), self.settings, wall_ms=self.wall_ms
            )
            if stem + ".index" not in there or stem + ".timeindex" not in there:
                segment.rebuild_indexes(self.settings)
                segment.seal()
            segments.append(segment)
        return segments

    def _next_offset_of_swap(self, base_offset: int, name: str) -> int:
        """Where a compacted segment that waits to take its place ends."""
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
        epochs: LeaderEpochs,
        producers: ProducerState,
        recovery_point: int,
        start_offset: int,
    ) -> int:
        """Read what may not have reached the disk; answers where the log ends."""
        bases = [segment.base_offset for segment in segments]
        first = max(bisect_right(bases, recovery_point) - 1, 0)
        self._load_producers(segments, producers, start_offset, bases[first], clean=False)
        for number in range(first, len(segments)):
            segment = segments[number]
            if number > first:
                segments[number - 1].seal()
                producers.take_snapshot(segment.base_offset)
            size_before = segment.size
            end_offset = recover_segment(segment, self.settings, epochs, producers)
            if segment.size < size_before:
                self._remove(segments, number + 1)
                break
        return end_offset

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
