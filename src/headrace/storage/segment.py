"""One segment of a log: a `.log` file of batches and the indexes that belong to it.

The segment keeps the numbers that the log's append looks at in public slots; `add_batch` moves them
for each batch. A closed segment opens its files when they
are asked for and reads its indexes then, so that a start does not touch what nobody reads.
Batches in `pending` are appended but not yet in the file; `size` counts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from headrace.environment import Buffer, File
from headrace.protocol.record_batch import NO_TIMESTAMP, BatchHeader
from headrace.storage.batch_headers import find_batch, walk_headers
from headrace.storage.flush import FileByPath, Flushable
from headrace.storage.log_settings import LogSettings
from headrace.storage.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from headrace.storage.open_files import OpenFiles
from headrace.storage.sparse_index import SparseIndex
from headrace.storage.time_index import TimeIndex
from headrace.storage.transaction_index import TransactionIndex

# A segment without batches never rolls for its age, whatever timestamp comes.
NEVER = 1 << 62
# A segment whose first batch has no timestamp rolls by the clock: the log must look closer.
BY_CLOCK = -NEVER

# Tail readers ask for the offset after a batch they just got: the last this many batches (up to
# twice as many) are found without a look into the index or the file. 16 KB for a busy partition.
RECENT_BATCHES = 64

DELETED = ".deleted"
# What indexes are called while they are made anew; a start removes what is left of them.
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
        "_open_files",
        "_indexes_loaded",
    )

    def __init__(
        self, open_files: OpenFiles, folder: str, base_offset: int, *, wall_ms: int, jitter_ms: int
    ) -> None:
        name = f"{folder}/{base_offset:020d}"
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
        # Position of the batch that the last index entry points to; where appends went on after a
        # start or a truncation, until there is a new entry.
        self.last_entry_at = 0
        # Base offset of a batch -> its position: what `add_batch` was told last.
        self.recent: dict[int, int] = {}
        self.less_recent: dict[int, int] = {}
        self.index_is_full = False
        self.created_ms = wall_ms
        self.jitter_ms = jitter_ms
        self.ages_from = NEVER  # timestamp of the first batch less jitter, NEVER or BY_CLOCK
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
        jitter_ms = jitter(folder, base_offset, settings)
        segment = cls(open_files, folder, base_offset, wall_ms=wall_ms, jitter_ms=jitter_ms)
        try:
            file = open_files.open(segment, create=True)
            if file.size:  # a leftover of that name holds nothing that is known of
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
        """A segment that is there already; nothing is read but the length of its log.
        `suffix`: what its files have to their names yet."""
        jitter_ms = jitter(folder, base_offset, settings)
        segment = cls(open_files, folder, base_offset, wall_ms=wall_ms, jitter_ms=jitter_ms)
        segment.size = segment.last_entry_at = open_files.disk.size(segment.path + suffix)
        return segment

    # --- files

    def open_file(self) -> File:
        return self.file or self._open_files.open(self)

    def paths(self) -> list[str]:
        return [self.path, self.index.path, self.time_index.path, self.transaction_index.path]

    def all_files(self) -> list[Flushable]:
        """Log and indexes: what a flush of a closed segment takes."""
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
        """Rename the files so that a restart does not see them; answers what to remove later."""
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
        """Read what the index files say, once; they are made anew if they cannot be right."""
        if self._indexes_loaded:
            return
        self.index.load()
        self.time_index.load()
        self._indexes_loaded = True
        self.max_timestamp = self.time_index.last_timestamp
        self.offset_of_max_timestamp = self.time_index.last_offset
        if not self._indexes_are_plausible():
            self._replace_indexes(beside)

    def _replace_indexes(self, beside: str) -> None:
        """Make them anew in files of other names, which then take the place of the old ones: who is
        stopped in between leaves old ones, which are found wanting again. A process that does so
        beside another has names of its own."""
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

    def _indexes_are_plausible(self) -> bool:
        """Whether the last entries can be right. A file that was never cut to its length ends in
        zeros (its cut did not reach the disk before a power cut), and no entry points to byte 0.
        Zeros further ahead do no harm: a lookup then begins at the start of the log."""
        index, times = self.index, self.time_index
        if index.entries:
            relative, position = index.entry(index.entries - 1)
            if relative < 0 or not 0 < position < self.size:
                return False
        if times.entries:
            relative = times.last_offset - self.base_offset
            return relative >= 0 and not (
                times.entries > 1 and times.last_timestamp == relative == 0
            )
        return True

    def rebuild_indexes(self, settings: LogSettings) -> None:
        """Make the indexes anew from the batches in the log, which are believed."""
        end = self.size
        self.begin_anew(settings)
        for batch in walk_headers(self.open_file(), 0, end):
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
        """Count a batch that stands at the end of this segment or is about to be written there.

        Every batch of every log passes here once when it is appended, and again when its segment is
        recovered: this alone moves `size`, the timestamps, the indexes and the recent positions.
        """
        position = self.size
        if not position:
            self.remember_first_batch(timestamp)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.offset_of_max_timestamp = last_offset
        if position - self.last_entry_at > index_interval:
            self._add_index_entries(last_offset, position)
        self.size = position + size
        self.recent[base_offset] = position
        if len(self.recent) > RECENT_BATCHES:
            self.less_recent, self.recent = self.recent, {}

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
        """This segment takes appends (again): its indexes need room."""
        self.load_indexes()
        self.index.grow(settings.segment_index_bytes)
        self.time_index.grow(settings.segment_index_bytes)
        self.note_fullness()

    def seal(self) -> None:
        """No more appends: say how old the segment is, and cut the indexes to their length."""
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
        """Whether these bytes belong into a new segment; Apache Kafka's four reasons."""
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
        """Of any batch; when the file was last written, if no batch carries a timestamp."""
        self.load_indexes()
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._open_files.disk.modified_ms(self.path)

    def first_timestamp(self) -> int:
        """Of the first batch; -1 if there is none."""
        if self.ages_from in (NEVER, BY_CLOCK):
            first = next(self.headers(), None)
            if first is None:
                return NO_TIMESTAMP
            self.remember_first_batch(first.max_timestamp)
        return NO_TIMESTAMP if self.ages_from == BY_CLOCK else self.ages_from + self.jitter_ms

    # --- batches

    def find(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the first batch that ends at or after `offset`."""
        self.load_indexes()
        return find_batch(self.open_file(), offset, self.index.position_for(offset), self.size)

    def position_of(self, offset: int) -> int:
        """Where the batch that holds `offset` begins; the end if none does."""
        position = self.recent.get(offset)
        if position is None:
            position = self.less_recent.get(offset)
        if position is None:
            found = self.find(offset)
            position = self.size if found is None else found[0]
        return position

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        return walk_headers(self.open_file(), position, self.size)

    def read_batch(self, batch: BatchHeader) -> memoryview:
        return memoryview(self.open_file().read(batch.size, batch.position))

    def next_offset(self) -> int:
        """The offset after the last batch; the base offset if there is none."""
        self.load_indexes()
        position = self.index.position_for(self.index.last_offset)
        next_offset = self.base_offset
        for batch in self.headers(position):
            next_offset = batch.last_offset + 1
        return next_offset

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
        found = self.find(to_offset)
        if found is not None:
            self.open_file().resize(found[0])
            self.size = found[0]
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
        for batch in self.headers(self.index.position_for(self.time_index.last_offset)):
            if batch.max_timestamp > self.max_timestamp:
                self.max_timestamp = batch.max_timestamp
                self.offset_of_max_timestamp = batch.last_offset


def jitter(folder: str, base_offset: int, settings: LogSettings) -> int:
    """Spreads the rolls of many logs over `segment.jitter.ms`; the same number each time."""
    most = min(settings.segment_jitter_ms, settings.segment_ms)
    return crc32(f"{folder}/{base_offset}".encode()) % most if most > 0 else 0
