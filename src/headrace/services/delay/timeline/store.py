"""The pending messages of each partition of the intake, ordered by due time: RocksDB on local disk.

A cache: everything in it can be read again from the intake and the far topic, so nothing waits for
the disk, and a database that cannot be opened is created again. It is never ahead of the committed
progress. Rows of all partitions of an instance are in one database, each partition under a number:

    number 'r' due offset  -> the record      scanned in this order when it is due
    number 'i' id          -> due offset      the last schedule of an id, pending or delivered
    number 'h' due offset  -> id              delivered ids, forgotten after KEEP_IDS_MS
    number 'o' offset      -> due             rows that may move to the far topic
    number 'f' offset      -> due             rows from the far topic, while it is being read
    number 's'             -> position, watermark, far mark, count, samples

Queries (`pending_search`) may come from other threads. Not done: sharing a folder between
processes.
"""

from __future__ import annotations

import marshal
import shutil
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

from headrace.installation import how_to_add
from headrace.private_files import private_folder
from headrace.services.delay.timeline import pending_search
from headrace.services.delay.timeline.pending import Changes, Sample
from headrace.services.delay.timeline.pending import Pending as Pending
from headrace.services.delay.timeline.pending_search import PendingRow as PendingRow
from headrace.services.delay.timeline.pending_search import Wanted
from headrace.services.delay.timeline.progress import BEFORE_ALL, DueKey
from headrace.services.delay.timeline.rows import Row

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, WriteBatch

# A cancel that comes within this time after a delivery gets the outcome "too late", later ones
# "unknown".
KEEP_IDS_MS = 24 * 3_600_000
FORGOTTEN_AT_ONCE = 1_000
# Done rows are before the watermark, where reads do not look. One range delete covers many of them,
# because every iterator looks at each range delete until a compaction.
DELETE_DONE_ROWS_AFTER = 100_000

# Version 2 of marshal has no references to look up, so it is quicker, and all Pythons read it.
_MARSHAL = 2
_FORMAT = b"headrace delay store 1"
_FORMAT_KEY = b"\xff\xff\xff\xfff"
_PARTITIONS = b"\xff\xff\xff\xffp"
_PARTITIONS_END = b"\xff\xff\xff\xffq"

_ROW = Struct(">IBQQ")
_KEY = Struct(">QQ")
_LONG = Struct(">IBQ")
_NUMBER = Struct(">I")
_R, _H, _I, _O, _S, _F = b"rhiosf"
_END = 2**64 - 1
_CACHE_BYTES = 64 * 1024 * 1024
_MEMTABLE_BYTES = 32 * 1024 * 1024


class StoreInUse(Exception):
    """Another process has the folder open."""


