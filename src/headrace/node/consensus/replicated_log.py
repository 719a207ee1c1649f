"""The methods of a log that the quorum needs. `storage.PartitionLog` is one; tests may bring their
own."""

from __future__ import annotations

from typing import Any, Protocol

from headrace.environment import FileSlice


class Writer(Protocol):
    def append_as_is(self, records: memoryview, *, wall_ms: int) -> int:
        """Batches that carry their offsets and epoch; KafkaError leaves the log as it was."""
        ...


class Epochs(Protocol):
    @property
    def entries(self) -> list[tuple[int, int]]:
        """Epoch and start offset, oldest first."""
        ...

    def epoch_of(self, offset: int) -> int:
        """-1 if it is not known."""
        ...


class ReplicatedLog(Protocol):
    start_offset: int
    end_offset: int
    recovery_point: int  # everything before it is on the disk

    @property
    def size_bytes(self) -> int: ...

    @property
    def writer(self) -> Writer: ...

    @property
    def epochs(self) -> Epochs: ...

    @property
    def is_unreadable(self) -> bool:
        """Returns whether the disk refused a write, and then to be read."""
        ...

    def write_at_once(self) -> None:
        """Appended batches go to the file; after a KafkaError the log is what the file has, unless
        it is unreadable."""
        ...

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool
    ) -> FileSlice | None: ...

    def truncate(self, to_offset: int, *, wall_ms: int) -> list[str]:
        """Truncate every batch that reaches `to_offset`; returns files to remove."""
        ...

    def truncate_fully(self, offset: int, *, wall_ms: int) -> list[str]:
        """Begin again at `offset`; returns files to remove."""
        ...

    def delete_records_before(self, offset: int) -> None: ...

    def apply_retention(self, wall_ms: int) -> list[str]:
        """Remove the segments before the start; returns the renamed files."""
        ...

    def flush_target(self, *, everything: bool = False) -> Any:
        """A flush to run on another thread, or None; then to be given to `flushed`."""
        ...

    def flushed(self, flush: Any) -> bool: ...
