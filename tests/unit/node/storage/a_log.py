"""A log in a temporary folder, with what stories about it need."""

from __future__ import annotations

from typing import Any

from headrace.environment import File
from headrace.node.process.folders.real_disk import RealDisk, RealFile
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.record_batch import Record, build, headers_in, walk

NOW = 1_700_000_000_000


class ALog:
    """Opens, restarts and kills one log; keeps the lists that the node would keep."""

    def __init__(self, folder: Any, disk: Any = None, open_files_limit: int = 100, **settings: Any):
        self.folder = f"{folder}/orders-0"
        self.settings = LogSettings(**settings)
        self.open_files = OpenFiles(disk or RealDisk(), limit=open_files_limit)
        self.unwritten = Unwritten()
        self.wants_flush: list[PartitionLog] = []
        self.log = self.open(clean=True)

    def open(self, **how: Any) -> PartitionLog:
        self.log = PartitionLog.open(
            self.open_files,
            self.folder,
            self.settings,
            now_wall_ms=NOW,
            unwritten=self.unwritten,
            wants_flush=self.wants_flush,
            **how,
        )
        return self.log

    def kill(self, **how: Any) -> PartitionLog:
        """kill -9 after the end of a turn: what was written is in the page cache, no more."""
        self.end_turn()
        self.log.let_go()
        return self.open(clean=False, **how)

    def restart(self) -> PartitionLog:
        self.log.close().run(self.open_files.disk)
        return self.open(clean=True)

    def append(self, data: bytes, epoch: int = 0, wall_ms: int = NOW) -> tuple[int, int]:
        return self.log.writer.append(
            memoryview(bytearray(data)), leader_epoch=epoch, wall_ms=wall_ms
        )

    def append_values(self, *values: bytes, timestamp: int = NOW, epoch: int = 0) -> int:
        return self.append(batch(*values, timestamp=timestamp), epoch=epoch)[0]

    def end_turn(self) -> None:
        for log in self.unwritten:
            log.write_pending()
        self.unwritten.clear()
        self.unwritten.borrowing.clear()

    def turn_is_over(self) -> None:
        """The disk has refused: those who were promised something know it, and time has passed."""
        self.unwritten.clear()
        self.unwritten.borrowing.clear()
        self.unwritten.gather_again()
        self.log.loss_is_told()

    def flush(self, everything: bool = True) -> None:
        flush = self.log.flush_target(everything=everything)
        if flush is not None:
            flush.run(self.open_files.disk)
            self.log.flushed(flush)

    def values(self) -> list[tuple[int, bytes | None]]:
        """All that a reader can get, by reading from the start on."""
        read, offset = [], self.log.start_offset
        while True:
            found = self.log.read(offset, 10_000, up_to=self.log.end_offset, at_least_one=True)
            if found is None:
                return [entry for entry in read if entry[0] >= self.log.start_offset]
            for record in records_of(found.file.read(found.length, found.position)):
                if record.offset >= offset:
                    read.append((record.offset, record.value))
            offset = read[-1][0] + 1

    def file(self, base_offset: int, suffix: str) -> bytes:
        return RealDisk().read_file(f"{self.folder}/{base_offset:020d}.{suffix}")


def batch(*values: bytes, timestamp: int = NOW, key: bytes | None = b"k", **how: Any) -> bytes:
    """A batch as a client sends it; the records' timestamps rise by one."""
    records = [Record(key, value, timestamp=timestamp + n) for n, value in enumerate(values)]
    return build(records, **how)


def records_of(data: bytes) -> list[Record]:
    """The records of all whole batches."""
    found = []
    for position, header in headers_in(data):
        found += walk(data[position : position + header.size], 1 << 20)
    return found


class Writer:
    """A transactional producer that is believed to be one."""

    def __init__(self, log: ALog, producer_id: int, epoch: int = 0) -> None:
        self.log = log
        self.id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def send(self, count: int = 1, size: int = 1) -> int:
        data = batch(
            *[b"x" * size] * count,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += count
        return self.log.append(data)[0]

    def end(self, *, commit: bool, coordinator_epoch: int = 0, bumps_epoch: bool = False) -> int:
        if bumps_epoch:
            self.epoch += 1
            self.sequence = 0
        return self.log.log.writer.append_marker(
            commit=commit,
            producer_id=self.id,
            producer_epoch=self.epoch,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=0,
            wall_ms=NOW,
            bumps_epoch=bumps_epoch,
        )


class Refusing(RealFile):
    """A file on a disk that may be full."""

    disk: FullDisk

    def append(self, data: Any) -> None:
        if self.disk.is_full:
            raise OSError(28, "No space left on device")
        super().append(data)


class FullDisk(RealDisk):
    """A disk that refuses appends while `is_full`."""

    __slots__ = ("is_full",)

    def __init__(self) -> None:
        self.is_full = False

    def open(self, path: str, *, create: bool = False) -> RealFile:
        plain = super().open(path, create=create)
        file = Refusing(path, plain._fd)
        plain._fd = -1
        file.disk = self
        return file


class WatchedDisk(RealDisk):
    """Remembers which files were opened and which folders flushed."""

    __slots__ = ("opened", "flushed_folders")

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.flushed_folders: list[str] = []

    def flush_folder(self, path: str) -> None:
        self.flushed_folders.append(path)
        super().flush_folder(path)

    def read_whole(self) -> set[str]:
        """Names of the segments of which more than the ends of log and index were read."""
        return {name.split(".")[0] for name in self.opened if name.endswith(".timeindex")}

    def open(self, path: str, *, create: bool = False) -> File:  # type: ignore[override]
        self.opened.append(path.rpartition("/")[2])
        return super().open(path, create=create)
