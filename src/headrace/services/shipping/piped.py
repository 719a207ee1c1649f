"""Standard input as a file that is followed: it has no positions, and what was read is gone.

A shipper that is killed loses what it had read from a pipe and not written, 32 MiB at most.
"""

from __future__ import annotations

import os
import select
from dataclasses import dataclass

from headrace.services.shipping.followed import Followed, Position


@dataclass(slots=True)
class Piped:
    descriptor: int
    followed: Followed
    is_over: bool = False

    @classmethod
    def of(cls, descriptor: int, id: str, *, most: int, joins: bool) -> Piped:
        return cls(descriptor, Followed(Position(id, "stdin", 0, 0), most=most, joins=joins))

    def chunk(self, most: int) -> bytes:
        """What is there now; empty if nothing is, or nothing comes any more."""
        if self.is_over or not select.select([self.descriptor], [], [], 0)[0]:
            return b""
        found = os.read(self.descriptor, most)
        self.is_over = not found
        return found
