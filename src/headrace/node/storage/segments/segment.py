"""One segment of a log: a `.log` file of batches and the indexes that belong to it.

The numbers that an append compares are public slots; only `add_batch` changes them for a new batch.
A closed segment opens its files and reads its indexes at the first use, so that a start does not
read segments that no client reads. Batches in `pending` are appended but not yet in the file;
`size` counts them. A segment does not decide what is appended (`log_writer.py`) or removed
(`retention.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from headrace.environment import Buffer, File
from headrace.node.storage.compaction.compaction_gaps import CompactionGaps
from headrace.node.storage.durability.flush import FileByPath, Flushable
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.recovery.damage import Damage, DamagedRecords, sound_ranges
from headrace.node.storage.segments.batch_chain import CheckedRun
from headrace.node.storage.segments.batch_headers import walk_headers
from headrace.node.storage.segments.batch_search import ANY, NoBatch, find_batch
from headrace.node.storage.segments.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from headrace.node.storage.segments.segment_damage import (
    find_damage,
    indexes_are_plausible,
    is_in_log,
)
from headrace.node.storage.segments.sparse_index import SparseIndex
from headrace.node.storage.segments.time_index import TimeIndex
from headrace.node.storage.segments.transaction_index import TransactionIndex
from headrace.wire.protocol.record_batch import MAGIC, NO_TIMESTAMP, BatchHeader

log = logging.getLogger(__name__)

# A segment without batches never rolls for its age, whatever timestamp comes.
NEVER = 1 << 62
# A segment whose first batch has no timestamp rolls by the clock (`should_roll`).
BY_CLOCK = -NEVER

# Tail readers ask for the offset after a batch they just got: the last this many batches (up to
# twice as many) are found without a look into the index or the file. 16 KB for a busy partition.
RECENT_BATCHES = 64

DELETED = ".deleted"
# The suffix of index files while they are rebuilt; a start removes leftovers.
BESIDE = ".rebuilt.tmp"


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class Segment:
    __slots__ = (
        "path",
        "file",
        "base_offset",
        "size",
        "pending",
        "index",
        "time_index",
        "transaction_index",
        "max_timestamp",
        "offset_of_max_timestamp",
        "last_entry_at",
        "recent",
        "less_recent",
        "index_is_full",
        "created_ms",
        "jitter_ms",
        "ages_from",
        "damage",
        "findings",
        "gaps",
        "unread_to",
        "_checked",
        "_open_files",
        "_indexes_loaded",
    )

    def __init__(
        self, open_files: OpenFiles, folder: str, base_offset: int, *, wall_ms: int, jitter_ms: int
    ) -> None:
        name = f"{folder}/{base_offset:020d}"
        # Invariants: `size` counts the file and `pending` together, so it is where the next batch
        # begins; the entries of both indexes ascend and point to batches before `size`; a position
        # in `recent` or `less_recent` is that of a batch in this segment.
        self.path = name + ".log"
        self.file: File | None = None
        self.base_offset = base_offset
        self.size = 0
        self.pending: list[Buffer] = []  # batches of this turn, in order
        self.index = OffsetIndex(open_files, name + ".index", base_offset)
        self.time_index = TimeIndex(open_files, name + ".timeindex", base_offset)
        self.transaction_index = TransactionIndex(open_files, name + ".txnindex")
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        # Position of the batch that the last index entry points to. After a start or a truncation
        # it is the size at that time, until there is a new entry.
        self.last_entry_at = 0
        # Base offset of a batch -> its position, for the latest batches of `add_batch`.
        self.recent: dict[int, int] = {}
        self.less_recent: dict[int, int] = {}
        self.index_is_full = False
        self.created_ms = wall_ms
        self.jitter_ms = jitter_ms
        # One number answers "does this segment roll for its age?" in the append path: `timestamp -
        # ages_from > segment_ms` is never true for NEVER, and true for BY_CLOCK, where
        # `should_roll` then decides by the clock.
        self.ages_from = NEVER  # timestamp of the first batch less jitter, NEVER or BY_CLOCK
        self.damage: list[Damage] = []  # as far as it is known, in the order of positions
        self.findings = open_files.findings
        self.gaps: CompactionGaps | None = None  # of the log; None: gaps may be anywhere
        # Batches before this position were in the file when this segment was loaded, and not all
        # of them were read since. Reads check the offsets of these, once (`sound_end`).
        self.unread_to = 0
        self._checked = CheckedRun()
        self._open_files = open_files
        self._indexes_loaded = False

    @classmethod
    def create(
        cls,
        open_files: OpenFiles,
        folder: str,
        base_offset: int,
        settings: LogSettings,
        *,
        wall_ms: int,
    ) -> Segment:
        """A new, empty segment with its files; half-made files are removed if that fails."""
        jitter_ms = settings.jitter_ms(folder, base_offset)
        segment = cls(open_files, folder, base_offset, wall_ms=wall_ms, jitter_ms=jitter_ms)
        try:
            file = open_files.open(segment, create=True)
            if file.size:  # a leftover of a segment that was never used
                file.resize(0)
            segment.create_indexes(settings)
        except OSError:
            segment.let_go()
            for path in segment.paths():
                open_files.disk.remove(path)
            raise
        return segment

    @classmethod
    def load(
        cls,
        open_files: OpenFiles,
        folder: str,
        base_offset: int,
        settings: LogSettings,
        *,
        wall_ms: int,
        suffix: str = "",
    ) -> Segment:
        """An existing segment; only the length of its log is read. `suffix`: an extra suffix that
        its file names still have."""
        jitter_ms = settings.jitter_ms(folder, base_offset)
        segment = cls(open_files, folder, base_offset, wall_ms=wall_ms, jitter_ms=jitter_ms)
        segment.size = segment.last_entry_at = open_files.disk.size(segment.path + suffix)
        segment.unread_to = segment.size
        return segment

    # --- files

    def open_file(self) -> File:
        return self.file or self._open_files.open(self)

    def paths(self) -> list[str]:
        return [self.path, self.index.path, self.time_index.path, self.transaction_index.path]

    def all_files(self) -> list[Flushable]:
        """Log and indexes: the files that a flush of a closed segment includes."""
        disk = self._open_files.disk
        files: list[Flushable] = [
            owner.file or FileByPath(disk, owner.path)
            for owner in (self, self.index, self.time_index)
        ]
        return files + self.transaction_index.open_if_there()

    def let_go(self) -> None:
        """Close the files as far as this segment is concerned."""
        self._open_files.let_go(self)
        self.index.let_go()
        self.time_index.let_go()
        self.transaction_index.let_go()

    def mark_deleted(self) -> list[str]:
        """Rename the files so that a restart ignores them; returns the files to delete later."""
        self.let_go()
        disk = self._open_files.disk
        renamed = []
        for path in self.paths():
            if disk.exists(path):
                disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        return renamed

    # --- indexes

    def create_indexes(self, settings: LogSettings) -> None:
        self.index.create(settings.segment_index_bytes)
        self.time_index.create(settings.segment_index_bytes)
        self._indexes_loaded = True
        self.note_fullness()

    def load_indexes(self, beside: str = BESIDE) -> None:
        """Read the index files, once; they are rebuilt if they cannot be right."""
        if self._indexes_loaded:
            return
        self.index.load()
        self.time_index.load()
        self._indexes_loaded = True
        self.max_timestamp = self.time_index.last_timestamp
        self.offset_of_max_timestamp = self.time_index.last_offset
        if not indexes_are_plausible(self):
            find_damage(self)  # a wrong header must not get into the new ones
            self.findings.index_rebuilt(self.index.path)
            self._replace_indexes(beside)

    def _replace_indexes(self, beside: str) -> None:
        """Rebuild in files of other names, then rename them over the old ones: a kill in between
        leaves the old ones, which are found wrong again."""
        indexes: tuple[SparseIndex, ...] = (self.index, self.time_index)
        paths = [index.path for index in indexes]
        disk = self._open_files.disk
        try:
            for index in indexes:
                index.let_go()
                index.path += beside
            self.rebuild_indexes(LogSettings())
            self.seal()
            for index, path in zip(indexes, paths, strict=True):
                index.open_file().flush()
                disk.rename(index.path, path)
        except OSError:
            self._indexes_loaded = False
            for index in indexes:
                index.let_go()
                disk.remove(index.path)
            raise
        finally:
            for index, path in zip(indexes, paths, strict=True):
                index.path = path

    def offset_for_time(self, timestamp: int) -> int:
        """An offset at or before the first record that is not older than `timestamp`."""
        self.load_indexes()
        _, entry = self.time_index.last_not_above(timestamp, field=0)
        if entry is not None and not is_in_log(self, entry[0], self.base_offset + entry[1]):
            self.look_for_damage()
            _, entry = self.time_index.last_not_above(timestamp, field=0)
        return self.base_offset + (0 if entry is None else int(entry[1]))

    def rebuild_indexes(self, settings: LogSettings) -> None:
        """Rebuild the indexes from the batches in the log, whose headers are trusted outside known
        damage."""
        end = self.size
        self.begin_anew(settings)
        for batch in self._headers_to(end):
            self.size = batch.position
            self.add_batch(
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
                batch.size,
                settings.index_interval_bytes,
            )
        self.size = end
        self.forget_recent()

    def begin_anew(self, settings: LogSettings) -> None:
        """Empty indexes for a file that is about to be read from its start, by `add_batch`."""
        self.create_indexes(settings)
        self.size = self.last_entry_at = 0
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self.forget_recent()

    def add_batch(
        self, base_offset: int, last_offset: int, timestamp: int, size: int, index_interval: int
    ) -> None:
        """Count a batch at the end of this segment, already written or about to be.

        Every batch of every log passes here once when it is appended, and again when its segment is
        recovered: only this method moves `size`, the timestamps, the indexes and the recent
        positions.
        """
        position = self.size
        if not position:
            self.remember_first_batch(timestamp)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.offset_of_max_timestamp = last_offset
        # As in Apache Kafka: at most one entry per `index.interval.bytes`, and it points to the
        # batch that begins after that many bytes.
        if position - self.last_entry_at > index_interval:
            self._add_index_entries(last_offset, position)
        # The batch counts from here on, before it is in the file. If the disk refuses it,
        # `take_back` restores what this method changed.
        self.size = position + size
        recent = self.recent
        recent[base_offset] = position
        # Two generations instead of one ordered map: an append stores one entry and never removes
        # one. A position is found for the last RECENT_BATCHES batches at least.
        if len(recent) > RECENT_BATCHES:
            self.less_recent, self.recent = recent, {}

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        """Point both indexes at the batch at `position`. A log rolls before an index is full; a
        segment that is recovered may have more than its indexes can hold by today's settings."""
        if self.index_is_full:
            return
        self.index.add(last_offset, position)
        self.time_index.add(self.max_timestamp, self.offset_of_max_timestamp)
        self.last_entry_at = position
        self.note_fullness()

    def forget_recent(self) -> None:
        self.recent, self.less_recent = {}, {}

    def note_fullness(self) -> None:
        self.index_is_full = self.index.is_full() or self.time_index.is_full()

    def grow_indexes(self, settings: LogSettings) -> None:
        """This segment takes appends (again)."""
        self.load_indexes()
        self.index.grow(settings.segment_index_bytes)
        self.time_index.grow(settings.segment_index_bytes)
        self.note_fullness()

    def seal(self) -> None:
        """Close the segment for appends: add the entry with its age, and cut the indexes to their
        length."""
        self.load_indexes()
        if self.time_index.entries >= self.time_index.max_entries:
            self.time_index.grow((self.time_index.entries + 1) * 12)
        self.time_index.add(self.max_timestamp, self.offset_of_max_timestamp)
        self.index.trim()
        self.time_index.trim()
        self.note_fullness()
        self.forget_recent()

    # --- age

    def remember_first_batch(self, max_timestamp: int) -> None:
        self.ages_from = max_timestamp - self.jitter_ms if max_timestamp >= 0 else BY_CLOCK

    def should_roll(
        self, settings: LogSettings, *, size: int, timestamp: int, last_offset: int, wall_ms: int
    ) -> bool:
        """Returns whether these bytes belong into a new segment; Apache Kafka's four reasons."""
        if self.ages_from == BY_CLOCK:
            age_ms = wall_ms - self.created_ms + self.jitter_ms
        else:
            age_ms = timestamp - self.ages_from
        return (
            self.size + size > settings.segment_bytes
            or (self.size > 0 and age_ms > settings.segment_ms)
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            or self.index_is_full
        )

    def largest_timestamp(self) -> int:
        """Returns the largest timestamp of all batches; the file's own time if no batch has one."""
        self.load_indexes()
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._open_files.disk.modified_ms(self.path)

    def first_timestamp(self) -> int:
        """The timestamp of the first batch; -1 if there is none."""
        if self.ages_from in (NEVER, BY_CLOCK):
            first = next(self.headers(), None)
            if first is None:
                return NO_TIMESTAMP
            self.remember_first_batch(first.max_timestamp)
        return NO_TIMESTAMP if self.ages_from == BY_CLOCK else self.ages_from + self.jitter_ms

    # --- batches

    def find(self, offset: int) -> tuple[int, int] | None:
        """Returns position and size of the first batch that ends at or after `offset`;
        DamagedRecords if that offset is in a damaged range."""
        if not self._indexes_loaded:
            self.load_indexes()
        try:
            return self.search(offset)
        except NoBatch as problem:
            log.warning("%s", problem)
            self.look_for_damage()
            return self.search(offset)

    @property
    def gapless(self) -> bool:
        """True if each batch begins where the one before it ends: the log was never compacted."""
        return self.gaps is not None and not self.gaps.may_be

    def search(self, offset: int) -> tuple[int, int] | None:
        """Find a batch with the indexes loaded; NoBatch if the index or the log is damaged."""
        first, ends_by = self.index.entry_for(offset)
        not_above = offset if first else ANY
        # Without damage the whole segment is one sound range, so the loops below would do the same.
        if not self.damage:  # each fetch of what is not at the end of the log comes here
            file = self.file or self._open_files.open(self)
            gapless, base = self.gapless, self.base_offset
            if gapless and not first:
                not_above = base
            return find_batch(file, offset, first, self.size, base, not_above, ends_by, gapless)
        for damage in self.damage:
            if damage.first_offset <= offset < damage.next_offset:
                raise DamagedRecords(damage, self.path)
        for begin, end in sound_ranges(self.damage, first, self.size):
            limit = not_above if begin == first else ANY
            found = find_batch(self.open_file(), offset, begin, end, self.base_offset, limit)
            if found is not None:
                return found
        return None

    def sound_end(self, position: int, end: int, below: int) -> int:
        """Returns up to where the batches from `position` on have offsets that continue each other,
        at most `end` (`CheckedRun.sound_end`). A batch ends before the offset `below`."""
        stop = min(end, self.unread_to)
        found = self._checked.sound_end(
            self.open_file(), position, stop, self.size, gapless=self.gapless, below=below
        )
        return end if found >= stop else found

    def look_for_damage(self, below: int | None = None) -> None:
        """Something is wrong in this segment: read the whole file, note the damaged ranges, and
        rebuild the indexes. Takes a second per gigabyte, once. `below`: where the next segment
        begins, if the caller knows it."""
        find_damage(self, below)
        self.findings.index_rebuilt(self.index.path)
        if self.index.entries < self.index.max_entries:  # it takes appends: a start rebuilds it
            self.rebuild_indexes(LogSettings(segment_index_bytes=self.index.max_entries * 8))
        else:
            self._replace_indexes(BESIDE)

    def position_of(self, offset: int) -> int:
        """Returns where the batch that holds `offset` begins; the end if none does."""
        position = self.recent.get(offset)
        if position is None:
            position = self.less_recent.get(offset)
        if position is None:
            position = self.position_before(offset)
        return position

    def position_before(self, offset: int) -> int:
        """Returns where that batch begins, or where the damage begins that holds the offset."""
        try:
            found = self.find(offset)
        except DamagedRecords as refusal:
            return refusal.damage.position
        return self.size if found is None else found[0]

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """Yields the headers of all good batches from that position on."""
        return self._headers_to(self.size, position)

    def headers_from(self, offset: int) -> Iterator[BatchHeader]:
        """Yields the headers of the good batches from the one that holds `offset` on."""
        return self.headers(self.position_before(offset))

    def _headers_to(self, end: int, position: int = 0) -> Iterator[BatchHeader]:
        for begin, stop in sound_ranges(self.damage, position, end):
            yield from walk_headers(self.open_file(), begin, stop)

    def read_batch(self, batch: BatchHeader) -> memoryview:
        return memoryview(self.open_file().read(batch.size, batch.position))

    def next_offset(self) -> int | None:
        """Returns the offset after the last batch, or the base offset if there is none; None if
        damage makes it unknown."""
        self.load_indexes()
        next_offset, end = self.base_offset, 0
        for batch in self.headers_from(self.index.last_offset):
            if batch.magic != MAGIC or batch.base_offset < next_offset:
                return None
            if end and self.gapless and batch.base_offset != next_offset:
                return None
            next_offset, end = batch.last_offset + 1, batch.position + batch.size
        return next_offset if end == self.size else None

    def take_back(self, to_offset: int, size: int) -> None:
        """The batches from `to_offset` on did not reach the file, which ends at `size`."""
        self.size = size
        self.index.truncate(to_offset)
        self.time_index.truncate(to_offset)
        self.note_fullness()
        self.forget_recent()
        entries = self.index.entries
        self.last_entry_at = self.index.entry(entries - 1)[1] if entries else 0
        if self.offset_of_max_timestamp >= to_offset:
            self.find_max_timestamp()

    def truncate(self, to_offset: int, settings: LogSettings, *, wall_ms: int) -> None:
        """Cut from the first batch that reaches `to_offset` on; this becomes the active segment."""
        position = self.position_before(to_offset)
        if position < self.size:
            self.open_file().resize(position)
            self.size = position
        self.damage = [damage for damage in self.damage if damage.position < position]
        self.unread_to = min(self.unread_to, position)
        self._checked.forget()
        self.index.truncate(to_offset)
        self.time_index.truncate(to_offset)
        self.transaction_index.truncate(to_offset)
        self.grow_indexes(settings)
        self.last_entry_at = self.size
        self.forget_recent()
        self.find_max_timestamp()
        if not self.size:
            self.ages_from, self.created_ms = NEVER, wall_ms

    def find_max_timestamp(self) -> None:
        """The time index knows it up to its last entry; the batches behind that are looked at."""
        self.max_timestamp = self.time_index.last_timestamp
        self.offset_of_max_timestamp = self.time_index.last_offset
        for batch in self.headers_from(self.time_index.last_offset):
            if batch.max_timestamp > self.max_timestamp:
                self.max_timestamp = batch.max_timestamp
                self.offset_of_max_timestamp = batch.last_offset
