"""Which leader epoch began at which offset of a log, and the file `leader-epoch-checkpoint`.

Followers and consumers ask it where an epoch ended, to find where two logs part (KIP-101, KIP-320).
Entries ascend in both epoch and offset; an entry that contradicts earlier ones replaces them. The
file is written at every change but flushed with the log's next flush: until then it can be found
again in the batches behind the recovery point.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress

from headrace.environment import Disk
from headrace.node.storage import checkpoints

UNDEFINED = (-1, -1)


class LeaderEpochs:
    __slots__ = ("path", "entries", "latest", "wants_flush", "_disk")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self.path = f"{folder}/{checkpoints.LEADER_EPOCHS}"
        self.entries: list[tuple[int, int]] = []  # (epoch, start offset)
        self.latest = -1
        self.wants_flush = False

    def load(self) -> None:
        """Read the file; raises MalformedCheckpoint if a power cut left it half written."""
        for epoch, start_offset in checkpoints.epochs_from_bytes(self._disk.read_file(self.path)):
            self._put(epoch, start_offset)

    def save(self, *, flush: bool = False) -> None:
        data = checkpoints.epochs_to_bytes(self.entries)
        self._disk.write_file(self.path, [data], flush=flush)
        self.wants_flush = True

    def assign(self, epoch: int, start_offset: int) -> None:
        """Batches of `epoch` begin at `start_offset`. OSError: it is not noted, here neither."""
        before = list(self.entries)
        if not self._put(epoch, start_offset):
            return
        try:
            self.save()
        except OSError:
            self.entries = before
            self.latest = before[-1][0] if before else -1
            raise

    def _put(self, epoch: int, start_offset: int) -> bool:
        entries = self.entries
        if epoch < 0 or (entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset):
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self.latest = epoch
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and the offset where it ended; or UNDEFINED."""
        if epoch == -1:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if above == len(self.entries):
            return UNDEFINED
        # Older than all entries: the log can only answer where it begins now.
        found = self.entries[above - 1][0] if above else epoch
        return found, self.entries[above][1]

    def epoch_of(self, offset: int) -> int:
        """The epoch in which `offset` was written; -1 if that is not known."""
        above = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[above - 1][0] if above else -1

    def fit(self, start_offset: int, end_offset: int) -> None:
        """The entries that were read are adapted to the log that was found. Not saved: each start
        does the same, and the next entry, which mostly comes at once, saves it. A start writes one
        file less for each partition so."""
        entries = [entry for entry in self.entries if entry[1] < end_offset]
        above = bisect_right(entries, start_offset, key=lambda entry: entry[1])
        if above:
            entries = [(entries[above - 1][0], start_offset), *entries[above:]]
        self.entries = entries
        self.latest = entries[-1][0] if entries else -1

    def begin_with(self, earlier: Iterable[tuple[int, int]]) -> None:
        """Epochs before the first one here, as the log has them. Not saved, as with `fit`."""
        later, self.entries = self.entries, []
        for epoch, start_offset in (*earlier, *later):
            self._put(epoch, start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        self._keep(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins at `start_offset` now, in the epoch that was current there."""
        above = bisect_right(self.entries, start_offset, key=lambda entry: entry[1])
        if above:
            kept = [(self.entries[above - 1][0], start_offset), *self.entries[above:]]
            with suppress(OSError):  # a start does the same: a full disk may still be made room on
                self._keep(kept)

    def begins_after(self, offset: int) -> bool:
        """Returns whether an epoch begins at `offset` or later."""
        return bool(self.entries) and self.entries[-1][1] >= offset

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Replace all entries by other ones for the same log."""
        self._keep(list(entries))

    def clear(self) -> None:
        self._keep([])

    def _keep(self, entries: list[tuple[int, int]]) -> None:
        if entries != self.entries:
            self.entries = entries
            self.latest = entries[-1][0] if entries else -1
            self.save()
