"""One partition that the group has given to this instance, and what can be told of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.services.delay import queries
from headrace.services.delay.intake import Place
from headrace.services.delay.timeline import Timeline


@dataclass(slots=True)
class Owned:
    """One partition that the group has given us."""

    place: Place
    asked: bool = True  # what is committed is not known yet
    timeline: Timeline | None = None
    loads_far: bool = False
    ready_at: int = 0
    problem: str | None = None
    refused: dict[int, str] = field(default_factory=dict)  # offset and reason, until it is settled
    read_to_ms: int | None = None  # append time of the last record read; None at the log's end

    def due_until(self, now_ms: int) -> int:
        """What is due by then may be delivered.

        While there is more to read, nothing that is due after the last record read was appended:
        what is not read yet cannot be due earlier, so the order of due times holds however far the
        reading lags behind. Where the intake waits for a settlement, waiting for it would be for
        ever.
        """
        if self.read_to_ms is None or self.timeline is None or not self.timeline.wants_more():
            return now_ms
        return min(now_ms, self.read_to_ms)


def flows(owned: Owned) -> bool:
    return owned.problem is not None or (owned.timeline is not None and owned.timeline.ready)


def status_of(owned: Owned) -> queries.PartitionStatus:
    topic, partition = owned.place
    timeline = owned.timeline
    if owned.problem is not None:
        state = queries.WAITING
    elif timeline is not None and timeline.ready:
        state = queries.DELIVERING
    else:
        state = queries.REBUILDING
    position = timeline.position if timeline is not None else 0
    return queries.PartitionStatus(topic, partition, state, position, owned.ready_at, owned.problem)


def listed(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)) or "nothing"
