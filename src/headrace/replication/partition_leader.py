"""The leader's side of one partition: who may write, and how far readers may see.

Readers see up to the high watermark. With one replica and durability `page-cache` it follows the
end of the log at once; with durability `disk` it follows the flushes, so nobody reads what a power
cut could take back, and acks=all waits for it in the same way as it waits for followers.
Readers of committed records see up to the last stable offset: where the first transaction began
that is still open, or whose marker the high watermark has not passed.
Asks for its log through `Log`, which it owns. Not done here: followers, ISR changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headrace.environment import FileSlice
from headrace.protocol.errors import ErrorCode, KafkaError


class Log(Protocol):
    """What a leader asks of its log."""

    start_offset: int
    end_offset: int

    def append(
        self, records: memoryview, *, leader_epoch: int, wall_ms: int
    ) -> tuple[int, int]: ...

    def expect_again(self, refused: memoryview) -> None: ...

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool
    ) -> FileSlice | None: ...

    def append_marker(
        self,
        *,
        commit: bool,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        leader_epoch: int,
        wall_ms: int,
        bumps_epoch: bool = False,
    ) -> int: ...

    def aborted_transactions(
        self, offset: int, records: FileSlice, up_to: int
    ) -> list[tuple[int, int]]: ...

    def flush_target(self, *, everything: bool = False) -> Any: ...

    def flushed(self, flush: Any) -> bool: ...


class PartitionLeader:
    __slots__ = (
        "topic",
        "topic_id",
        "index",
        "log",
        "epoch",
        "high_watermark",
        "commits_at_once",
        "in_sync",
        "min_in_sync",
        "waiting",
        "sessions",
        "flush_asked",
        "on_progress",
        "bytes_in",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Any,
        epoch: int,
        *,
        commits_at_once: bool,
        on_progress: Callable[[PartitionLeader], None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.epoch = epoch
        self.commits_at_once = commits_at_once
        self.high_watermark: int = log.end_offset
        self.in_sync = 1  # replicas that have everything, this one included
        self.min_in_sync = 1  # fewer than these, and acks=all is refused
        self.waiting: dict[Any, None] = {}  # requests that hang on this partition
        self.sessions: dict[Any, Any] = {}  # fetch session -> its entry for this partition
        self.flush_asked = False
        self.on_progress = on_progress  # the high watermark has moved other than by an append
        self.bytes_in = 0

    def append(self, records: memoryview, wall_ms: int, *, acks_all: bool) -> tuple[int, int]:
        """Returns the base offset and the append time (-1 when the producer's own time stands)."""
        if acks_all and self.in_sync < self.min_in_sync:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        log = self.log
        try:
            appended: tuple[int, int] = log.append(
                records, leader_epoch=self.epoch, wall_ms=wall_ms
            )
        except KafkaError as refusal:
            if refusal.code == ErrorCode.KAFKA_STORAGE_ERROR:
                log.expect_again(records)
            raise
        self.bytes_in += len(records)
        if self.commits_at_once:
            self.high_watermark = log.end_offset
        return appended

    def read(
        self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool
    ) -> FileSlice | None:
        up_to = self.last_stable_offset() if committed else self.high_watermark
        if offset > self.high_watermark and offset <= self.log.end_offset:
            return None  # not yet visible; an epoch check has already told impostors apart
        records: FileSlice | None = self.log.read(
            offset, max_bytes, up_to=up_to, at_least_one=at_least_one
        )
        return records

    def append_marker(
        self,
        wall_ms: int,
        *,
        commit: bool,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        bumps_epoch: bool,
    ) -> int:
        """End a transaction here; answers up to where the log must be committed for it to count."""
        if self.in_sync < self.min_in_sync:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        end_offset: int = self.log.append_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=self.epoch,
            wall_ms=wall_ms,
            bumps_epoch=bumps_epoch,
        )
        if self.commits_at_once:
            self.high_watermark = end_offset
        self.log.producers.forget_decided(self.high_watermark)
        return end_offset

    def aborted_transactions(self, offset: int, records: FileSlice) -> list[tuple[int, int]]:
        """Producer id and first offset of what a reader of committed records must leave out."""
        found: list[tuple[int, int]] = self.log.aborted_transactions(
            offset, records, self.last_stable_offset()
        )
        return found

    def begin_epoch(self, epoch: int) -> None:
        """The log notes where the epoch begins, also if nothing is ever written in it."""
        self.epoch = epoch
        if self.log.epochs.latest != epoch:
            self.log.epochs.assign(epoch, self.log.end_offset)

    def last_stable_offset(self) -> int:
        producers = self.log.producers
        if producers.open_transactions or producers.ended_transactions:
            stable: int = producers.last_stable_offset(self.high_watermark)
            start: int = self.log.start_offset
            return max(stable, start)
        return self.high_watermark

    def require_epoch(self, epoch: int) -> None:
        """A client that names an epoch must name ours (KIP-320)."""
        if epoch == -1 or epoch == self.epoch:
            return
        if epoch < self.epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def flush_target(self) -> Any:
        """What the disk must have so that all that is appended may be seen; None if it has it."""
        self.flush_asked = False
        target = self.log.flush_target(everything=True)
        if target is None:
            self._show_what_is_safe()  # a flush that the log had asked for took it along
        return target

    def flushed(self, flush: Any) -> bool:
        """False: it proves nothing, ask again."""
        counts: bool = self.log.flushed(flush)
        self._show_what_is_safe()
        return counts

    def _show_what_is_safe(self) -> None:
        safe = min(self.log.recovery_point, self.log.end_offset)
        if not self.commits_at_once and safe > self.high_watermark:
            self.high_watermark = safe
            self.on_progress(self)
