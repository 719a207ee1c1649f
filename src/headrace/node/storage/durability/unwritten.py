"""The logs of one node that have taken batches which are not in their files yet.

A log puts itself on the list when it gathers the first batch since its last write. Small batches
are copied and wait for the end of the turn. Larger ones are not copied: they stay in the receive
buffer, and their logs are `borrowing` it until they are written.

Once the disk has refused a write, nothing is gathered until `gather_again`: each batch is written
before it is answered, so that the next refusal reaches only its own sender.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Copying a batch out of the receive buffer and writing many at once is cheaper up to here; from
# 4 KiB on the copy eats the gain (measured).
COPY_BELOW = 2048
# Five batches of 16 KiB in one write take half the time of five writes: the file system then makes
# fewer and larger pages. From here on a batch has nothing to gain.
GATHER_BELOW = 64 * 1024


class Unwritten(list[Any]):
    __slots__ = (
        "borrowing",
        "copies_below",
        "gathers_below",
        "on_problem",
        "on_refusal",
        "refusal",
    )

    def __init__(self) -> None:
        super().__init__()
        self.borrowing: list[Any] = []  # a log may be in this list more than once
        self.on_refusal: Callable[[str, OSError], None] = lambda folder, problem: None
        # Called with every OSError of a log and the log's folder: the disk may have failed.
        self.on_problem: Callable[[str, OSError], Any] = lambda folder, problem: None
        self.refusal = ""  # the disk's last error
        self.gather_again()

    @property
    def gathers(self) -> bool:
        return self.gathers_below > 0

    def gather_again(self) -> None:
        self.copies_below, self.gathers_below = COPY_BELOW, GATHER_BELOW

    def refused(self, folder: str, problem: OSError) -> None:
        """The disk did not take something that belongs to the log in `folder`."""
        # With both limits at 0 every append takes the path "write now", so that a refusal reaches
        # its own request and no other one.
        self.copies_below = self.gathers_below = 0
        self.refusal = problem.strerror or str(problem)
        self.on_refusal(folder, problem)
