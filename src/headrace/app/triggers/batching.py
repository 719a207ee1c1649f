"""Records gathered for one call: by count, by size, by time, whichever comes first.

Pure: records and the clock go in, full batches come out. `due_ms` says when the open batch must
leave even if nothing more arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Record = TypeVar("Record")


@dataclass(slots=True)
class Batching(Generic[Record]):
    size_of: Callable[[Record], int]
    most_records: int = 100
    most_bytes: int = 1_048_576
    longest_wait_ms: int = 1_000

    _open: list[Record] = field(default_factory=list)
    _bytes: int = 0
    _opened_at_ms: int = 0

    def add(self, record: Record, now_ms: int) -> list[list[Record]]:
        """The batches that this record filled or closed: none, one or two."""
        closed = []
        size = self.size_of(record)
        if self._open and self._bytes + size > self.most_bytes:
            closed.append(self.take())
        if not self._open:
            self._opened_at_ms = now_ms
        self._open.append(record)
        self._bytes += size
        if len(self._open) >= self.most_records or self._bytes >= self.most_bytes:
            closed.append(self.take())
        return closed

    @property
    def due_ms(self) -> int | None:
        return self._opened_at_ms + self.longest_wait_ms if self._open else None

    def take(self) -> list[Record]:
        """Close the open batch, full or not."""
        batch, self._open, self._bytes = self._open, [], 0
        return batch


def halves(batch: list[Record]) -> tuple[list[Record], list[Record]]:
    """A batch that failed as a whole is tried in two parts, so that one bad record is found."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]
