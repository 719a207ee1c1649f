"""Which records may run now, by the order that was asked for.

A lane is what must run one after the other: a partition, a key, or with no order a record by
itself. A run is what one slot takes from a lane at once and handles in order. While a run is out,
or its lane is held after a failure, the lane gives nothing else; other lanes go on. Pure: no clock,
no lock; the caller has both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Literal, Protocol, TypeVar

OrderBy = Literal["key", "partition"] | None


class Queued(Protocol):
    """What a lane holds."""

    @property
    def lane(self) -> Hashable:
        """What it must be in order with; the same for all of one key or partition."""
        ...


J = TypeVar("J", bound=Queued)


class Lane(Generic[J]):
    __slots__ = ("name", "queue", "state")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.queue: deque[J] = deque()
        self.state = READY


# A lane is in exactly one of these. READY: in the row of those that wait for a slot. OUT: a slot
# has a run of it. HELD: nothing of it runs until `release`.
READY, OUT, HELD = "ready", "out", "held"


class Run(Generic[J]):
    """Records that one slot handles in order; `lane` is None where there is no order."""

    __slots__ = ("jobs", "lane")

    def __init__(self, jobs: list[J], lane: Lane[J] | None) -> None:
        self.jobs = jobs
        self.lane = lane


class Lanes(Generic[J]):
    def __init__(self, order_by: OrderBy) -> None:
        self.order_by = order_by
        self.waiting = 0  # records in lanes, not in runs
        self._free: deque[J] = deque()  # with no order: all that wait
        self._lanes: dict[Hashable, Lane[J]] = {}
        self._ready: deque[Lane[J]] = deque()

    def add(self, jobs: Iterable[J]) -> None:
        """Records came, in their order."""
        if self.order_by is None:
            before = len(self._free)
            self._free.extend(jobs)
            self.waiting += len(self._free) - before
            return
        lanes = self._lanes
        for job in jobs:
            name = job.lane
            lane = lanes.get(name)
            if lane is None:
                lane = lanes[name] = Lane(name)
                self._ready.append(lane)
            lane.queue.append(job)
            self.waiting += 1

    def take(self, most: int) -> Run[J] | None:
        """The next run, of at most so many records; None if nothing may run now."""
        if self.order_by is None:
            free = self._free
            if not free:
                return None
            if most >= len(free):
                jobs = list(free)
                free.clear()
            else:
                jobs = [free.popleft() for _ in range(most)]
            self.waiting -= len(jobs)
            return Run(jobs, None)
        if not self._ready:
            return None
        lane = self._ready.popleft()
        lane.state = OUT
        queue = lane.queue
        if most >= len(queue):
            jobs = list(queue)
            queue.clear()
        else:
            jobs = [queue.popleft() for _ in range(most)]
        self.waiting -= len(jobs)
        return Run(jobs, lane)

    @property
    def ready(self) -> int:
        """How many runs could begin now, at most."""
        return len(self._free) if self.order_by is None else len(self._ready)

    def done(self, run: Run[J]) -> None:
        """All of the run is over; its lane goes on."""
        if run.lane is not None and run.lane.state is OUT:
            self._go_on(run.lane)

    def hold(self, run: Run[J], rest: Iterable[J]) -> None:
        """The run ended early: `rest` goes back to the front, and the lane waits for `release`."""
        lane = run.lane
        back = list(rest)
        if lane is None:
            self._free.extendleft(reversed(back))
        else:
            lane.queue.extendleft(reversed(back))
            lane.state = HELD
        self.waiting += len(back)

    def release(self, name: Hashable) -> None:
        """A held lane goes on."""
        lane = self._lanes.get(name)
        if lane is not None and lane.state is HELD:
            self._go_on(lane)

    def empty(self, run: Run[J]) -> list[J]:
        """Take all that waits in the lane of a run, for another place."""
        if run.lane is None:
            return []
        taken = list(run.lane.queue)
        run.lane.queue.clear()
        self.waiting -= len(taken)
        return taken

    def drop(self, gone: Callable[[J], bool]) -> None:
        """Forget what is gone, and lanes that are left with nothing."""
        self._free = deque(job for job in self._free if not gone(job))
        waiting = len(self._free)
        for lane in list(self._lanes.values()):
            if lane.queue:
                lane.queue = deque(job for job in lane.queue if not gone(job))
                waiting += len(lane.queue)
            if not lane.queue and lane.state is not OUT:
                self._remove(lane)
        self.waiting = waiting

    def _go_on(self, lane: Lane[J]) -> None:
        if lane.queue:
            lane.state = READY
            self._ready.append(lane)
        elif self._lanes.get(lane.name) is lane:
            del self._lanes[lane.name]

    def _remove(self, lane: Lane[J]) -> None:
        if lane.state is READY:
            self._ready.remove(lane)
        del self._lanes[lane.name]
