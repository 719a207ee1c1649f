"""How much the server holds at once: requests under way, and the bytes of their bodies. Pure.

A request that exceeds the limits is refused at once with 429: nothing was changed, and its sender
still has it. Requests do not wait in a queue of the server.
"""

from __future__ import annotations

from headrace.services.http.refusal import busy


class Budget:
    def __init__(self, *, requests: int, size_bytes: int) -> None:
        self.most_requests, self.most_bytes = requests, size_bytes
        self.requests = self.bytes = 0
        self.refused = 0

    def enter(self) -> None:
        if not self.has_room:
            self.refused += 1
            raise busy(f"The server serves {self.most_requests} requests at once; try again.")
        self.requests += 1

    @property
    def has_room(self) -> bool:
        return self.requests < self.most_requests

    def has_bytes(self, size_bytes: int) -> bool:
        return self.bytes + size_bytes <= self.most_bytes

    def leave(self) -> None:
        self.requests -= 1

    def take(self, size_bytes: int) -> None:
        if not self.has_bytes(size_bytes):
            self.refused += 1
            raise busy(
                "The server has reached its limit of bytes that wait for the cluster; "
                "send it again a little later."
            )
        self.bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.bytes -= size_bytes


class Lease:
    """The bytes of one request; it grows while a body is read, and goes back as a whole."""

    __slots__ = ("_budget", "bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.bytes = 0

    def grow_to(self, size_bytes: int) -> None:
        if size_bytes > self.bytes:
            self._budget.take(size_bytes - self.bytes)
            self.bytes = size_bytes

    def end(self) -> None:
        self._budget.give_back(self.bytes)
        self.bytes = 0
