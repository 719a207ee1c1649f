"""The memory that a sink has of the streams that wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TableMemory:
    """`id` is made with the table and stays ("" where the sink has none); what follows a "@" in it
    is the id of the table beside it that holds the batches. `streams` has the last batch of each
    stream that added rows; a sink that replaces rows by key need not know them. `knows_all`: each
    committed batch is among them. `version` grows with each change (-1 where it is not known)."""

    id: str
    streams: dict[str, int] = field(default_factory=dict)
    knows_all: bool = False
    version: int = -1

    def is_another_than(self, kept: str) -> bool:
        """Whether this is not the table whose id was `kept`. Where both tables have new ids, they
        were restored together, and their batches say whether they are older."""
        before, _, batches_before = kept.partition("@")
        now, _, batches = self.id.partition("@")
        return bool(before and now) and before != now and batches == batches_before