class Store:
    """The database of one instance."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = _open(folder)
        self.made_anew = False
        if self.db.get(_FORMAT_KEY) != _FORMAT:
            if self.db.get(_FORMAT_KEY) is not None:
                self.db.close()
                shutil.rmtree(folder)
                self.db = _open(folder)
            self.db[_FORMAT_KEY] = _FORMAT
            self.made_anew = True
        self.partitions: dict[tuple[str, int], RocksPending] = {}

    def partition(self, topic: str, partition: int, identity: str) -> RocksPending:
        """Its rows, as they were left; emptied when they are of another identity.

        `identity` says what the rows depend on beside the progress: ids of cluster and topic, and
        `Limits.far_after_ms`.
        """
        name = f"{topic}/{partition}".encode()
        known = self.db.get(_PARTITIONS + name)
        number, before = marshal.loads(known) if known is not None else (self._free_number(), None)
        pending = RocksPending(self.db, topic, partition, number)
        if before != identity:
            pending.clear()
            self.db[_PARTITIONS + name] = marshal.dumps((number, identity), _MARSHAL)
        self.partitions[topic, partition] = pending
        return pending

    def release(self, topic: str, partition: int) -> None:
        """Another instance has the partition now: its rows stay, in case the partition
        comes back."""
        self.partitions.pop((topic, partition), None)

    def forget(self, topic: str, partition: int) -> None:
        """Deletes the rows of a topic that has no delayed messages any more."""
        name = f"{topic}/{partition}".encode()
        if (known := self.db.get(_PARTITIONS + name)) is not None:
            RocksPending(self.db, topic, partition, marshal.loads(known)[0]).clear()
            del self.db[_PARTITIONS + name]
        self.release(topic, partition)

    def places(self) -> list[tuple[str, int]]:
        """Topics and partitions that have rows here, owned or not."""
        names = [key[len(_PARTITIONS) :].decode() for key, _ in self._known()]
        return [(topic, int(number)) for topic, _, number in (n.rpartition("/") for n in names)]

    # ---- queries, from any thread ---------------------------------------------------------------

    def find(
        self,
        topic: str,  # the companion's
        *,
        partition: int | None = None,
        id: str | None = None,
        key: bytes | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> tuple[list[PendingRow], str | None]:
        """Pending rows of the partitions held here, by due time; and the cursor of the next page.

        A page can be short, even empty, and still have a cursor: see `pending_search`.
        """
        wanted = Wanted(partition, id, key, from_ms, to_ms, after, limit)
        return pending_search.find(self._of(topic), wanted)

    def count_pending(self, topic: str | None = None) -> int:
        return sum(pending.count for pending in self._of(topic))

    def count_due_before(
        self, until_ms: int, topic: str | None = None, at_most: int = 100_000
    ) -> int:
        """Rows due before that time; counting stops at `at_most`."""
        return pending_search.count_due_before(self._of(topic), until_ms, at_most)

    def _of(self, topic: str | None) -> list[RocksPending]:
        return [held for held in self.partitions.copy().values() if topic in (None, held.topic)]

    # ---- the rest -------------------------------------------------------------------------------

    def close(self) -> None:
        self.partitions.clear()
        self.db.close()

    def _known(self) -> Iterator[tuple[bytes, bytes]]:
        return _range(self.db, _PARTITIONS, _PARTITIONS_END)

    def _free_number(self) -> int:
        taken = [marshal.loads(value)[0] for _, value in self._known()]
        return max(taken, default=-1) + 1


class RocksPending:
    """One partition's rows; see `pending.Pending`."""

    def __init__(self, db: Rdict, topic: str, partition: int, number: int) -> None:
        self._db = db
        self.topic = topic
        self.partition = partition
        self._number = number
        self._done_rows = 0
        self._loading = False
        self._ids_kept_from_ms = 0
        self._state_key = _NUMBER.pack(number) + b"s"
        self._id_prefix = _NUMBER.pack(number) + b"i"
        state = db.get(self._state_key)
        self._set_state(marshal.loads(state) if state is not None else None)

    def scan(
        self, after: DueKey, until_ms: int, limit: int, limit_bytes: int = 2**63
    ) -> tuple[list[Row], bool]:
        rows: list[Row] = []
        unpack, loads, append = _KEY.unpack_from, marshal.loads, rows.append
        for key, value in _range(
            self._db, self._row_key(after, 1), self._row_key((until_ms + 1, 0))
        ):
            limit -= 1
            if limit < 0 or limit_bytes < 0:
                return rows, False
            limit_bytes -= len(value)
            due_ms, offset = unpack(key, 5)
            append((due_ms, offset, loads(value)))
        return rows, True

    def first_after(self, after: DueKey) -> DueKey | None:
        for key, _ in _range(self._db, self._row_key(after, 1), self._row_key((_END, 0))):
            return _KEY.unpack_from(key, 5)
        return None

    def get(self, key: DueKey) -> Row | None:
        value = self._db.get(self._row_key(key))
        return None if value is None else (*key, marshal.loads(value))

    def find_id(self, id: str) -> DueKey | None:
        value = self._db.get(self._id_prefix + id.encode())
        return None if value is None else _KEY.unpack(value)

    def find_loaded(self, offset: int) -> DueKey | None:
        due_ms = self._db.get(_LONG.pack(self._number, _F, offset))
        return None if due_ms is None else (int.from_bytes(due_ms, "big"), offset)

    def long_rows(self, from_offset: int, below_offset: int, limit: int) -> list[DueKey]:
        keys: list[DueKey] = []
        begin = _LONG.pack(self._number, _O, from_offset)
        end = _LONG.pack(self._number, _O, below_offset)
        for key, value in _range(self._db, begin, end):
            if len(keys) == limit:
                break
            keys.append((int.from_bytes(value, "big"), int.from_bytes(key[5:], "big")))
        return keys

    def apply(self, changes: Changes) -> None:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        put, pack, dumps, number = batch.put, _ROW.pack, marshal.dumps, self._number
        for due_ms, offset, kept in changes.puts:
            put(pack(number, _R, due_ms, offset), dumps(kept, _MARSHAL))
        for due_ms, offset in changes.long:
            put(_LONG.pack(number, _O, offset), due_ms.to_bytes(8, "big"))
        if changes.loading:
            for due_ms, offset, _ in changes.puts:
                put(_LONG.pack(number, _F, offset), due_ms.to_bytes(8, "big"))
        for due_ms, offset in changes.deletes:
            batch.delete(pack(number, _R, due_ms, offset))
            batch.delete(_LONG.pack(number, _O, offset))
        for id_, key in changes.ids.items():
            if key is None:
                batch.delete(self._id_prefix + id_.encode())
            else:
                put(self._id_prefix + id_.encode(), _KEY.pack(*key))
        for (due_ms, offset), id_ in changes.done_ids:
            put(pack(number, _H, due_ms, offset), id_.encode())
        self._clean_up(batch, changes)
        self._set_state(
            (
                changes.position,
                *changes.watermark,
                changes.far,
                self.count + changes.count_by,
                changes.samples,
            )
        )
        put(self._state_key, dumps(self._state(), _MARSHAL))
        self._db.write(batch)

    def clear(self) -> None:
        number = _NUMBER.pack(self._number)
        self._db.delete_range(number, number + b"\xff")
        self._set_state(None)

    # ---- the rest -------------------------------------------------------------------------------

    def _clean_up(self, batch: WriteBatch, changes: Changes) -> None:
        if changes.far > self.far:
            begin = _LONG.pack(self._number, _O, 0)
            batch.delete_range(begin, _LONG.pack(self._number, _O, changes.far))
        if self._loading and not changes.loading:
            begin = _LONG.pack(self._number, _F, 0)
            batch.delete_range(begin, _LONG.pack(self._number, _F, _END))
        self._loading = changes.loading
        if changes.watermark > self.watermark:
            self._done_rows += len(changes.puts) - changes.count_by
            if self._done_rows >= DELETE_DONE_ROWS_AFTER:
                self._done_rows = 0
                begin = self._row_key((0, 0))
                batch.delete_range(begin, self._row_key(changes.watermark, 1))
        self._forget_ids(batch, changes)

    def _forget_ids(self, batch: WriteBatch, changes: Changes) -> None:
        until_ms = changes.watermark[0] - KEEP_IDS_MS
        if until_ms <= self._ids_kept_from_ms:
            return
        begin = _ROW.pack(self._number, _H, 0, 0)
        end = _ROW.pack(self._number, _H, until_ms, 0)
        for count, (key, value) in enumerate(_range(self._db, begin, end)):
            if count == FORGOTTEN_AT_ONCE:
                return
            id_ = value.decode()
            if id_ not in changes.ids and self.find_id(id_) == _KEY.unpack_from(key, 5):
                batch.delete(self._id_prefix + value)
            batch.delete(key)
        self._ids_kept_from_ms = until_ms + KEEP_IDS_MS // 100

    def _row_key(self, key: DueKey, further: int = 0) -> bytes:
        due_ms, offset = key
        if due_ms < 0:
            return _ROW.pack(self._number, _R, 0, 0)
        return _ROW.pack(self._number, _R, due_ms, offset + further)

    def _set_state(self, state: tuple[int, int, int, int, int, list[Sample]] | None) -> None:
        if state is None:
            state = 0, *BEFORE_ALL, 0, 0, []
            self._ids_kept_from_ms = 0
        self.position, due_ms, offset, self.far, self.count, self.samples = state
        self.watermark: DueKey = due_ms, offset

    def _state(self) -> tuple[int, int, int, int, int, list[Sample]]:
        return self.position, *self.watermark, self.far, self.count, self.samples


