"""The leader's side of one partition: who may write, and how far readers may see.

Readers see up to the high watermark. With one replica and durability `page-cache` it follows the
end of the log at once; with durability `disk` it follows the flushes, so nobody reads what a power
cut could take back, and acks=all waits for it in the same way as it waits for followers.
Readers of committed records see up to the last stable offset: where the first transaction began
that is still open, or whose marker the high watermark has not passed.
Asks for its log through `Log`; `PartitionLog` is one. Not done here: followers, ISR changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Generic, Protocol, TypeVar

from headrace.environment import FileSlice
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage.flush import Flush
from headrace.storage.partition_log import PartitionLog


class Producers(Protocol):
    """What a leader asks of the producers of its log."""

    @property
    def open_transactions(self) -> Sized: ...

    @property
    def ended_transactions(self) -> Sized: ...

    def last_stable_offset(self, high_watermark: int) -> int: ...

    def forget_decided(self, high_watermark: int) -> None: ...


class Epochs(Protocol):
    """Which leader epoch began where."""

    latest: int  # -1: none is known

    def assign(self, epoch: int, start_offset: int) -> None: ...


class Writer(Protocol):
    """How batches get to the end of the log: the first two from a leader, the last from one."""

    def append(
        self, records: memoryview, *, leader_epoch: int, wall_ms: int
    ) -> tuple[int, int]: ...

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

    def append_as_is(self, records: memoryview, *, wall_ms: int) -> int: ...


class Log(Protocol):
    """What a replica asks of its log, whether it leads or follows."""

    start_offset: int
    end_offset: int
    recovery_point: int  # everything before it is on the disk

    @property
    def writer(self) -> Writer: ...

    @property
    def producers(self) -> Producers: ...

    @property
    def epochs(self) -> Epochs: ...

    def expect_again(self, refused: memoryview) -> None: ...

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool
    ) -> FileSlice | None: ...

    def aborted_transactions(
        self, offset: int, records: FileSlice, up_to: int
    ) -> list[tuple[int, int]]: ...

    def offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...

    def truncate(self, to_offset: int, *, wall_ms: int) -> list[str]:
        """Cut every batch that reaches `to_offset`; answers the files to remove after a while, as
        does the next one."""
        ...

    def truncate_fully(self, offset: int, *, wall_ms: int) -> list[str]: ...

    def flush_target(self, *, everything: bool = False) -> Flush | None: ...

    def flushed(self, flush: Flush) -> bool: ...


L = TypeVar("L", bound=Log)


class LeaderOf(Generic[L]):
    """The leader of a partition whose log is an `L`; a broker's are `PartitionLeader`s."""

    __slots__ = (
        "topic",
        "topic_id",
        "index",
        "log",
        "writer",
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
        log: L,
        epoch: int,
        *,
        commits_at_once: bool,
        on_progress: Callable[[LeaderOf[L]], None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.writer = log.writer
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
            appended = self.writer.append(records, leader_epoch=self.epoch, wall_ms=wall_ms)
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
        return self.log.read(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)

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
        end_offset = self.writer.append_marker(
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
        return self.log.aborted_transactions(offset, records, self.last_stable_offset())

    def begin_epoch(self, epoch: int) -> None:
        """The log notes where the epoch begins, also if nothing is ever written in it."""
        self.epoch = epoch
        if self.log.epochs.latest != epoch:
            self.log.epochs.assign(epoch, self.log.end_offset)

    def last_stable_offset(self) -> int:
        producers = self.log.producers
        if producers.open_transactions or producers.ended_transactions:
            return max(producers.last_stable_offset(self.high_watermark), self.log.start_offset)
        return self.high_watermark

    def require_epoch(self, epoch: int) -> None:
        """A client that names an epoch must name ours (KIP-320)."""
        if epoch == -1 or epoch == self.epoch:
            return
        if epoch < self.epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def flush_target(self) -> Flush | None:
        """What the disk must have so that all that is appended may be seen; None if it has it."""
        self.flush_asked = False
        target = self.log.flush_target(everything=True)
        if target is None:
            self._show_what_is_safe()  # a flush that the log had asked for took it along
        return target

    def flushed(self, flush: Flush) -> bool:
        """False: it proves nothing, ask again."""
        counts = self.log.flushed(flush)
        self._show_what_is_safe()
        return counts

    def _show_what_is_safe(self) -> None:
        safe = min(self.log.recovery_point, self.log.end_offset)
        if not self.commits_at_once and safe > self.high_watermark:
            self.high_watermark = safe
            self.on_progress(self)


PartitionLeader = LeaderOf[PartitionLog]
