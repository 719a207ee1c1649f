"""Which node of a cluster on this machine runs, is started again, or is to stop: a pure machine.

Events come in by `step`, effects go out; `parent.py` performs them. Rules:
1. A node that ends is started again, after a rest that doubles with each short life.
2. A cause that makes the first start of a node impossible (a used port, a wrong setting) would do
   so again: all nodes stop, and the command fails with the node's own error. If only its data
   folder is damaged and a majority of the controllers can run, the others go on without it.
3. Nodes stop group by group, brokers before controllers and controllers one at a time, so that each
   can still hand its leaderships over, but for the last one. A second request to stop ends the
   waiting for one another, a third kills, and so does the time that a node gets.
4. An unexpected death is reported to the controller at once (`TellDeath`), with the epoch that
   died, so that it never concerns a successor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

FIRST_REST_MS = 250
LONGEST_REST_MS = 30_000
# A node that lived for so long and dies begins with the first rest again.
LONG_LIFE_MS = 60_000
# To hand over its leaderships, flush and close; then it is killed.
TIME_TO_STOP_MS = 60_000
# The exit code of a node that could not start, and has reported why.
CANNOT_START = 3
# The exit code of a node that could not start because its data folder is damaged.
UNUSABLE_DATA = 4


# ---- events


@dataclass(slots=True)
class Begin:
    pass


@dataclass(slots=True)
class Ready:
    node: int
    broker_epoch: int  # -1: it has none, or does not say


@dataclass(slots=True)
class Ended:
    node: int
    code: int  # negative: the number of the signal


@dataclass(slots=True)
class StopAsked:
    pass


@dataclass(slots=True)
class Tick:
    pass


Event = Begin | Ready | Ended | StopAsked | Tick


# ---- effects


@dataclass(slots=True, frozen=True)
class Start:
    node: int


@dataclass(slots=True, frozen=True)
class Terminate:
    """Stop a node. `at_once`: there is no other node to which it could hand over its partitions."""

    node: int
    at_once: bool = False


@dataclass(slots=True, frozen=True)
class Kill:
    node: int


@dataclass(slots=True, frozen=True)
class TellDeath:
    node: int
    broker_epoch: int


@dataclass(slots=True, frozen=True)
class SayEnded:
    """`again_in_ms` None: it stays away."""

    node: int
    code: int
    again_in_ms: int | None


@dataclass(slots=True, frozen=True)
class SayLeftOut:
    """The cluster runs without this node until it is started again as a whole."""

    node: int


@dataclass(slots=True, frozen=True)
class AllReady:
    """Once: each node that is not left out has been ready."""


@dataclass(slots=True, frozen=True)
class Finished:
    """Nothing runs any more. `failed` is the node that could not start, if one could not."""

    failed: int | None


Effect = Start | Terminate | Kill | TellDeath | SayEnded | SayLeftOut | AllReady | Finished


@dataclass(slots=True)
class _Child:
    runs: bool = False
    was_ready: bool = False  # in any of its lives
    is_left_out: bool = False
    broker_epoch: int = -1
    started_ms: int = 0
    start_at_ms: int | None = None  # it rests until then
    rest_ms: int = FIRST_REST_MS
    kill_at_ms: int | None = None  # it was asked to stop


class Supervision:
    def __init__(
        self,
        nodes: Iterable[int],
        stop_order: Sequence[Sequence[int]],
        controllers: Iterable[int] = (),
    ) -> None:
        """`stop_order` are groups of nodes: each group is stopped when the one before has ended.
        `controllers`: most of them must run; none: no node is left out."""
        self._controllers = frozenset(controllers)
        self._children = {node: _Child() for node in nodes}
        self._stop_order = [list(group) for group in stop_order]
        assert sorted(n for group in stop_order for n in group) == sorted(self._children)
        self._stops_asked = 0
        self._failed: int | None = None
        self._said_ready = False
        self._finished = False

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case Begin():
                return [self._start(node, now_ms) for node in self._children]
            case Ready():
                return self._ready(event)
            case Ended():
                return self._ended(event, now_ms)
            case StopAsked():
                return self._stop(now_ms)
            case Tick():
                return self._tick(now_ms)
        assert_never(event)

    def next_ms(self) -> int | None:
        """When a Tick has something to do; None: not before another event."""
        times = [
            at_ms
            for child in self._children.values()
            for at_ms in (child.start_at_ms, child.kill_at_ms)
            if at_ms is not None
        ]
        return min(times, default=None)

    @property
    def is_stopping(self) -> bool:
        return self._stops_asked > 0

    @property
    def running(self) -> list[int]:
        return [node for node, child in self._children.items() if child.runs]

    # One event each

    def _start(self, node: int, now_ms: int) -> Start:
        child = self._children[node]
        assert not child.runs, "one life at a time"
        child.runs, child.started_ms, child.start_at_ms = True, now_ms, None
        child.broker_epoch = -1
        return Start(node)

    def _ready(self, event: Ready) -> list[Effect]:
        child = self._children[event.node]
        child.was_ready, child.broker_epoch = True, event.broker_epoch
        return self._all_ready()

    def _all_ready(self) -> list[Effect]:
        children = self._children.values()
        if self._said_ready or not all(each.was_ready or each.is_left_out for each in children):
            return []
        self._said_ready = True
        return [AllReady()]

    def _can_do_without(self, node: int) -> bool:
        left_out = {other for other, child in self._children.items() if child.is_left_out}
        lost = self._controllers & {*left_out, node}
        return 2 * len(lost) < len(self._controllers)

    def _ended(self, event: Ended, now_ms: int) -> list[Effect]:
        child = self._children[event.node]
        child.runs, child.kill_at_ms = False, None
        if self.is_stopping:
            return self._go_on_stopping(now_ms)
        if event.code == UNUSABLE_DATA and not child.was_ready and self._can_do_without(event.node):
            child.is_left_out = True
            return [SayLeftOut(event.node), *self._all_ready()]
        if event.code in (CANNOT_START, UNUSABLE_DATA) and not child.was_ready:
            self._failed = event.node
            return self._stop(now_ms)
        if now_ms - child.started_ms >= LONG_LIFE_MS:
            child.rest_ms = FIRST_REST_MS
        child.start_at_ms = now_ms + child.rest_ms
        effects: list[Effect] = [SayEnded(event.node, event.code, child.rest_ms)]
        child.rest_ms = min(2 * child.rest_ms, LONGEST_REST_MS)
        if child.broker_epoch >= 0:
            effects.append(TellDeath(event.node, child.broker_epoch))
        return effects

    def _stop(self, now_ms: int) -> list[Effect]:
        self._stops_asked += 1
        for child in self._children.values():
            child.start_at_ms = None
        if self._stops_asked == 2 or self._failed is not None:
            self._stop_order = [self.running]
        if self._stops_asked > 2:
            return [Kill(node) for node in self.running]
        return self._go_on_stopping(now_ms)

    def _go_on_stopping(self, now_ms: int) -> list[Effect]:
        """Ask those of the first group that has not ended."""
        for group in self._stop_order:
            remaining = [node for node in group if self._children[node].runs]
            if not remaining:
                continue
            asked: list[Effect] = []
            for node in remaining:
                if self._children[node].kill_at_ms is None:
                    self._children[node].kill_at_ms = now_ms + TIME_TO_STOP_MS
                    asked.append(Terminate(node, at_once=self.running == [node]))
            return asked
        if self._finished:
            return []
        self._finished = True
        return [Finished(self._failed)]

    def _tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for node, child in self._children.items():
            if child.start_at_ms is not None and now_ms >= child.start_at_ms:
                effects.append(self._start(node, now_ms))
            if child.kill_at_ms is not None and now_ms >= child.kill_at_ms:
                child.kill_at_ms = now_ms + TIME_TO_STOP_MS
                effects.append(Kill(node))
        return effects
