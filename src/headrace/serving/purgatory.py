"""Where requests wait: each hangs on what it waits for, and on its deadline.

A change wakes what hangs on it (`wake`), and everything woken in a turn of the loop is tried once
(`settle`), however many changes woke it. Deadlines are monotonic milliseconds. Nothing here sends.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headrace.serving.api import Parked, Waitable

# A request that was answered leaves its deadline in the heap; the heap is swept when those prevail.
SWEEP_ABOVE = 1_000


class Purgatory:
    __slots__ = ("_deadlines", "_parked_so_far", "waiting", "woken")

    def __init__(self) -> None:
        self._deadlines: list[tuple[int, int, Parked]] = []
        self._parked_so_far = 0  # breaks ties between equal deadlines, in order of arrival
        self.waiting = 0
        self.woken: list[Parked] = []

    def park(self, parked: Parked) -> None:
        for thing in parked.hangs_on:
            thing.waiting[parked] = None
        self.waiting += 1
        self._parked_so_far += 1
        heappush(self._deadlines, (parked.deadline_ms, self._parked_so_far, parked))
        if len(self._deadlines) > SWEEP_ABOVE and len(self._deadlines) > 2 * self.waiting:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapify(self._deadlines)

    def wake(self, thing: Waitable) -> None:
        for parked in thing.waiting:
            if not parked.woken:
                parked.woken = True
                self.woken.append(parked)

    def settle(self) -> None:
        """Try what was woken; an answer may wake others, which are tried in the same call."""
        while self.woken:
            woken, self.woken = self.woken, []
            for parked in woken:
                parked.woken = False
                if not parked.done:
                    self._try(parked, expired=False)

    def expire(self, now_ms: int) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            parked = heappop(self._deadlines)[2]
            if not parked.done:
                self._try(parked, expired=True)

    def answer_all(self) -> None:
        """The node stops: everybody gets what there is."""
        for _, _, parked in sorted(self._deadlines):
            if not parked.done:
                self._try(parked, expired=True)
        self._deadlines.clear()

    def forget(self, parked: Parked) -> None:
        """Its connection is gone."""
        if not parked.done:
            self._leave(parked)

    def next_deadline_ms(self) -> int | None:
        while self._deadlines and self._deadlines[0][2].done:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _leave(self, parked: Parked) -> None:
        parked.done = True
        self.waiting -= 1
        for thing in parked.hangs_on:
            thing.waiting.pop(parked, None)

    def _try(self, parked: Parked, *, expired: bool) -> None:
        """Whoever parked it is told its answer, or the bug that kept it from having one."""
        try:
            answer = parked.attempt(expired)
            assert answer is not None or not expired, "a request that expires must be answered"
        except Exception as bug:  # noqa: BLE001 - one request's bug must not end the others
            self._leave(parked)
            parked.complete(bug)
            return
        if answer is not None:
            self._leave(parked)
            parked.complete(answer)
