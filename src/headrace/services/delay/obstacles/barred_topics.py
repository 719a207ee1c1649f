"""Topics that take nothing of ours now: each waits by itself, and its neighbours flow.

A missing permission to write, or a clock that the topic does not accept, is reported for a
transaction as a whole, and not always with the topic's name. If it is named, that one waits.
Otherwise each pair of topics of that transaction is tried alone, and a pair that fails alone waits.
One that waits is tried again now and then, alone. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
UNNAMED = "the service may not write to its target, or to a topic beside it: give the permission"

T = TypeVar("T")


@dataclass(slots=True)
class _Wait:
    why: str
    until_s: float
    next_wait_s: float


class Barring:
    """By companion."""

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}
        self._suspects: set[str] = set()

    def why(self, companion: str, now_s: float) -> str | None:
        """Returns why it waits; None: it may be tried."""
        wait = self._waits.get(companion)
        return None if wait is None or now_s >= wait.until_s else wait.why

    def is_on_trial(self, companion: str) -> bool:
        return companion in self._waits or companion in self._suspects

    def apart(self, due: Collection[T], companion_of: Callable[[T], str]) -> Iterator[list[T]]:
        """Returns the topics for one transaction: each on trial alone, then all others together."""
        if self._waits or self._suspects:
            tried = {c for c in map(companion_of, due) if self.is_on_trial(c)}
            for companion in sorted(tried):
                yield [each for each in due if companion_of(each) == companion]
            due = [each for each in due if companion_of(each) not in tried]
        yield list(due)

    def failed(self, tried: Collection[str], named: Mapping[str, str], now_s: float) -> None:
        """Notes that a transaction of these companions failed; `named` are those that are known to
        wait, and why."""
        if not named and len(tried) > 1:
            self._suspects |= set(tried)
            return
        for companion in named or tried:
            why = named.get(companion) or UNNAMED
            before = self._waits.get(companion)
            wait_s = FIRST_WAIT_S if before is None else before.next_wait_s
            self._waits[companion] = _Wait(why, now_s + wait_s, min(2 * wait_s, LONGEST_WAIT_S))
            self._suspects.discard(companion)

    def succeeded(self, companions: Collection[str]) -> None:
        if self._waits or self._suspects:
            self._suspects.difference_update(companions)
            for companion in companions:
                self._waits.pop(companion, None)
