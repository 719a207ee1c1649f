"""A quorum's log and `quorum-state` in memory, with what the disk has of them.

A crash keeps what was flushed. Of what was written since, it keeps a part: a prefix of the new
batches, or the batches that a truncation had removed and that were still on the disk.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from headrace.node.consensus.batches import batches_in
from headrace.node.consensus.quorum.messages import OffsetAndEpoch
from headrace.node.consensus.quorum.quorum_log import Election
from headrace.node.consensus.snapshots import Snapshot, SnapshotId, read_snapshot


class StoredBatch(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


class FlushTicket:
    """A flush that is under way."""

    __slots__ = ("number", "batches", "end_offset")

    def __init__(self, number: int, batches: list[StoredBatch], end_offset: int) -> None:
        self.number = number
        self.batches = batches  # what the disk has when it ends
        self.end_offset = end_offset  # how far that is still the log


class MemoryLog:
    def __init__(self, batches_per_read: int = 1_000) -> None:
        self.batches: list[StoredBatch] = []
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.start_offset = 0
        self.flushed_offset = 0
        self._batches_per_read = batches_per_read
        self._on_disk: list[StoredBatch] = []
        self._flushes: list[FlushTicket] = []
        self._flush_count = 0
        self._last_flush = 0  # the latest that has ended
        self._pieces: dict[SnapshotId, bytearray] = {}  # of snapshots that are on their way

    # As the quorum sees it (QuorumLog)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start_offset

    @property
    def last_epoch(self) -> int:
        if self.batches:
            return self.batches[-1].epoch
        return self._start().epoch

    def _start(self) -> OffsetAndEpoch:
        """The point that the log begins behind."""
        epochs = [s.epoch for s in self.snapshots if s.end_offset == self.start_offset]
        return OffsetAndEpoch(self.start_offset, max(epochs, default=0))

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        for batch in reversed(self.batches):
            if batch.epoch <= epoch:
                return OffsetAndEpoch(batch.end_offset, batch.epoch)
        return self._start()

    def earliest_snapshot(self) -> SnapshotId | None:
        return min(self.snapshots, default=None)

    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def append(self, batches: bytes | bytearray, *, wall_ms: int) -> None:
        at = 0
        for batch in batches_in(memoryview(batches)):
            assert batch.base_offset == self.end_offset, "the log has no holes"
            size = int.from_bytes(batches[at + 8 : at + 12], "big") + 12
            data = bytes(batches[at : at + size])
            stored = StoredBatch(batch.base_offset, batch.last_offset + 1, batch.epoch, data)
            self.batches.append(stored)
            at += size

    def truncate(self, to_offset: int, *, wall_ms: int) -> None:
        while self.batches and self.batches[-1].end_offset > to_offset:
            self.batches.pop()
        self.flushed_offset = min(self.flushed_offset, to_offset)
        for flush in self._flushes:
            flush.end_offset = min(flush.end_offset, to_offset)

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = [batch.data for batch in self.batches if batch.end_offset > offset]
        return b"".join(found[: self._batches_per_read])

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        found = self.snapshots.get(snapshot_id)
        return None if found is None else len(found)

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        # Small pieces, so that a download takes many requests.
        return self.snapshots[snapshot_id][position : position + min(max_bytes, 200)]

    def write_snapshot(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        if position == 0:
            self._pieces = {snapshot_id: bytearray()}
        assert len(self._pieces[snapshot_id]) == position
        self._pieces[snapshot_id] += data

    def install_snapshot(self, snapshot_id: SnapshotId, *, wall_ms: int) -> Snapshot:
        content = bytes(self._pieces.pop(snapshot_id))
        snapshot = read_snapshot(content, snapshot_id.file_name)
        self.snapshots = {snapshot_id: content}
        self.batches, self._on_disk = [], []
        self.start_offset = self.flushed_offset = snapshot_id.end_offset
        self._flushes.clear()
        return snapshot

    # As the host sees it

    def add_snapshot(self, snapshot_id: SnapshotId, content: bytes) -> None:
        """Adds a snapshot of the host's own; deletes the log up to the snapshot before it."""
        self.snapshots[snapshot_id] = content
        kept = sorted(self.snapshots)[-2:]
        self.snapshots = {each: self.snapshots[each] for each in kept}
        if len(kept) > 1:
            self.start_offset = max(self.start_offset, kept[0].end_offset)
            self.batches = [b for b in self.batches if b.end_offset > self.start_offset]
            self._on_disk = [b for b in self._on_disk if b.end_offset > self.start_offset]

    def begin_flush(self) -> FlushTicket:
        self._flush_count += 1
        flush = FlushTicket(self._flush_count, list(self.batches), self.end_offset)
        self._flushes.append(flush)
        return flush

    def end_flush(self, flush: FlushTicket) -> None:
        if flush not in self._flushes:
            return  # a snapshot has replaced the log
        self._flushes.remove(flush)
        if flush.number > self._last_flush:  # else a later one has proved more already
            self._last_flush = flush.number
            self._on_disk = [b for b in flush.batches if b.end_offset > self.start_offset]
            self.flushed_offset = max(self.flushed_offset, flush.end_offset)

    def crash(self, chance: random.Random) -> bool:
        """Lose what a crash loses; returns whether anything was not on the disk."""
        was_whole = self.batches == self._on_disk
        common = [a for a, b in zip(self.batches, self._on_disk, strict=False) if a == b]
        undone = self._on_disk[len(common) :]
        written = self.batches[len(common) :]
        if undone and chance.random() < 0.5:
            self.batches = common + undone  # the truncation had not reached the disk
        else:
            self.batches = common + written[: chance.randint(0, len(written))]
        self._on_disk = list(self.batches)
        self.flushed_offset = self.end_offset
        self._flushes.clear()
        self._pieces.clear()
        return not was_whole


class MemoryState:
    """`quorum-state`; a write has reached the disk when it returns."""

    def __init__(self) -> None:
        self._election: Election | None = None
        self._is_removed = False

    def read(self) -> Election | None:
        return self._election

    def write(self, election: Election) -> None:
        self._election = election

    def read_removal(self) -> bool:
        return self._is_removed

    def write_removal(self, *, removed: bool) -> None:
        self._is_removed = removed
