"""One partition's log on a disk: opens, reads, rolls, truncates, flushes and closes it.

The log's `writer` (`log_writer.py`) appends the batches. If the disk refuses a write, the log
becomes what the disk has and raises KAFKA_STORAGE_ERROR. A log that has lost gathered batches takes
no more until the end of the turn (`loss_is_told`): until then, an appended offset at or after the
log's end is a lost one, and that is how callers find the answers to withhold. Files of removed
segments are renamed first; the caller deletes them after `file.delete.delay.ms`, when readers with
open slices are done. Everything runs on the loop; only `Flush.run` may run on another thread.
"""

from __future__ import annotations

from typing import Any, NoReturn, Self

from headrace.environment import Buffer, FileSlice
from headrace.node.storage import retention
from headrace.node.storage.compaction.segment_swap import gaps_behind, swap_in
from headrace.node.storage.durability.flush import Flush, Flushable, Unflushed
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.log_writer import LogWriter
from headrace.node.storage.recovery.damage import save_ranges, save_repaired
from headrace.node.storage.recovery.lost_batches import expect_first_batches, take_back
from headrace.node.storage.recovery.recovery import LoadedLog, Loader, reload_producers
from headrace.node.storage.segments import time_search
from headrace.node.storage.segments.batch_headers import size_at
from headrace.node.storage.segments.segment import Segment
from headrace.node.storage.segments.segment_list import SegmentList
from headrace.node.storage.segments.time_search import Budget, Found
from headrace.wire.protocol.errors import ErrorCode, KafkaError

LogList = list[Any]  # of logs


