"""Purgatory: requests that wait for a change, or for their deadline.

A change of a partition, session or group wakes the requests that wait for it (`wake`). Each woken
request is tried once per turn of the loop (`try_woken`), however many changes woke it. Deadlines
are monotonic milliseconds. Purgatory sends nothing: `WaitingRequest.complete` does.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headrace.node.serving.api import Waitable, WaitingRequest

# An answered request leaves its deadline in the heap; above this size the heap is cleaned when such
# entries are more than half of it.
SWEEP_ABOVE = 1_000


class Purgatory:
    __slots__ = ("_deadlines", "_added_so_far", "waiting", "woken")

    def __init__(self) -> None:
        # Invariants: a waiting request is in `_deadlines` once and in `waiting` of each thing that
        # it waits for; `done` requests may still be in the heap and are skipped there; `waiting`
        # counts requests that are not done.
        self._deadlines: list[tuple[int, int, WaitingRequest]] = []
        self._added_so_far = 0  # breaks ties between equal deadlines, in order of arrival
        self.waiting = 0
        self.woken: list[WaitingRequest] = []

    def add(self, request: WaitingRequest) -> None:
        for thing in request.hangs_on:
            thing.waiting[request] = None
        self.waiting += 1
        self._added_so_far += 1
        heappush(self._deadlines, (request.deadline_ms, self._added_so_far, request))
        if len(self._deadlines) > SWEEP_ABOVE and len(self._deadlines) > 2 * self.waiting:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapify(self._deadlines)

    def wake(self, thing: Waitable) -> None:
        for request in thing.waiting:
            # The flag makes one attempt of many wake-ups: a fetch on a hundred partitions is tried
            # once per turn, not once per append.
            if not request.woken:
                request.woken = True
                self.woken.append(request)

    def try_woken(self) -> None:
        """Try the woken requests; an answer may wake others, which are tried in the same call."""
        while self.woken:
            # The flag is cleared before the attempt, so a change that happens during the attempt
            # wakes the request again and is not missed.
            woken, self.woken = self.woken, []
            for request in woken:
                request.woken = False
                if not request.done:
                    self._try(request, expired=False)

    def expire(self, now_ms: int) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            request = heappop(self._deadlines)[2]
            if not request.done:
                self._try(request, expired=True)

    def answer_all(self) -> None:
        """The node stops: every waiting request is answered as if its deadline had come."""
        for _, _, request in sorted(self._deadlines):
            if not request.done:
                self._try(request, expired=True)
        self._deadlines.clear()

    def forget(self, request: WaitingRequest) -> None:
        """Its connection is closed: drop the request."""
        if not request.done:
            self._leave(request)

    def next_deadline_ms(self) -> int | None:
        while self._deadlines and self._deadlines[0][2].done:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _leave(self, request: WaitingRequest) -> None:
        request.done = True
        self.waiting -= 1
        for thing in request.hangs_on:
            thing.waiting.pop(request, None)

    def _try(self, request: WaitingRequest, *, expired: bool) -> None:
        """Try once; the answer, or the exception of a bug, is passed to `request.complete`."""
        try:
            answer = request.attempt(expired)
            assert answer is not None or not expired, "a request that expires must be answered"
        except Exception as bug:  # noqa: BLE001 - one request's bug must not end the others
            self._leave(request)
            request.complete(bug)
            return
        if answer is not None:
            self._leave(request)
            request.complete(answer)
