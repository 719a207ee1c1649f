"""When logins failed, so that passwords cannot be guessed through a server. Pure.

Each server decides what it counts (by name, by address, all) and how many it allows. Bounded: the
newest failures of a key, and the keys that failed last. Time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from contextlib import suppress


class LoginFailures:
    def __init__(self, *, window_s: float, most_keys: int) -> None:
        self._window_s, self._most_keys = window_s, most_keys
        self._failures: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def note(self, key: Hashable, now_s: float, *, most: int) -> None:
        """Counts a failure; `most` of a key are kept."""
        self._failures.setdefault(key, deque(maxlen=most)).append(now_s)
        self._failures.move_to_end(key)
        while len(self._failures) > self._most_keys:
            self._failures.popitem(last=False)

    def recent(self, key: Hashable, now_s: float) -> list[float]:
        """Returns the times of the failures within the window, in the order of their notes."""
        return [at_s for at_s in self._failures.get(key, ()) if now_s - at_s < self._window_s]

    def wait_s(self, key: Hashable, now_s: float, *, most: int) -> float:
        """How long until there are fewer than `most` within the window; 0: now."""
        recent = self.recent(key, now_s)
        return recent[-most] + self._window_s - now_s if len(recent) >= most else 0.0

    def take_back(self, key: Hashable, at_s: float) -> None:
        """The failure that was noted at this time was none. Later ones may have pushed it out."""
        with suppress(ValueError):
            self._failures.get(key, deque()).remove(at_s)

    def forget(self, key: Hashable) -> None:
        self._failures.pop(key, None)
