"""The memory that a sink has of the streams that wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TableMemory:
    """`id` is made with the table and stays ("" where the sink has none). `streams` has the last
    batch of each stream that added rows; a sink that replaces rows by key need not know them.
    `knows_all`: each committed batch is among them."""

    id: str
    streams: dict[str, int] = field(default_factory=dict)
    knows_all: bool = False
