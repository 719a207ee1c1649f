"""A partition that the group has assigned to this instance: its start and its state."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic

from headrace.services.delay import queries
from headrace.services.delay.intake import Place
from headrace.services.delay.partitions.inquiry import Answer
from headrace.services.delay.timeline.limits import DelayLimits
from headrace.services.delay.timeline.progress import IntakeProgress, from_commit
from headrace.services.delay.timeline.store import Store
from headrace.services.delay.timeline.timeline import Timeline, resume
from headrace.services.delay.topics import Catalog

log = logging.getLogger("headrace.delay")

# A reader that has read a record appended so lately has read all records appended before it.
FRESH_MS = 50
# How long to wait for a record that the log is reported to have, without any sign of it.
PATIENCE_S = 10.0


@dataclass(slots=True)
class Owned:
    """One partition that the group has given us."""

    place: Place
    asked: bool = True  # what is committed is not known yet
    since_s: float = field(default_factory=monotonic)
    topic_id: str = ""  # of the companion; empty as long as it is not known
    timeline: Timeline | None = None
    loads_far: bool = False
    ready_at: int = 0
    problem: str | None = None
    refused: dict[int, str] = field(default_factory=dict)  # offset and reason, until committed
    read_to_ms: int = 0  # append time of the last record read
    end: int = 0  # the reported end: the log has records up to here
    told_s: float = 0.0  # when it was reported
    read_s: float = 0.0  # when something of it was read

    def hear_of_end(self, end: int) -> None:
        if end > self.end:
            self.end, self.told_s = end, monotonic()

    def may_lag(self, now_ms: int) -> bool:
        """Returns whether there may be records that we do not know of, because our information is
        old."""
        timeline = self.timeline
        if timeline is None or timeline.position < self.end:
            return False  # nothing to know, or known already
        return now_ms - self.read_to_ms > FRESH_MS

    def due_until(self, now_ms: int) -> int:
        """Messages due by then may be delivered.

        While there is more to read, nothing that is due after the last record read was appended:
        what is not read yet cannot be due earlier, so the order of due times holds however far the
        reading lags behind. A record that is held back until the clock has reached it keeps the
        intake from being read: waiting for more would be for ever.
        """
        timeline = self.timeline
        if timeline is None or timeline.waits_for_the_clock or timeline.position >= self.end:
            return now_ms
        if monotonic() - max(self.told_s, self.read_s) > PATIENCE_S:
            # An expected record does not come: better to deliver out of order than never.
            return now_ms
        return min(now_ms, self.read_to_ms)

    def is_outlived(self, catalog: Catalog) -> bool:
        """Returns whether its topic was deleted, and another one of the same name exists."""
        pair = catalog.pairs.get(self.place[0])
        if pair is None or not self.topic_id:
            return False
        return pair.companion_id not in ("", self.topic_id)

    def begin(self, answer: Answer, store: Store, limits: DelayLimits, group: str) -> int | None:
        """Returns where to read on; None: nowhere, because of a problem or before the far topic is
        read."""
        topic, partition = self.place
        self.asked = False
        if self.topic_id != answer.topic_id:
            self.refused.clear()  # those were offsets of another topic
        self.topic_id = answer.topic_id
        progress = self._progress(answer, group)
        if progress is None:
            return None
        identity = f"{answer.topic_id} {limits.far_after_ms}"  # topic ids are unique
        pending = store.partition(topic, partition, identity)
        resumed = resume(pending, progress, answer.log_start)
        self.ready_at = answer.log_end
        self.timeline = Timeline(
            topic,
            partition,
            progress,
            pending,
            read_from=resumed.read_from,
            ready_at=answer.log_end,
            limits=limits,
            topic_id=answer.topic_id,
            refused=self.refused,
        )
        self.loads_far = resumed.far
        if resumed.gone:
            log.error(
                "%s-%d: %d records were deleted before they were delivered or moved; has the "
                "topic retention.ms=-1 and retention.bytes=-1?",
                *(topic, partition, resumed.gone),
            )
        log.info(
            "%s-%d: committed to %d, read from %d to %d%s",
            *(topic, partition, progress.position, resumed.read_from, answer.log_end),
            ", with the far topic" if resumed.far else "",
        )
        return None if resumed.far else resumed.read_from

    def _progress(self, answer: Answer, group: str) -> IntakeProgress | None:
        """The committed offset for the topic as it is now; None: unknown."""
        if answer.offset is None:
            return IntakeProgress()
        try:
            commit = from_commit(answer.offset, answer.metadata)
        except ValueError as fault:
            self.problem = (
                f"the group {group} has a commit that the delay service did not make: {fault}"
            )
            log.error("%s-%d: %s", *self.place, self.problem)
            return None
        progress = commit.progress_of(answer.topic_id)
        if progress is commit.progress and answer.offset <= answer.log_end:
            return progress
        log.error(
            "%s-%d: committed to %d by a commit for a topic that was deleted and created again; it "
            "ends at %d: starting over",
            *(*self.place, answer.offset, answer.log_end),
        )
        return IntakeProgress()


def flows(owned: Owned) -> bool:
    """Whether it delivers, as far as it can."""
    timeline = owned.timeline
    if owned.problem is not None:
        return True
    return timeline is not None and (timeline.ready or timeline.held_until_ms is not None)


def status_of(owned: Owned) -> queries.PartitionStatus:
    topic, partition = owned.place
    timeline, problem = owned.timeline, owned.problem
    held_until_ms = timeline.held_until_ms if timeline is not None else None
    if problem is None and held_until_ms is not None:
        problem = (
            "the clock was set back behind what is delivered: it goes on when the clock says "
            f"{datetime.fromtimestamp(held_until_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
        )
    if problem is not None:
        state = queries.WAITING
    elif timeline is not None and timeline.ready:
        state = queries.DELIVERING
    else:
        state = queries.REBUILDING
    position = timeline.position if timeline is not None else 0
    return queries.PartitionStatus(topic, partition, state, position, owned.ready_at, problem)


def listed(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)) or "nothing"
