"""Chooses the records that may run now, by the order that the subscription asks for.

A lane holds records that must run one after the other: those of a partition, of a key, or with no
order a single record. A run is what one slot takes from a lane at once and handles in order. While
a run is out, or its lane is held after a failure, no other run is taken from the lane; other lanes
continue. Of the lanes that may run, the one whose first record came first is taken: so finished
records stay close together, the committed offset follows, and a crash repeats little. Pure: no
clock, no lock; the caller has both.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Literal, Protocol, TypeVar

OrderBy = Literal["key", "partition"] | None


class Queued(Protocol):
    """The records of a lane."""

    came: int  # its number among all records; set here

    @property
    def lane(self) -> Hashable:
        """The lane: the same for all records of one key or partition."""
        ...


J = TypeVar("J", bound=Queued)


class Lane(Generic[J]):
    __slots__ = ("name", "queue", "state")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.queue: deque[J] = deque()
        self.state = READY


# A lane is in exactly one of these states. READY: it waits for a slot. OUT: a slot has a run of it.
# HELD: nothing of it runs until `release`.
READY, OUT, HELD = "ready", "out", "held"


class Run(Generic[J]):
    """Records that one slot handles in order; `lane` is None if the subscription has no order."""

    __slots__ = ("records", "lane")

    def __init__(self, records: list[J], lane: Lane[J] | None) -> None:
        self.records = records
        self.lane = lane


class Lanes(Generic[J]):
    def __init__(self, order_by: OrderBy) -> None:
        self.order_by = order_by
        self.waiting = 0  # records in lanes, not in runs
        self._free: deque[J] = deque()  # without order: all that wait
        self._lanes: dict[Hashable, Lane[J]] = {}
        self._ready: list[tuple[int, int, Lane[J]]] = []  # heap: `came` of the first, a number
        self._came = 0
        self._entered = 0  # of entries in the heap: lanes cannot be compared

    def add(self, records: Iterable[J]) -> None:
        """Records came, in their order."""
        if self.order_by is None:
            before = len(self._free)
            self._free.extend(records)
            self.waiting += len(self._free) - before
            return
        lanes = self._lanes
        before = came = self._came
        for record in records:
            came += 1
            record.came = came
            lane = lanes.get(record.lane)
            if lane is not None:
                lane.queue.append(record)
            else:
                self._open(record)
        self._came = came
        self.waiting += came - before

    def add_first(self, records: Iterable[J]) -> None:
        """Add records that came long ago and have waited elsewhere: before all others."""
        if self.order_by is None:
            back = list(records)
            self._free.extendleft(reversed(back))
            self.waiting += len(back)
            return
        for record in records:
            record.came = 0
            lane = self._lanes.get(record.lane)
            if lane is not None:
                lane.queue.append(record)
            else:
                self._open(record)
            self.waiting += 1

    def _open(self, record: J) -> None:
        lane = self._lanes[record.lane] = Lane(record.lane)
        lane.queue.append(record)
        self._make_ready(lane)

    def _make_ready(self, lane: Lane[J]) -> None:
        lane.state = READY
        self._entered += 1
        heapq.heappush(self._ready, (lane.queue[0].came, self._entered, lane))

    def take(self, most: int) -> Run[J] | None:
        """The next run, of at most `most` records; None if nothing may run now."""
        if self.order_by is None:
            free = self._free
            if not free:
                return None
            if most >= len(free):
                records = list(free)
                free.clear()
            else:
                records = [free.popleft() for _ in range(most)]
            self.waiting -= len(records)
            return Run(records, None)
        if not self._ready:
            return None
        lane = heapq.heappop(self._ready)[2]
        lane.state = OUT
        queue = lane.queue
        if most >= len(queue):
            records = list(queue)
            queue.clear()
        else:
            records = [queue.popleft() for _ in range(most)]
        self.waiting -= len(records)
        return Run(records, lane)

    @property
    def ready(self) -> int:
        """How many runs could begin now, at most."""
        return len(self._free) if self.order_by is None else len(self._ready)

    def done(self, run: Run[J]) -> None:
        """The run is finished; its lane continues."""
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

    def keep_alike(self, run: Run[J], of: Callable[[J], object]) -> None:
        """Keep the first records of the run for which `of` returns the same; the others go back to
        the front of their lane."""
        assert run.lane is not None
        first = of(run.records[0])
        alike = next((at for at, one in enumerate(run.records) if of(one) != first), None)
        if alike is not None:
            rest = run.records[alike:]
            del run.records[alike:]
            run.lane.queue.extendleft(reversed(rest))
            self.waiting += len(rest)

    def release(self, name: Hashable) -> None:
        """Let a held lane continue."""
        lane = self._lanes.get(name)
        if lane is not None and lane.state is HELD:
            self._go_on(lane)

    def empty(self, run: Run[J]) -> list[J]:
        """Take the waiting records out of the lane of a run, to move them elsewhere."""
        if run.lane is None:
            return []
        taken = list(run.lane.queue)
        run.lane.queue.clear()
        self.waiting -= len(taken)
        return taken

    def drop(self, gone: Callable[[J], bool]) -> None:
        """Drop records that are gone, and ready lanes that are then empty."""
        self._free = deque(record for record in self._free if not gone(record))
        waiting = len(self._free)
        for lane in list(self._lanes.values()):
            if lane.queue:
                lane.queue = deque(record for record in lane.queue if not gone(record))
                waiting += len(lane.queue)
            # A held lane waits for its failed record, even when it is empty: the next record must
            # not begin in a new lane. The caller of `release` lets it continue.
            if not lane.queue and lane.state is READY:
                del self._lanes[lane.name]
        self.waiting = waiting
        self._ready = [entry for entry in self._ready if entry[2].queue]
        heapq.heapify(self._ready)

    def _go_on(self, lane: Lane[J]) -> None:
        if lane.queue:
            self._make_ready(lane)
        elif self._lanes.get(lane.name) is lane:
            del self._lanes[lane.name]
