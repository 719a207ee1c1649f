"""Whether a worker has nothing to do until the clock moves or a record comes: for tests.

Asked from another thread while the worker runs, so an answer is about a moment that has passed; who
asks twice with the same answer, and no record in between, may believe it.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.app.job import Stream
from headrace.app.worker import Worker
from headrace.client.records import TopicPartition


def streams(worker: Worker) -> list[Stream]:
    """All that it reads now: source partitions and their retry partitions."""
    return [stream for owned in list(worker.intake.owned.values()) for stream in owned.streams]


def is_quiet(worker: Worker, ends: Mapping[TopicPartition, int]) -> bool:
    """Everything up to these ends is read, and either done or waiting for a time to come."""
    now_ms = worker.app.clock()
    due_ms = next_due_ms(worker)
    if due_ms is not None and due_ms <= now_ms:
        return False
    # First: from there records go into the lanes.
    if any(owned.arriving for owned in list(worker.intake.owned.values())):
        return False
    for work in worker.works:
        with work.lock:
            if work.stats.in_flight or work.lanes.ready:
                return False
    for owned in list(worker.intake.owned.values()):
        if owned.moves or owned.moving or owned.loading_to is not None:
            return False
        if any(stream.read_to < ends.get(stream.place, 0) for stream in owned.streams):
            return False
    return True


def next_due_ms(worker: Worker) -> int | None:
    """When something that waits here is due; what waits in the delay service is not known here."""
    found = [worker.next_timer_ms()]
    for owned in list(worker.intake.owned.values()):
        with owned.work.lock:
            found.append(owned.blocked.next_due_ms())
    return min((due for due in found if due is not None), default=None)
