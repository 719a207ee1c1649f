"""Long work in slices: a few milliseconds in each turn of the loop, between everybody's requests.

Work is a generator. It yields wherever other work may run: state that it has read before may have
changed when it continues, so it yields only where it holds no shared state. A lane does its works
one after the other, in the order they came; several lanes share a turn. Knows no clock: the caller
of a lane says when a slice is over.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

Work = Iterator[None]


class Lane:
    __slots__ = ("_works",)

    def __init__(self) -> None:
        self._works: deque[tuple[int, Work]] = deque()

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work, mark: int = 0) -> None:
        """`mark` is the caller's own: see `oldest_mark`."""
        self._works.append((mark, work))

    @property
    def oldest_mark(self) -> int:
        """Of the work that is under way; there must be one."""
        return self._works[0][0]

    def run(self, is_over: Callable[[], bool]) -> None:
        """At least one step, so that each turn brings the work on; then until `is_over`."""
        while self._works:
            try:
                for _ in self._works[0][1]:
                    if is_over():
                        return
            except Exception as bug:  # noqa: BLE001 - one work's bug must not end the others
                log.error("work in slices failed", exc_info=bug)
            self._works.popleft()
            if is_over():
                return
