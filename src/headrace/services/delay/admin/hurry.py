"""A list of pending messages includes those just sent: the loop is asked to bring them to the
store.

The loop itself stores what it takes about once a second, with the next transaction. Asking costs
one more, and waits for it, but not for long: a list that lacks the last moment is better than none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, sleep

from headrace.services.delay.timeline.timeline import Timeline

STORED_WITHIN_S = 0.5
LOOK_EVERY_S = 0.005


class Hurry:
    def __init__(self, timelines: Callable[[], list[Timeline]]) -> None:
        self._timelines = timelines
        self._asked = threading.Event()

    def store_taken(self) -> None:
        """Call from any thread but the loop's. Returns when it is done, or after a short limit."""
        deadline = monotonic() + STORED_WITHIN_S
        self._asked.set()
        while self._asked.is_set():
            if monotonic() > deadline:
                return
            sleep(LOOK_EVERY_S)
        taken = [(each, each.taken_to) for each in self._timelines() if each.ready]
        while any(each.progress.position < position for each, position in taken):
            if monotonic() > deadline:
                return
            sleep(LOOK_EVERY_S)

    def heed(self) -> None:
        """Called by the loop, after it has taken what was there and before it plans."""
        if self._asked.is_set():
            for timeline in self._timelines():
                timeline.hurry()
            self._asked.clear()
