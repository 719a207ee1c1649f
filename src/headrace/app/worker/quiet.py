"""Whether a worker has nothing to do until the clock moves or a record arrives: for tests.

Called from another thread while the worker runs, so an answer is about the past; two equal answers,
with no record in between, can be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.app.dispatch.owned_partition import Stream
from headrace.app.worker.worker import Worker
from headrace.client.records import TopicPartition


def streams(worker: Worker) -> list[Stream]:
    """All partitions that it reads now: sources and their retry partitions."""
    return [stream for owned in list(worker.intake.owned.values()) for stream in owned.streams]


def is_quiet(worker: Worker, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether everything up to these ends is read, and is either done or waits for a later time."""
    now_ms = worker.app.clock()
    due_ms = next_due_ms(worker)
    if due_ms is not None and due_ms <= now_ms:
        return False
    # These first: their records go into the lanes.
    if any(owned.arriving for owned in list(worker.intake.owned.values())):
        return False
    if not all(runner.is_idle() for runner in worker.runners):
        return False
    for owned in list(worker.intake.owned.values()):
        if owned.moves or owned.moving or owned.loading_to is not None:
            return False
        if any(stream.read_to < ends.get(stream.place, 0) for stream in owned.streams):
            return False
    return True


def next_due_ms(worker: Worker) -> int | None:
    """When something that waits here is due; messages in the delay service are not known here."""
    return worker.next_wake_ms()
