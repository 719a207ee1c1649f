"""How the logs of one node reach the disk: writes at the end of a turn, flushes on another thread.

Logs gather what they append in a turn; `end_turn` writes it before the replies of the turn leave.
Whoever wants a flush stands on the list `flushes`; `submit` runs the flush on another thread and
its report on the loop. Owns no thread: the node is given `submit`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from headrace.environment import Disk
from headrace.protocol.errors import KafkaError
from headrace.storage.partition_log import PartitionLog
from headrace.storage.unwritten import Unwritten

log = logging.getLogger(__name__)

Submit = Callable[[Callable[[], None], Callable[[OSError | None], None]], None]
# Told which logs have lost gathered batches, and the disk's reason.
OnLoss = Callable[[Sequence[PartitionLog], str], None]


class Durability:
    def __init__(self, disk: Disk, submit: Submit) -> None:
        self.failure: OSError | None = None  # the disk is not to be trusted any more
        self.unwritten = Unwritten()  # logs put themselves on both lists
        self.flushes: list[Any] = []
        self.on_loss: OnLoss = lambda logs, why: None
        self._disk = disk
        self._submit = submit
        self._flushing: dict[Any, bool] = {}  # what is being flushed -> whether it asked again

    def end_turn(self) -> bool:
        """Before replies leave. False: the disk refused what some of them promise (`on_loss`)."""
        if self.unwritten and not self._write_pending():
            return False
        if self.flushes:
            self._submit_flushes()
        return True

    def buffer_is_free(self) -> None:
        """The memory of requests is used again: what still lies in it goes to the files."""
        borrowing = self.unwritten.borrowing
        for each in borrowing:
            try:
                each.write_pending()
            except KafkaError:
                continue  # the turn ends with what is lost
        borrowing.clear()

    def in_background(self, work: Callable[[], None]) -> None:
        """Work on the data folder that nobody waits for."""

        def done(error: OSError | None) -> None:
            if error is not None:
                log.error("work on the data folder failed: %s", error)

        self._submit(work, done)

    def _write_pending(self) -> bool:
        lost: dict[PartitionLog, None] = {}
        for unwritten in self.unwritten:
            try:
                unwritten.write_pending()
            except KafkaError:
                lost[unwritten] = None
            if unwritten.lost_pending:  # since somebody read or wrote more in this turn
                lost[unwritten] = None
        self.unwritten.clear()
        self.unwritten.borrowing.clear()
        if lost:
            self.on_loss(list(lost), self.unwritten.refusal)
        return not lost

    def _submit_flushes(self) -> None:
        """One flush at a time for each that asks; what comes meanwhile shares the next one."""
        flushes = list(self.flushes)
        self.flushes.clear()
        for asking in flushes:
            if asking in self._flushing:
                self._flushing[asking] = True
                continue
            flush = asking.flush_target()
            if flush is not None:
                self._flushing[asking] = False
                self._submit(
                    lambda flush=flush: flush.run(self._disk),  # type: ignore[misc]
                    lambda error, asking=asking, flush=flush: self._flushed(asking, flush, error),  # type: ignore[misc]
                )

    def _flushed(self, asking: Any, flush: Any, error: OSError | None) -> None:
        asked_again = self._flushing.pop(asking)
        if self.failure is not None:
            return  # another flush of the same file may have been told of the lost pages instead
        if error is not None:
            # A second try proves nothing: the kernel may have dropped the pages (fsync on Linux).
            log.critical("a flush failed, this node must not go on: %s", error)
            self.failure = error
            return
        if not asking.flushed(flush) or asked_again:
            self.flushes.append(asking)
