"""Standard input as a followed file: it has no positions, and cannot be read again.

A shipper that is killed loses what it had read from a pipe and not written, 32 MiB at most. A
shipper that is stopped writes them first; lines that could not be written by then are reported as
lost.
"""

from __future__ import annotations

import os
import select
from dataclasses import dataclass

from headrace.client.errors import ClientError
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
        """The bytes that are there now; empty if there are none, or the pipe has ended. Raises
        ClientError."""
        if self.is_over or not select.select([self.descriptor], [], [], 0)[0]:
            return b""
        try:
            found = os.read(self.descriptor, most)
        except OSError as failure:
            self.is_over = True
            raise ClientError(f"Standard input cannot be read: {failure.strerror}.") from failure
        self.is_over = not found
        return found
