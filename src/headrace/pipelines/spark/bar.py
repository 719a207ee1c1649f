"""The progress bar while Spark works: the tasks of its running stages, read from another thread.

Spark does not know beforehand how many stages there will be, so the bar shows the running stages
only, and its text names them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """The present work, and how many tasks are done of how many; 0 if unknown."""

    what: str
    done: int = 0
    whole: int = 0


# Gets what is to be seen now; None when nothing is any more.
Draw = Callable[[Seen | None], None]


@contextmanager
def waiting(draw: Draw | None, what: str) -> Iterator[None]:
    """Shows that something takes a while, for an unknown time."""
    if draw is None:
        yield
        return
    draw(Seen(what))
    try:
        yield
    finally:
        draw(None)


@contextmanager
def shown(spark: SparkSession, draw: Draw | None, what: str) -> Iterator[None]:
    """How far Spark is with what is done within."""
    if draw is None:
        yield
        return
    ended = threading.Event()
    stages = Stages(what, spark.sparkContext.statusTracker())

    def look() -> None:
        while not ended.wait(LOOK_EVERY_S):
            draw(stages.look())

    draw(Seen(what))
    watcher = threading.Thread(target=look, name="headrace-bar", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        draw(None)


@dataclass(slots=True)
class Stages:
    """The stages of one run, as Spark's status tracker tells of them."""

    what: str
    tracker: Any
    known: set[int] = field(default_factory=set)

    def look(self) -> Seen:
        """Tasks of the stages that are under way; between two stages there are none."""
        active = self.tracker.getActiveStageIds()
        self.known.update(active)
        infos = [info for stage in active if (info := self.tracker.getStageInfo(stage)) is not None]
        if not infos:
            return Seen(self.what)
        return Seen(
            f"{self.what}, stage {len(self.known)}",
            sum(info.numCompletedTasks for info in infos),
            sum(info.numTasks for info in infos),
        )
