"""What is pending in each partition of the intake, ordered by due time: RocksDB on local disk.

A cache: whatever it holds can be read again from the intake and the far topic, so nothing waits for
the disk. It is never ahead of the committed progress. Rows of all partitions of an instance are in
one database; queries may come from other threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from headrace.services.delay.progress import DueKey

# What of a record is kept: (key, value, headers, partition, appended_ms, id, cron).
Kept = tuple[
    bytes | None,
    bytes | None,
    list[tuple[str, bytes | None]] | None,
    int | None,
    int,
    str | None,
    tuple[str, str, int | None, int | None] | None,
]
Row = tuple[int, int, Kept]  # (due_ms, offset, kept): sorts in the order of delivery


class PendingRow(NamedTuple):
    """One row as queries answer it."""

    topic: str
    partition: int
    offset: int
    due_ms: int
    appended_ms: int
    id: str | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    target_partition: int
    cron: tuple[str, str, int | None, int | None] | None  # expression, zone, until_ms, count


class Pending(Protocol):
    """One partition's rows, as the timeline uses them."""


class Store:
    """The database of one instance. One process at a time: a second one gets StoreInUse."""

    def __init__(self, folder: Path) -> None: ...

    def partition(self, topic: str, partition: int, identity: str) -> Pending:
        """Its rows; emptied when they were written under another identity (cluster and topic id)."""
        raise NotImplementedError

    def close(self) -> None: ...

    # ---- queries, from any thread ---------------------------------------------------------------

    def find(
        self,
        topic: str,
        *,
        partition: int | None = None,
        id: str | None = None,
        key: bytes | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> tuple[list[PendingRow], str | None]:
        """Pending rows in due order, and the cursor (`after`) for the next page or None.

        Scans at most SCANNED_PER_PAGE rows for a page, so a page can be short and still have a
        cursor.
        """
        raise NotImplementedError

    def count_pending(self, topic: str | None = None) -> int:
        raise NotImplementedError

    def count_due_before(
        self, until_ms: int, topic: str | None = None, at_most: int = 100_000
    ) -> int:
        """Rows due before that time; counting stops at `at_most`."""
        raise NotImplementedError