def _range(db: Rdict, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Pairs from `begin` to before `end`. Raises when the database cannot be read any further.

    Its own iterators end at a damaged block as if they were at the end: rows would be lost.
    """
    from rocksdict import ReadOptions

    bounds = ReadOptions()
    bounds.set_iterate_upper_bound(end)
    key = begin
    for pair in db.items(from_key=begin, read_opt=bounds):
        yield pair  # type: ignore[misc]
        key = pair[0]  # type: ignore[assignment]
    last = db.iter(bounds)
    last.seek(key)
    while last.valid():
        last.next()
    last.status()


def _open(folder: Path) -> Rdict:
    """Opens the store, and creates it again if it cannot be read: it is a cache."""
    try:
        from rocksdict import Rdict
    except ModuleNotFoundError as missing:
        sentence = how_to_add("The delay service needs", "rocksdict", "delay")
        raise ModuleNotFoundError(sentence, name=missing.name) from missing
    private_folder(folder)
    try:
        return Rdict(str(folder), _options())
    except Exception as error:  # rocksdict raises nothing more special
        if "lock" in str(error).lower():
            raise StoreInUse(f"another process uses {folder}: {error}") from error
        shutil.rmtree(folder)
        private_folder(folder)
        return Rdict(str(folder), _options())


def _options() -> Options:
    """Few megabytes however much is pending: one bounded cache for blocks, indexes and filters."""
    from rocksdict import (
        BlockBasedIndexType,
        BlockBasedOptions,
        Cache,
        DBCompressionType,
        Options,
    )

    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(_CACHE_BYTES))
    tables.set_block_size(16 * 1024)
    tables.set_bloom_filter(10, False)
    tables.set_index_type(BlockBasedIndexType.two_level_index_search())
    tables.set_partition_filters(True)
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(tables)
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_background_jobs(2)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(2)
    return options
