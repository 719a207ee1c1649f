"""The logs of one node that have taken batches which are not in their files yet.

A log puts itself on the list when it gathers the first batch since its last write. Small batches
are copied and wait for the end of the turn. Larger ones are not copied: they stay in the buffer
that they came in, and their logs are `borrowing` it until somebody has them written.
"""

from __future__ import annotations

from typing import Any


class Unwritten(list[Any]):
    __slots__ = ("borrowing",)

    def __init__(self) -> None:
        super().__init__()
        self.borrowing: list[Any] = []  # a log may stand here more than once