class PartitionLog:
    __slots__ = (
        "folder",
        "settings",
        "start_offset",
        "end_offset",
        "recovery_point",
        "epochs",
        "producers",
        "segments",
        "active",
        "last_flush_ms",
        "cut",
        "lost_pending",
        "disk_failed",
        "unwritten",
        "writer",
        "_open_files",
        "unflushed",
        "_opened_ms",
        "_must_reload",
        "_closed",
    )

    def __init__(
        self,
        open_files: OpenFiles,
        folder: str,
        settings: LogSettings,
        *,
        unwritten: Unwritten,
        wants_flush: LogList,
    ) -> None:
        """Use `open`. Both lists belong to the caller; the log puts itself on them:
        on `unwritten` when batches wait for `write_pending`, on `wants_flush` when `flush_target`
        should be asked soon (a new folder or segment, a rolled segment, `flush.messages` reached).
        """
        # Invariants between two calls: start_offset <= end_offset; recovery_point <= end_offset;
        # `active` is the last of `segments`; end_offset is the offset after the last batch that
        # `active` counts, whether that batch is in the file or still in `pending`.
        self.folder = folder
        self.settings = settings
        self.last_flush_ms = 0  # monotonic, kept by the caller for flush.ms
        # Batches that were appended in this turn are lost. At the end of the turn the caller sees
        # this, withholds the acknowledgements of these batches, and calls `loss_is_told`.
        self.lost_pending = False
        # The log takes no batch (`require_disk` raises the reason): batches were lost in this turn,
        # or the log could not be read again after a failed write.
        self.disk_failed = False
        self.unwritten = unwritten
        self.writer = LogWriter(self)
        self._open_files = open_files
        self.unflushed = Unflushed(self, wants_flush)
        self._opened_ms = 0
        self._must_reload = False  # a write failed, and the log could not be read again either
        self._closed = False

    @classmethod
    def open(
        cls,
        open_files: OpenFiles,
        folder: str,
        settings: LogSettings,
        *,
        now_wall_ms: int,
        recovery_point: int | None = 0,
        start_offset: int | None = None,
        clean: bool = False,
        was_compacted: bool = False,
        unwritten: Unwritten,
        wants_flush: LogList,
    ) -> Self:
        """The log in `folder`, made if there is none, recovered unless `clean` (`Loader.load`)."""
        log = cls(open_files, folder, settings, unwritten=unwritten, wants_flush=wants_flush)
        log._opened_ms = now_wall_ms
        is_new = not open_files.disk.exists(folder)
        if is_new:
            open_files.disk.make_folder(folder)
        loader = Loader(open_files, folder, settings, now_wall_ms, was_compacted=was_compacted)
        first = start_offset or 0
        try:
            log._adopt(loader.load(recovery_point=recovery_point, start_offset=first, clean=clean))
        except OSError:
            if is_new:  # or the next one would not know that its names are
                open_files.disk.remove_folder(folder)
            raise
        log.unflushed.new_names = not clean  # a node that was killed may not have flushed them
        if is_new or log.recovery_point < log.active.base_offset:  # or what was found is not safe
            log.unflushed.names_are_new()
        return log

    def _adopt(self, loaded: LoadedLog) -> None:
        # Whatever the folder holds: recovery makes a log of it, or raises.
        assert loaded.start_offset <= loaded.end_offset, "a log begins before it ends"
        assert loaded.recovery_point <= loaded.end_offset, "only what is in the log is flushed"
        self.segments = SegmentList(loaded.segments, loaded.gaps)
        self.active = loaded.segments[-1]
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.cut = loaded.cut
        self._must_reload = False
        self.disk_failed = self.lost_pending

    # --- the way to the file

    def write_pending(self) -> None:
        """Write the batches that were gathered in this turn. If the disk refuses, they are lost."""
        segment = self.active
        pieces = segment.pending
        if not pieces:
            return
        segment.pending = []
        try:
            segment.open_file().append_all(pieces)
        except OSError as problem:
            self._lose(pieces, problem)

    def _lose(self, pieces: list[Buffer], problem: OSError) -> NoReturn:
        """The disk refused these gathered batches: take them out of the log and raise."""
        self.lost_pending = True
        try:
            if not self.take_back(pieces):
                self.reload_after(problem)
        finally:
            self.disk_failed = True
            for piece in pieces:
                self.expect_again(piece)
        raise self.refused(problem) from problem

    def expect_again(self, refused: Buffer) -> None:
        """Producers must send a refused first batch again before their second batch is accepted."""
        expect_first_batches(self.producers, refused)

    def loss_is_told(self) -> None:
        """The senders of the lost batches have their error: the log takes batches again."""
        self.lost_pending = False
        self.disk_failed = self._must_reload

    def require_disk(self) -> None:
        """Refuse a batch while the disk has failed; where the log must be reloaded, try that
        first."""
        if self.lost_pending:
            raise self._storage_error(OSError(0, self.unwritten.refusal))
        if self._must_reload:
            self.reload_after(OSError(0, "not readable since a write failed"))

    def take_back(self, pieces: list[Buffer]) -> bool:
        """Undo batches that the file did not take. False: that needs a reload from the file."""
        offset = take_back(self.active, pieces, self.epochs, self.producers)
        if offset is not None:
            self.end_offset = offset
        return offset is not None

    def write_at_once(self) -> None:
        """Write what the caller has appended just now. If the disk refuses and no other batch was
        waiting, only the caller has lost something and gets the error: the turn may continue.
        """
        alone = len(self.active.pending) <= 1 and not self.lost_pending
        try:
            self.write_pending()
        except KafkaError:
            if alone:
                self.loss_is_told()
            raise

    def reload_after(self, problem: OSError) -> NoReturn:
        """The disk has less than the log in memory: reload the log from the disk, and raise."""
        self._must_reload = self.disk_failed = True
        try:
            self.reload()
        except OSError as again:
            raise self.refused(again) from again
        raise self.refused(problem) from problem

    @property
    def is_unreadable(self) -> bool:
        """Returns whether the disk refused a write, and then to be read: what the log knows is
        neither what it has been given nor what the disk has."""
        return self._must_reload

    def reload(self) -> None:
        """Discard the state in memory and load the log from the disk."""
        for segment in self.segments.items:
            if segment.pending:
                segment.pending = []
                self.lost_pending = True
            segment.let_go()
        loader = Loader(self._open_files, self.folder, self.settings, self._opened_ms)
        loaded = loader.load(
            recovery_point=self.recovery_point, start_offset=self.start_offset, clean=False
        )
        self.unflushed.generation += 1
        self._adopt(loaded)

    def refused(self, problem: OSError) -> KafkaError:
        """The disk refused a write: from now on no log of this node gathers batches."""
        self.unwritten.refused(self.folder, problem)
        return self._storage_error(problem)

    def _storage_error(self, problem: OSError) -> KafkaError:
        self.unwritten.on_problem(self.folder, problem)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder}: {problem.strerror}")

    # --- read

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool
    ) -> FileSlice | None:
        """The bytes from the batch that holds `offset` on, of batches that end before `up_to`.

        None: nothing there yet (or only part of a batch fits and `at_least_one` is not asked for).
        The last batch may be cut in the middle by `max_bytes`; clients expect that.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.start_offset} to {self.end_offset}",
            )
        # A slice names bytes of the file, so batches that are still in memory must be written
        # first. Only a reader that would get some of them pays for that write.
        if self.active.pending and offset < up_to:
            up_to = self._write_for_reader(up_to)
        if offset >= up_to:
            return None
        # Fast path for a reader at the end of the log. It asks for the offset after the last batch
        # it got, which is the base offset of the next one, and `recent` maps base offsets to
        # positions. The general path (`SegmentList.read`) finds the first batch that ends at or
        # after `offset`; for a base offset that is the same batch. Every change that moves batches
        # clears both maps (`forget_recent`). tests/unit/node/storage/test_read.py holds it: any
        # offset with any sizes, after a truncation, and without opening or searching a file.
        segment = self.active
        position = segment.recent.get(offset)
        try:
            if position is None:
                position = segment.less_recent.get(offset)
                if position is None:
                    found = self.segments
                    read = found.read_behind_damage if self.settings.skip_damaged else found.read
                    return read(offset, max_bytes, up_to, self.end_offset, at_least_one)
            # `position_of` gives the beginning of the batch that holds `up_to`, so the slice ends
            # between two batches and shows nothing from `up_to` on.
            end = segment.size if up_to >= self.end_offset else segment.position_of(up_to)
            length = end - position
            file = segment.file or segment.open_file()
            # KIP-74: the first batch of an answer is sent whole even if it is larger than the
            # limit, or the consumer could never pass it. A later batch may be cut; clients drop the
            # torn end.
            if length > max_bytes:
                size = size_at(file, position)
                length = max_bytes if size <= max_bytes else size if at_least_one else 0
        except OSError as problem:
            raise self._storage_error(problem) from problem
        return FileSlice(file, position, length) if length > 0 else None

    def _write_for_reader(self, up_to: int) -> int:
        """Write pending batches, and return the offset up to which a reader may read. A refused
        write raises only if the log must be reloaded."""
        try:
            self.write_pending()
        except KafkaError:
            if self._must_reload:
                raise
        return min(up_to, self.end_offset)

    def aborted_transactions(
        self, offset: int, records: FileSlice, up_to: int
    ) -> list[tuple[int, int]]:
        """Producer id and first offset of each aborted transaction that `records` may hold parts
        of; `records` is what `read` gave for `offset`."""
        return self.segments.aborted_transactions(offset, records, up_to, self.end_offset)

    def offset_for_time(self, timestamp_ms: int, budget: Budget | None = None) -> Found | None:
        """Timestamp, offset and epoch of the first record not older than that; None: all are."""
        self.write_pending()
        items, start_offset = self.segments.items, self.start_offset
        return time_search.first_not_before(items, timestamp_ms, start_offset, budget)

    def offset_of_max_timestamp(self, budget: Budget | None = None) -> tuple[int, int, int] | None:
        """Timestamp, offset and epoch of the youngest record; None if no record has a timestamp."""
        self.write_pending()
        return time_search.youngest(self.segments.items, budget)

    def offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and where it ended; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # --- roll

    def roll(self, *, wall_ms: int) -> None:
        """Begin a new segment at the end of the log; nothing happens if the last one is empty."""
        if not self.active.size:
            return
        self.write_pending()
        try:
            self.active.seal()
            # The recovery point may be beyond this segment already; then no later flush would
            # include them.
            self.unflushed.small_files += [self.active.index.path, self.active.time_index.path]
            if self.producers.take_snapshot(self.end_offset):
                self.flush_along(self.producers.path(self.end_offset))
            segment = Segment.create(
                self._open_files, self.folder, self.end_offset, self.settings, wall_ms=wall_ms
            )
        except OSError as problem:
            raise self.refused(problem) from problem
        self.segments.add(segment)
        self.active = segment
        self.unflushed.names_are_new()

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes()

    # --- less log

    def truncate(self, to_offset: int, *, wall_ms: int) -> list[str]:
        """Remove every batch that reaches `to_offset`; returns the files to delete later."""
        if to_offset >= self.end_offset:
            self.epochs.truncate_from_end(self.end_offset)
            return []
        if to_offset <= self.segments.bases[0]:
            return self.truncate_fully(to_offset, wall_ms=wall_ms)
        self.write_pending()
        removed = self._remove_segments(self.segments.number_at(to_offset - 1) + 1, None)
        self.active = self.segments.items[-1]
        self.active.truncate(to_offset, self.settings, wall_ms=wall_ms)
        end_offset = self.active.next_offset()
        self.end_offset = to_offset if end_offset is None else end_offset
        assert self.end_offset <= to_offset, "a truncated log ends where it was cut, or before"
        self._after_truncation()
        self.epochs.truncate_from_end(self.end_offset)
        reload_producers(
            self.segments.items,
            self.producers,
            self.settings,
            start_offset=self.start_offset,
            up_to=self.end_offset,
            wall_ms=wall_ms,
        )
        return removed

    def truncate_fully(self, offset: int, *, wall_ms: int) -> list[str]:
        """Begin again at `offset`, with an empty log; returns the files to delete later."""
        self.active.pending = []
        removed = self._remove_segments(0, None)
        self.producers.start_anew()
        self.epochs.clear()
        self.active = Segment.create(
            self._open_files, self.folder, offset, self.settings, wall_ms=wall_ms
        )
        self.segments.add(self.active)
        self.start_offset = self.end_offset = offset
        self.unflushed.names_are_new()
        self._after_truncation()
        return removed

    def _after_truncation(self) -> None:
        self.unflushed.generation += 1
        self.start_offset = min(self.start_offset, self.end_offset)
        self.recovery_point = min(self.recovery_point, self.end_offset)
        if save_repaired(self._open_files.disk, self.folder, self.segments.damage()):
            self.unflushed.names_are_new()

    def _remove_segments(self, first: int, last: int | None) -> list[str]:
        """Take segments out of the log; returns the renamed files."""
        removed = []
        for segment in self.segments.take_out(first, last):
            removed += segment.mark_deleted()
            removed += self.producers.mark_snapshot_deleted(segment.base_offset)
        return removed

    def delete_records_before(self, offset: int) -> None:
        """The log begins at `offset` now; `apply_retention` removes the segments before it."""
        if offset > self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends at {self.end_offset}, before {offset}"
            )
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)
            if self.recovery_point < offset:
                self.flush_soon()  # a start is believed as far as the log was flushed

    def apply_retention(self, wall_ms: int, *, high_watermark: int | None = None) -> list[str]:
        """Remove segments beyond the retention; returns the renamed files, which are to be deleted
        after `file.delete.delay.ms`. Nothing at or after the high watermark is removed."""
        count = retention.removable_segments(
            self.segments.items,
            self.settings,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            high_watermark=self.end_offset if high_watermark is None else high_watermark,
            wall_ms=wall_ms,
        )
        if count == len(self.segments):
            try:
                self.roll(wall_ms=wall_ms)
            except KafkaError:
                count -= 1  # a full disk: no room for a new segment until the others are removed
        if count == 0:
            return []
        self.delete_records_before(self.segments.bases[count])
        # The first epoch marks these segments as deleted on purpose: it is flushed before their
        # files are deleted.
        self.unflushed.ask()
        return self._remove_segments(0, count)

    def swap_in(self, old: list[Segment], *, wall_ms: int) -> list[str] | None:
        """Replace these segments by the `.cleaned` segment made from them; returns the files to
        delete later. None, and nothing is changed, if the log no longer has them."""
        assert self.active not in old, "the active segment is never compacted"
        if self._closed:
            return None  # the folder has moved
        try:
            if self.segments.note_gaps(gaps_behind(self._open_files.disk, self, old)):
                self.unflushed.names_are_new()
            removed = swap_in(
                self._open_files, self.folder, self.segments, old, self.settings, wall_ms=wall_ms
            )
        except OSError as problem:
            self.reload_after(problem)
        if removed is not None:
            for replaced in old[1:]:
                removed += self.producers.mark_snapshot_deleted(replaced.base_offset)
            self.unflushed.names_are_new()
        return removed

    # --- flush and close

    def flush_soon(self) -> None:
        """`flush.messages` is reached."""
        self.unflushed.active_too = True
        self.unflushed.ask()

    def flush_along(self, path: str) -> None:
        """A small file beside the log that the next flush takes along (partition.metadata)."""
        self.unflushed.small_files.append(path)

    def flush_target(self, *, everything: bool = False) -> Flush | None:
        """The files to flush now, on another thread; None if there is nothing.

        Closed segments always; the active one if `everything` is asked for or `flush.messages` is
        reached. Hand the Flush back to `flushed` when it has run.
        """
        if self._closed:
            return None  # deleted while it stood on the list
        self.write_pending()
        unflushed = self.unflushed
        active_too = everything or unflushed.active_too
        offset = self.end_offset if active_too else self.active.base_offset
        files = self._files_to_flush(active_too)
        unflushed.asked = unflushed.active_too = False  # a file that cannot be opened: ask again
        folders = unflushed.take_folders(self.folder)
        if not files and not folders and offset <= self.recovery_point:
            return None
        return Flush(files, folders, offset, unflushed.generation)

    def _files_to_flush(self, active_too: bool) -> list[Flushable]:
        files = self.segments.unflushed_files(
            self.recovery_point, self.end_offset, active_too=active_too
        )
        if self.epochs.wants_flush:
            self.epochs.wants_flush = False
            self.flush_along(self.epochs.path)
        return self.unflushed.with_small_files(files, self._open_files.disk)

    def flushed(self, flush: Flush) -> bool:
        """`flush` has run: everything before its offset survives a power cut. False: the log was
        truncated in the meantime, so the flush proves nothing and must be repeated."""
        # A truncation between the start and the end of the flush means that offsets below
        # `flush.offset` may now name other records, which this flush did not see.
        if flush.generation != self.unflushed.generation:
            return False
        assert flush.offset <= self.end_offset, "a log that got shorter is of another generation"
        self.recovery_point = max(self.recovery_point, flush.offset)
        return True

    def close(self) -> Flush:
        """The end of a clean shutdown; run the Flush before marking it as clean.

        The indexes are not flushed: after a power cut a start notices what is missing and rebuilds
        them. OSError: a failed write left the log unreadable, and it still is.
        """
        if self._must_reload:
            self.reload()
        self.write_pending()
        self.active.seal()
        save_ranges(self._open_files.disk, self.folder, self.segments.damage())
        folders = self.unflushed.take_folders(self.folder)
        if self.producers.take_snapshot(self.end_offset) and self.producers.producers:
            self.flush_along(self.producers.path(self.end_offset))
            folders = folders or [self.folder]
        files = self._files_to_flush(active_too=True)
        self.let_go()
        return Flush(files, folders, self.end_offset, self.unflushed.generation)

    def let_go(self) -> None:
        """Close the files without writing: the folder is removed or another process takes over."""
        self._closed = True
        self.active.pending = []
        for segment in self.segments.items:
            segment.let_go()
