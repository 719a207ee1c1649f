"""Long work in slices: a few milliseconds in each turn of the loop, between other requests.

Work is a generator. It yields wherever other work may run: state that it has read before may have
changed when it continues, so it yields only where it holds no shared state. A lane runs its works
one after the other, in the order in which they came; a fair lane runs some steps of each in turn.
Several lanes share a turn. Knows no clock: the caller of a lane decides when a slice is over.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

Work = Iterator[object]
# A work yields this while it must wait: other works use the memory that it needs.
NO_ROOM = "no room"
# So many works of a fair lane are under way at the same time; the others have not begun.
MOST_UNDER_WAY = 16
# Steps of one work before the next one has its turn. Steps of encoding take a microsecond.
STEPS_IN_TURN = 64


class Lane:
    __slots__ = ("_works",)

    def __init__(self) -> None:
        self._works: deque[tuple[int, Work]] = deque()

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work, mark: int = 0) -> None:
        """`mark` is a value of the caller: see `oldest_mark`."""
        self._works.append((mark, work))

    @property
    def oldest_mark(self) -> int:
        """Returns the mark of the oldest work under way; there must be one."""
        return self._works[0][0]

    def run(self, is_over: Callable[[], bool]) -> None:
        """Runs at least one step, so that each turn makes progress; then until `is_over`."""
        while self._works:
            try:
                for _ in self._works[0][1]:
                    if is_over():
                        return
            except Exception as bug:  # one work's bug must not end the others
                log.error("work in slices failed", exc_info=bug)
            self._works.popleft()
            if is_over():
                return


class FairLane:
    """Works of clients: a few steps of each in turn, so that a long one delays a short one little.

    Works under way hold decoded messages, so they are few, and only one of the heavy ones is under
    way. Works without room wait aside, in order, and do not delay others.
    """

    __slots__ = ("_under_way", "_light", "_heavy", "_heavy_one", "_without_room")

    def __init__(self) -> None:
        self._under_way: deque[Work] = deque()
        self._light: deque[Work] = deque()  # works that have not begun
        self._heavy: deque[Work] = deque()  # heavy works that have not begun
        self._heavy_one: Work | None = None
        self._without_room: deque[Work] = deque()

    def __len__(self) -> int:
        return sum(map(len, (self._under_way, self._light, self._heavy, self._without_room)))

    def __bool__(self) -> bool:
        """Called several times in each turn of the loop: ten times as fast as the length."""
        return bool(self._under_way or self._light or self._heavy or self._without_room)

    @property
    def waits(self) -> bool:
        """Returns whether all works wait for room: nothing can be done before a client reads."""
        # A heavy work that has begun, while no work is under way, is among those without room.
        may_begin = self._light or (self._heavy and self._heavy_one is None)
        return not self._under_way and not may_begin

    def add(self, work: Work, *, heavy: bool = False) -> None:
        (self._heavy if heavy else self._light).append(work)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Runs at least one step, so that each turn makes progress; then until `is_over`."""
        self._look_for_room()
        self._begin_some()
        while self._under_way:
            work = self._under_way.popleft()
            said = _some_steps(work, is_over)
            if said is NO_ROOM:
                self._without_room.append(work)
            elif said is ENDED:
                self._ended(work)
            else:
                self._under_way.append(work)
            self._begin_some()
            if is_over():
                return

    def _begin_some(self) -> None:
        if self._heavy and self._heavy_one is None:
            self._heavy_one = self._heavy.popleft()
            self._under_way.append(self._heavy_one)
        while self._light and len(self._under_way) < MOST_UNDER_WAY:
            self._under_way.append(self._light.popleft())

    def _ended(self, work: Work) -> None:
        if work is self._heavy_one:
            self._heavy_one = None
        self._look_for_room()

    def _look_for_room(self) -> None:
        """Continue the first work that waits, if there is room for it."""
        while self._without_room:
            said = _some_steps(self._without_room[0], lambda: True)
            if said is NO_ROOM:
                return
            work = self._without_room.popleft()
            if said is not ENDED:
                self._under_way.append(work)
                return
            if work is self._heavy_one:
                self._heavy_one = None


ENDED = "ended"


def _some_steps(work: Work, is_over: Callable[[], bool]) -> object:
    """Returns NO_ROOM, ENDED or None."""
    try:
        for taken, said in enumerate(work, 1):
            if said is NO_ROOM:
                return NO_ROOM
            if taken >= STEPS_IN_TURN or is_over():
                return None
    except Exception as bug:  # one work's bug must not end the others
        log.error("work in slices failed", exc_info=bug)
    return ENDED
