"""Requests that wait for a response: one per member at a time, given up after a while."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.node.consensus.quorum.messages import Request


@dataclass(slots=True)
class InFlight:
    correlation_id: int
    request: Request
    deadline_ms: int


class RequestsInFlight:
    __slots__ = ("_timeout_ms", "_backoff_ms", "_in_flight", "_rests_until_ms", "_count")

    def __init__(self, *, timeout_ms: int, backoff_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._in_flight: dict[int, InFlight] = {}
        self._rests_until_ms: dict[int, int] = {}
        self._count = 0

    def is_free(self, to: int, now_ms: int) -> bool:
        found = self._in_flight.get(to)
        if found is not None and now_ms < found.deadline_ms:
            return False
        return now_ms >= self._rests_until_ms.get(to, now_ms)

    def begin(self, to: int, request: Request, now_ms: int) -> int:
        self._count += 1
        self._in_flight[to] = InFlight(self._count, request, now_ms + self._timeout_ms)
        return self._count

    def take(self, to: int, correlation_id: int) -> Request | None:
        """Returns the request that an answer belongs to; None if the request is not pending any
        more."""
        found = self._in_flight.get(to)
        if found is None or found.correlation_id != correlation_id:
            return None
        del self._in_flight[to]
        return found.request

    def rest(self, to: int, now_ms: int, at_least_ms: int = 0) -> None:
        """After a failure, leave this member alone for a moment."""
        self._rests_until_ms[to] = now_ms + max(self._backoff_ms, at_least_ms)

    def forget_all(self) -> None:
        """Forget all requests after a change of role: their answers no longer concern this
        member."""
        self._in_flight.clear()
        self._rests_until_ms.clear()

    def next_ms(self, now_ms: int) -> int | None:
        """When a member may be asked again that may not be asked now."""
        times = [found.deadline_ms for found in self._in_flight.values()]
        times += [until for to, until in self._rests_until_ms.items() if to not in self._in_flight]
        return min((time for time in times if time > now_ms), default=None)
