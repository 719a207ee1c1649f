"""A log as a row of segments on a disk: found, rolled, cut at either end, flushed and closed.

What the disk refuses leaves the log as the disk has it and raises KAFKA_STORAGE_ERROR. A log that
has lost gathered batches takes none until the turn is over (`loss_is_told`): till then whatever was
promised at or behind its end is lost, and can be found by that. Removed
files are renamed first; the caller removes them after `file.delete.delay.ms`, when readers that
still hold them are done. Everything runs on the loop; only `Flush.run` may run elsewhere.
Appending and reading are `partition_log.py`'s.
"""

from __future__ import annotations

from typing import Any, NoReturn, Self

from headrace.environment import Buffer
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.record_batch import CONTROL
from headrace.storage import retention
from headrace.storage.batch_headers import headers_of
from headrace.storage.flush import Flush, Flushable, Unflushed
from headrace.storage.leftovers import CLEANED, FILE_SUFFIXES, SWAP
from headrace.storage.log_settings import LogSettings
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import LoadedLog, Loader, reload_producers
from headrace.storage.segment import Segment, file_name
from headrace.storage.segment_list import SegmentList
from headrace.storage.unwritten import Unwritten

LogList = list[Any]  # of logs; a list of a subclass must fit


class SegmentedLog:
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
        "lost_pending",
        "_open_files",
        "_unwritten",
        "_wants_flush",
        "_unflushed",
        "_recent",
        "_older",
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
        """Use `open` or `create`. Both lists belong to the caller; the log puts itself on them:
        on `unwritten` when batches wait for `write_pending`, on `wants_flush` when `flush_target`
        should be asked soon (a new folder or segment, a rolled segment, `flush.messages` reached).
        """
        self.folder = folder
        self.settings = settings
        self.last_flush_ms = 0  # monotonic, kept by the caller for flush.ms
        # Gathered batches are gone, whoever had them written. The caller looks at the end of the
        # turn, because what was promised for them must not be said, and calls `loss_is_told`.
        self.lost_pending = False
        self._open_files = open_files
        self._unwritten = unwritten
        self._wants_flush = wants_flush
        self._unflushed = Unflushed()
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
        recovery_point: int = 0,
        start_offset: int | None = None,
        clean: bool = False,
        unwritten: Unwritten,
        wants_flush: LogList,
    ) -> Self:
        """The log in `folder`, which is made if it is not there; recovered unless `clean`."""
        log = cls(open_files, folder, settings, unwritten=unwritten, wants_flush=wants_flush)
        log._opened_ms = now_wall_ms
        is_new = not open_files.disk.exists(folder)
        if is_new:
            open_files.disk.make_folder(folder)
        loader = Loader(open_files, folder, settings, now_wall_ms)
        first = start_offset or 0
        try:
            log._adopt(loader.load(recovery_point=recovery_point, start_offset=first, clean=clean))
        except OSError:
            if is_new:  # or the next one would not know that its names are
                open_files.disk.remove_folder(folder)
            raise
        if is_new:
            log._names_are_new()
        return log

    @classmethod
    def create(
        cls,
        open_files: OpenFiles,
        folder: str,
        settings: LogSettings,
        *,
        now_wall_ms: int,
        unwritten: Unwritten,
        wants_flush: LogList,
    ) -> Self:
        """A new, empty log in a new folder."""
        return cls.open(
            open_files,
            folder,
            settings,
            now_wall_ms=now_wall_ms,
            clean=True,
            unwritten=unwritten,
            wants_flush=wants_flush,
        )

    def _adopt(self, loaded: LoadedLog) -> None:
        self.segments = SegmentList(loaded.segments)
        self.active = loaded.segments[-1]
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self._must_reload = False
        self._forget_recent()

    def _forget_recent(self) -> None:
        # base offset of a batch in the active segment -> its position
        self._recent: dict[int, int] = {}
        self._older: dict[int, int] = {}

    # --- the way to the file

    def write_pending(self) -> None:
        """Write what was gathered in this turn. If the disk refuses, those batches are gone."""
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
        """Gathered batches are gone."""
        self.lost_pending = True
        try:
            if not self._take_back(pieces):
                self._reload_after(problem)
        finally:
            self.active.index_is_full = True  # sends every append to _roll_if_due
            for piece in pieces:
                self.expect_again(piece)
        raise self._refused(problem) from problem

    def expect_again(self, refused: Buffer) -> None:
        """The first batches of producers are to come again before their second ones are taken."""
        for batch in headers_of(refused):
            if batch.producer_id >= 0 and batch.base_sequence == 0:
                self.producers.expect_first(
                    batch.producer_id, batch.producer_epoch, batch.max_timestamp
                )

    def loss_is_told(self) -> None:
        """Whoever was promised what is lost knows it: batches are taken again."""
        self.lost_pending = False
        if not self._must_reload:
            self.active.note_fullness()

    def _take_back(self, pieces: list[Buffer]) -> bool:
        """Forget batches that the file did not take. False: only the file knows what was before.

        To read a large segment again takes seconds, in which nobody is served; on a full disk that
        would be so for each producer that tries again.
        """
        segment = self.active
        size = segment.size - sum(map(len, pieces))
        lost = [batch for piece in pieces for batch in headers_of(piece)]
        offset = lost[0].base_offset
        if (
            size <= 0
            or size != segment.open_file().size
            or any(batch.attributes & CONTROL for batch in lost)
            or self.epochs.begins_after(offset)
            or not self.producers.take_back({b.producer_id for b in lost} - {-1}, offset)
        ):
            return False
        try:
            segment.take_back(offset, size)
        except OSError:
            return False
        self.end_offset = offset
        self._forget_recent()
        return True

    def write_at_once(self) -> None:
        """Write what the caller has appended just now. If the disk refuses and nothing else waited
        to be written, the caller alone has lost something, and is told: the turn may go on.
        """
        alone = len(self.active.pending) <= 1 and not self.lost_pending
        try:
            self.write_pending()
        except KafkaError:
            if alone:
                self.loss_is_told()
            raise

    def _reload_after(self, problem: OSError) -> NoReturn:
        """The disk has less than the log believed: become what the disk has, and say so."""
        self.active.index_is_full = True  # sends every append to _roll_if_due, should this fail
        self._must_reload = True
        try:
            self.reload()
        except OSError as again:
            raise self._refused(again) from again
        raise self._refused(problem) from problem

    def reload(self) -> None:
        """Forget everything and find the log again on disk."""
        for segment in self.segments.items:
            if segment.pending:
                segment.pending = []
                self.lost_pending = True
            segment.let_go()
        loader = Loader(self._open_files, self.folder, self.settings, self._opened_ms)
        loaded = loader.load(
            recovery_point=self.recovery_point, start_offset=self.start_offset, clean=False
        )
        self._unflushed.generation += 1
        self._adopt(loaded)

    def _refused(self, problem: OSError) -> KafkaError:
        """The disk did not take something: from now on nothing is gathered, by no log."""
        self._unwritten.refused(self.folder, problem)
        return self._storage_error(problem)

    def _storage_error(self, problem: OSError) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder}: {problem.strerror}")

    # --- roll

    def roll(self, *, wall_ms: int) -> None:
        """Begin a new segment at the end of the log; nothing happens if the last one is empty."""
        if not self.active.size:
            return
        self.write_pending()
        try:
            self.active.seal()
            if self.producers.take_snapshot(self.end_offset):
                self._unflushed.small_files.append(self.producers.path(self.end_offset))
            segment = Segment.create(
                self._open_files, self.folder, self.end_offset, self.settings, wall_ms=wall_ms
            )
        except OSError as problem:
            raise self._refused(problem) from problem
        self.segments.add(segment)
        self.active = segment
        self._forget_recent()
        self._names_are_new()

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes()

    # --- less log

    def truncate(self, to_offset: int, *, wall_ms: int) -> list[str]:
        """Cut every batch that reaches `to_offset`; answers the files to remove after a while."""
        if to_offset >= self.end_offset:
            self.epochs.truncate_from_end(self.end_offset)
            return []
        if to_offset <= self.segments.bases[0]:
            return self.truncate_fully(to_offset, wall_ms=wall_ms)
        self.write_pending()
        removed = self._remove_segments(self.segments.number_at(to_offset - 1) + 1, None)
        self.active = self.segments.items[-1]
        self.active.truncate(to_offset, self.settings, wall_ms=wall_ms)
        self.end_offset = self.active.next_offset()
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
        """Throw everything away and begin again at `offset`; answers the files to remove."""
        self.active.pending = []
        removed = self._remove_segments(0, None)
        self.producers.start_anew()
        self.epochs.clear()
        self.active = Segment.create(
            self._open_files, self.folder, offset, self.settings, wall_ms=wall_ms
        )
        self.segments.add(self.active)
        self.start_offset = self.end_offset = offset
        self._names_are_new()
        self._after_truncation()
        return removed

    def _after_truncation(self) -> None:
        self._unflushed.generation += 1
        self._forget_recent()
        self.start_offset = min(self.start_offset, self.end_offset)
        self.recovery_point = min(self.recovery_point, self.end_offset)

    def _remove_segments(self, first: int, last: int | None) -> list[str]:
        """Take segments out of the log; answers the renamed files."""
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
            self.recovery_point = max(self.recovery_point, offset)
            self.epochs.truncate_from_start(offset)

    def apply_retention(self, wall_ms: int, *, high_watermark: int | None = None) -> list[str]:
        """Remove the segments that are too old or too many; answers the renamed files, which are to
        be removed after `file.delete.delay.ms`. Nothing at or after the high watermark goes."""
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
                count -= 1  # a full disk has no room for a new segment; the others make some
        if count == 0:
            return []
        self.delete_records_before(self.segments.bases[count])
        return self._remove_segments(0, count)

    def swap_in(self, old: list[Segment], *, wall_ms: int) -> list[str] | None:
        """Put the `.cleaned` segment that was made of these in their place; answers the files to
        remove after a while. None, and nothing is changed, if the log has them no more.

        The order of the renames is Apache Kafka's: whatever happens in between, the next start
        finds either all old files or a whole `.swap` that takes their place (`leftovers.py`).
        """
        assert self.active not in old, "the active segment is never compacted"
        disk = self._open_files.disk
        base = old[0].base_offset
        names = [f"{self.folder}/{file_name(base, suffix)}" for suffix in FILE_SUFFIXES]
        names = [name for name in names if disk.exists(name + CLEANED)]
        if self._closed or len(names) < 3:
            return None  # the folder has moved, or a reload has tidied it up
        try:
            segment = Segment.load(
                self._open_files, self.folder, base, self.settings, wall_ms=wall_ms, suffix=CLEANED
            )
            if not self.segments.replace(old, segment):
                for name in names:
                    disk.remove(name + CLEANED)
                return None
            return self._rename_swapped(names, old)
        except OSError as problem:
            self._reload_after(problem)

    def _rename_swapped(self, names: list[str], old: list[Segment]) -> list[str]:
        disk = self._open_files.disk
        for name in names:
            disk.rename(name + CLEANED, name + SWAP)
        removed = []
        for replaced in old:
            removed += replaced.mark_deleted()
            if replaced is not old[0]:
                removed += self.producers.mark_snapshot_deleted(replaced.base_offset)
        for name in names:
            disk.rename(name + SWAP, name)
        self._names_are_new()
        return removed

    # --- flush and close

    def _flush_soon(self) -> None:
        """`flush.messages` is reached."""
        self._unflushed.active_too = True
        self._ask_for_flush()

    def _names_are_new(self) -> None:
        self._unflushed.new_names = True
        self._ask_for_flush()

    def _ask_for_flush(self) -> None:
        if not self._unflushed.asked:
            self._unflushed.asked = True
            self._wants_flush.append(self)

    def flush_along(self, path: str) -> None:
        """A small file beside the log that the next flush takes along (partition.metadata)."""
        self._unflushed.small_files.append(path)

    def flush_target(self, *, everything: bool = False) -> Flush | None:
        """What to flush now, on another thread; None if there is nothing.

        Closed segments always; the active one if `everything` is asked for or `flush.messages` is
        reached. Hand the Flush back to `flushed` when it has run.
        """
        if self._closed:
            return None  # deleted while it stood on the list
        self.write_pending()
        unflushed = self._unflushed
        active_too = everything or unflushed.active_too
        offset = self.end_offset if active_too else self.active.base_offset
        files = self._files_to_flush(active_too)
        unflushed.asked = unflushed.active_too = False  # a file that cannot be opened: ask again
        folders = unflushed.take_folders(self.folder)
        if not files and not folders and offset <= self.recovery_point:
            return None
        return Flush(files, folders, offset, unflushed.generation)

    def _files_to_flush(self, active_too: bool) -> list[Flushable]:
        files: list[Flushable] = []
        for segment in self.segments.items[self.segments.number_at(self.recovery_point) :]:
            if segment is not self.active:
                files += segment.all_files()
            elif active_too and self.end_offset > self.recovery_point:
                files += [segment.open_file(), *segment.transaction_index.open_if_there()]
        if self.epochs.wants_flush:
            self.epochs.wants_flush = False
            self.flush_along(self.epochs.path)
        return files + self._unflushed.take_small_files(self._open_files.disk)

    def flushed(self, flush: Flush) -> bool:
        """`flush` has run: everything before its offset survives a power cut. False: the log was
        cut back meanwhile, so the flush proves nothing and is to be asked for again."""
        if flush.generation != self._unflushed.generation:
            return False
        self.recovery_point = max(self.recovery_point, flush.offset)
        return True

    def close(self) -> Flush:
        """The end of a clean shutdown; run the Flush before saying that it was clean.

        The indexes are not flushed: what a power cut takes of them is noticed and made anew.
        OSError: what is in memory is not what the disk has, and still cannot be found there.
        """
        if self._must_reload:
            self.reload()
        self.write_pending()
        self.active.seal()
        folders = self._unflushed.take_folders(self.folder)
        if self.producers.take_snapshot(self.end_offset) and self.producers.producers:
            self.flush_along(self.producers.path(self.end_offset))
            folders = folders or [self.folder]
        files = self._files_to_flush(active_too=True)
        self.let_go()
        return Flush(files, folders, self.end_offset, self._unflushed.generation)

    def let_go(self) -> None:
        """Close the files as they are: the folder goes away or another process takes over."""
        self._closed = True
        self.active.pending = []
        for segment in self.segments.items:
            segment.let_go()
