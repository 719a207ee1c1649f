"""The methods of a log that a replica needs, as leader or as follower.

`PartitionLog` is one, and holds it by its types alone; tests and simulations may bring another.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, NoReturn, Protocol

from headrace.environment import FileSlice
from headrace.node.storage.durability.flush import Flush
from headrace.wire.protocol.errors import ErrorCode, KafkaError


class Producers(Protocol):
    """The methods of a log's producer state that a replica needs."""

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


class Segments(Protocol):
    """The methods of a log's files that a replica needs."""

    def first_damage(self, start_offset: int) -> int | None:
        """The first offset that is known to be unreadable."""
        ...

    def confirm_damage(self) -> None:
        """Read known damage again, and forget ranges that are good by now."""
        ...


class Writer(Protocol):
    """Appends batches to the log: `append` and `append_marker` for a leader, the others for a
    follower."""

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

    def begin_with_batch(self, records: memoryview, *, wall_ms: int) -> list[str]: ...


class Log(Protocol):
    folder: str
    start_offset: int
    end_offset: int
    recovery_point: int  # everything before it is on the disk

    @property
    def writer(self) -> Writer: ...

    @property
    def producers(self) -> Producers: ...

    @property
    def segments(self) -> Segments: ...

    @property
    def epochs(self) -> Epochs: ...

    def expect_again(self, refused: memoryview) -> None: ...

    def write_at_once(self) -> None:
        """Write what was appended in this turn; KafkaError: those records are no longer in the
        log."""
        ...

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool
    ) -> FileSlice | None: ...

    def aborted_transactions(
        self, offset: int, records: FileSlice, up_to: int
    ) -> list[tuple[int, int]]: ...

    def offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and where it ended; (-1, -1) if unknown."""
        ...

    def delete_records_before(self, offset: int) -> None: ...

    def truncate(self, to_offset: int, *, wall_ms: int) -> list[str]:
        """Truncate every batch that reaches `to_offset`; returns the files to remove after a while,
        as does the next method."""
        ...

    def truncate_fully(self, offset: int, *, wall_ms: int) -> list[str]: ...

    def flush_target(self, *, everything: bool = False) -> Flush | None: ...

    def flushed(self, flush: Flush) -> bool: ...


class NoWriter:
    """The writer of a replica that is not the leader: refuses every append."""

    def append(self, records: memoryview, *, leader_epoch: int, wall_ms: int) -> NoReturn:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append_marker(self, **marker: Any) -> NoReturn:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append_as_is(self, records: memoryview, *, wall_ms: int) -> NoReturn:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def begin_with_batch(self, records: memoryview, *, wall_ms: int) -> NoReturn:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


NO_WRITER = NoWriter()
