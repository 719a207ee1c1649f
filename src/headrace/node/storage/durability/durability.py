"""How the logs of one node reach the disk: writes at the end of a turn, flushes on another thread.

Logs gather the batches of a turn; `end_turn` writes them before the replies of the turn leave. A
log that wants a flush is on one of two lists: `flushes` if a request waits for it, `log_flushes`
for new files of logs, which come second. Few flushes are under way at a time: each holds open
files, and one thread runs them one by one. `submit` runs a flush there, and its report on the loop.
A flush that fails ends the node, unless its data folder may fail alone (`folder_failures.py`). A
flush that finds no free descriptor is tried again a second later, for the disk has not failed. Owns
no thread: the node is given `submit`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headrace.environment import Disk, Now
from headrace.node.storage.durability.flush import Flush
from headrace.node.storage.durability.folder_failures import FolderFailures
from headrace.node.storage.durability.open_files import is_shortage
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.errors import KafkaError

log = logging.getLogger(__name__)

Submit = Callable[[Callable[[], None], Callable[[OSError | None], None]], None]
# Called with the logs that have lost gathered batches, and the disk's reason.
OnLoss = Callable[[Sequence[PartitionLog], str], None]

# Enough that the thread that runs them never waits for the loop. A flush holds few descriptors of
# its own: at nofile 1,024 about fifty are for neither connections nor segments.
MOST_FLUSHES_UNDER_WAY = 16
QUIET_ABOUT_DESCRIPTORS_MS = 60_000


class Durability:
    def __init__(
        self, disk: Disk, submit: Submit, now: Now, folder_failures: FolderFailures | None = None
    ) -> None:
        # Invariants: when `end_turn` returns True no log has unwritten batches, so every reply that
        # leaves afterwards is about bytes in the page cache; each asker has at most one flush in
        # flight.
        self.failure: OSError | None = None  # the disk is not to be trusted any more
        self.folder_failures = folder_failures or FolderFailures(disk)
        self.unwritten = Unwritten()  # logs put themselves on it
        self.unwritten.on_problem = self.folder_failures.met
        self.flushes: list[Any] = []  # requests wait for these
        self.log_flushes: list[Any] = []  # no request waits for these: they are flushed last
        self.shortages = 0  # flushes that found no free descriptor
        self.on_loss: OnLoss = lambda logs, why: None
        self._disk = disk
        self._submit = submit
        self._now = now
        self._flushing: dict[Any, bool] = {}  # what is being flushed -> whether it asked again
        self._delayed: list[tuple[Any, Flush | None]] = []  # those that found no free descriptor
        self._quiet_until_ms = 0

    def end_turn(self) -> bool:
        """Before replies leave. False: the disk refused what some of them promise (`on_loss`)."""
        if self.unwritten and not self._write_pending():
            return False
        if self.flushes or self.log_flushes:
            self._begin_flushes(self.flushes)
            self._begin_flushes(self.log_flushes)
        return True

    def every_second(self) -> None:
        """Flushes that found no free descriptor are tried again."""
        delayed, self._delayed = self._delayed, []
        for asking, flush in delayed:
            if flush is None:
                self.flushes.append(asking)
            else:  # it has been taken from its log, so the same one must run
                self._run(asking, flush)

    def give_up(self, problem: OSError) -> None:
        """No folder is left to be trusted."""
        self.failure = problem

    def buffer_is_free(self) -> None:
        """Write batches that are still in the memory of requests to the files: the memory is about
        to be reused."""
        borrowing = self.unwritten.borrowing
        # These batches are views of the receive buffer. Written once here, they are not in
        # `pending` any more, so `_write_pending` of the same turn finds nothing to do for them.
        for each in borrowing:
            try:
                each.write_pending()
            except KafkaError:
                continue  # the turn ends with what is lost
        borrowing.clear()

    def in_background(self, work: Callable[[], None], folder: str | None = None) -> None:
        """Run work on a data folder whose result no request waits for."""

        def done(error: OSError | None) -> None:
            if error is not None and not self.folder_failures.met(folder, error):
                log.error("work on the data folder failed: %s", error)

        self._submit(work, done)

    def _write_pending(self) -> bool:
        lost: dict[PartitionLog, None] = {}
        for unwritten in self.unwritten:
            try:
                unwritten.write_pending()
            except KafkaError:
                lost[unwritten] = None
            if unwritten.lost_pending:  # because of more reads or writes in this turn
                lost[unwritten] = None
        self.unwritten.clear()
        self.unwritten.borrowing.clear()
        if lost:
            self.on_loss(list(lost), self.unwritten.refusal)
        return not lost

    def _begin_flushes(self, wanted: list[Any]) -> None:
        """Begin one flush at a time for each log that asks; requests that come before it ends share
        the next one."""
        begun = 0
        for asking in wanted:
            # Group commit: a flush in flight may have begun before these records were written, so
            # they need another one; all requests that come until then share it.
            if asking in self._flushing:
                self._flushing[asking] = True
            elif len(self._flushing) >= MOST_FLUSHES_UNDER_WAY:
                break  # the next turn begins when one of them has ended
            else:
                self._begin(asking)
            begun += 1
        del wanted[:begun]

    def _begin(self, asking: Any) -> None:
        try:
            flush = asking.flush_target()
        except OSError as problem:
            if is_shortage(problem):
                self._delay(asking, None, problem)
            else:
                self._flushing[asking] = False
                report = partial(self._flushed, asking, folder_of(asking), None)
                self._submit(partial(_raise, problem), report)
            return
        if flush is not None:
            self._run(asking, flush)

    def _run(self, asking: Any, flush: Flush) -> None:
        self._flushing.setdefault(asking, False)
        report = partial(self._flushed, asking, folder_of(asking), flush)
        self._submit(partial(flush.run, self._disk), report)

    def _flushed(self, asking: Any, folder: str | None, flush: Any, error: OSError | None) -> None:
        """`folder` is where the log lay when it began: it may have moved since."""
        if error is not None and is_shortage(error) and flush is not None:
            self._delay(asking, flush, error)
            return
        # A successful flush guarantees only the offset that it began with (`PartitionLog.flushed`).
        # Later records need another one.
        asked_again = self._flushing.pop(asking)
        if self.failure is not None:
            return
        if error is not None:
            self.folder_failures.met(folder, error, in_flush=True)
        # The kernel may have reported the lost pages to another flush of the same file instead.
        if self.folder_failures.has_failed(folder):
            if folder_of(asking) != folder:  # what is asked of it now is for its new folder
                self.flushes.append(asking)
            return
        if error is not None:
            # A second try proves nothing: the kernel may have dropped the pages (fsync on Linux).
            log.critical("a flush failed, this node must stop: %s", error)
            self.failure = error
            return
        if not asking.flushed(flush) or asked_again:
            self.flushes.append(asking)

    def _delay(self, asking: Any, flush: Flush | None, problem: OSError) -> None:
        self.shortages += 1
        self._delayed.append((asking, flush))
        if self._now.monotonic_ms >= self._quiet_until_ms:
            self._quiet_until_ms = self._now.monotonic_ms + QUIET_ABOUT_DESCRIPTORS_MS
            log.error("a flush waits for a free descriptor (%s); raise nofile", problem.strerror)


def folder_of(asking: Any) -> str | None:
    """The folder of the log that asks for a flush, by itself or by its replica; None: it is not
    one partition that asks."""
    folder: str | None = getattr(getattr(asking, "log", asking), "folder", None)
    return folder


def _raise(problem: OSError) -> None:
    raise problem
