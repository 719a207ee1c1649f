"""The timeline's interface to the store of pending rows, and the changes that it sends there.

`store.RocksPending` is the one in use; tests have one in memory. It holds a partition's rows as of
one committed progress and is never ahead of it. Everything in one `Changes` becomes true at once or
not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from headrace.services.delay.timeline.progress import DueKey
from headrace.services.delay.timeline.rows import Row

# (time_ms, offset): records before that offset were appended at that time or earlier.
Sample = tuple[int, int]


@dataclass(slots=True)
class Changes:
    position: int  # the store holds what is pending of the intake below it
    watermark: DueKey  # rows up to it are gone
    far: int
    samples: list[Sample]
    count_by: int = 0  # how many rows are pending more than before
    puts: list[Row] = field(default_factory=list)
    # Among the rows put, those that may still be pending when the intake wants to forget them.
    long: list[DueKey] = field(default_factory=list)
    deletes: list[DueKey] = field(default_factory=list)  # above the watermark
    ids: dict[str, DueKey | None] = field(default_factory=dict)  # the last schedule of an id
    done_ids: list[tuple[DueKey, str]] = field(
        default_factory=list
    )  # delivered, for a later cancel
    loading: bool = False  # from the far topic: puts can be found by `find_loaded` until it ends


class Pending(Protocol):
    """One partition's rows, as the timeline uses them."""

    position: int
    watermark: DueKey
    far: int
    count: int
    samples: list[Sample]

    def scan(
        self, after: DueKey, until_ms: int, limit: int, limit_bytes: int = 2**63
    ) -> tuple[list[Row], bool]:
        """Rows above a key and due by a time, in order; and whether that is all of them."""
        ...

    def first_after(self, after: DueKey) -> DueKey | None: ...

    def get(self, key: DueKey) -> Row | None: ...

    def find_id(self, id: str) -> DueKey | None:
        """The last schedule of that name, pending or (for a while) delivered."""
        ...

    def find_loaded(self, offset: int) -> DueKey | None:
        """Returns the due key of a row put while `loading`, until changes come that are not."""
        ...

    def long_rows(self, from_offset: int, below_offset: int, limit: int) -> list[DueKey]:
        """Keys given as `long` and not deleted, by offset; they may be up to the watermark."""
        ...

    def apply(self, changes: Changes) -> None: ...

    def clear(self) -> None: ...
