"""How far a run over history is: the tasks of Spark's stages under way, looked at aside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 0.5

# Gets how many tasks are done and how many there are; 0 of 0 when nothing is to be seen any more.
Draw = Callable[[int, int], None]


@contextmanager
def shown(spark: SparkSession, draw: Draw | None) -> Iterator[None]:
    if draw is None:
        yield
        return
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        while not ended.wait(LOOK_EVERY_S):
            done, whole = tasks(tracker)
            if whole:
                draw(done, whole)

    watcher = threading.Thread(target=look, name="headrace-bar", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        draw(0, 0)


def tasks(tracker: Any) -> tuple[int, int]:
    """Done and in all, of the stages that are under way."""
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)
