"""With durability `disk`, DeleteRecords is answered when the new starts of logs are on the disk.

A log's start offset is in a checkpoint of all partitions that is otherwise written once a minute.
It is trusted if the log's leader epochs begin there too. A request that has moved a start offset
asks for both files to be flushed now, on the flush thread, and waits; requests that come meanwhile
share the next write. If the disk refuses the write (it may be full, and records are deleted to make
room), nothing ends: waiting requests get an error, and the next checkpoint tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from headrace.environment import Disk
from headrace.node.storage.durability.flush import FileByPath
from headrace.node.storage.durability.folder_failures import FolderFailures
from headrace.node.storage.partition_log import PartitionLog

log = logging.getLogger(__name__)

Files = list[tuple[str, bytes]]  # path and contents


@dataclass(slots=True)
class CheckpointWrite:
    """A write to be run on another thread, like a `Flush`."""

    number: int  # the last request that it serves
    epochs: dict[str, str]  # folders of logs, and the paths of their files of leader epochs
    files: Files
    failures: FolderFailures
    refusal: OSError | None = None
    refused: list[tuple[str, OSError]] = field(default_factory=list)  # by path

    def run(self, disk: Disk) -> None:
        """Raises OSError if a flush failed in a data folder that may not fail alone."""
        for folder, path in self.epochs.items():
            try:
                FileByPath(disk, path).flush()
                with suppress(FileNotFoundError):  # the topic was deleted meanwhile
                    disk.flush_folder(folder)
            except OSError as problem:
                if self.failures.folder_of(folder) is None:
                    raise
                self._refuse(folder, problem)
        for path, data in self.files:
            try:
                disk.write_file(path, [data])
            except OSError as problem:
                self._refuse(path, problem)

    def _refuse(self, path: str, problem: OSError) -> None:
        self.refusal = problem
        self.refused.append((path, problem))


class StartOffsets:
    """Requests are numbered; `written` and `refused` say which of them can be answered."""

    __slots__ = (
        "waiting",
        "written",
        "refused",
        "_asked",
        "_epochs",
        "_failures",
        "_files",
        "_flushes",
        "_wake",
    )

    def __init__(
        self,
        files: Callable[[], Files],
        flushes: list[Any],
        wake: Callable[[Any], None],
        failures: FolderFailures,
    ) -> None:
        self.waiting: dict[Any, None] = {}  # requests that wait for a write
        self.written = 0
        self.refused = 0  # the last request whose write the disk refused
        self._asked = 0
        self._epochs: dict[str, str] = {}  # of logs whose start has changed since the last write
        self._failures = failures
        self._files = files
        self._flushes = flushes
        self._wake = wake

    def ask(self, moved: Iterable[PartitionLog]) -> int:
        """The start offsets of these logs have changed; returns the number to wait for."""
        self._epochs.update((each.folder, each.epochs.path) for each in moved)
        self._asked += 1
        self._flushes.append(self)
        return self._asked

    def flush_target(self) -> CheckpointWrite:
        epochs, self._epochs = self._epochs, {}
        return CheckpointWrite(self._asked, epochs, self._files(), self._failures)

    def flushed(self, write: CheckpointWrite) -> bool:
        for path, problem in write.refused:
            self._failures.met(path, problem)
        if write.refusal is not None:
            self.refused = write.number
            log.error("where logs begin could not be written: %s", write.refusal.strerror)
        self.written = write.number
        self._wake(self)
        return True
