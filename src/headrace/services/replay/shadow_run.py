"""Runs an app as a shadow over old records, then compares what both have published.

The range begins at the given point and ends at the log end offsets of the topics when the run
begins. A shadow that was stopped continues from its own committed offsets. The app itself is not
touched: its offsets, its topics and its once-keys stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from headrace.app.app import App
from headrace.app.names import retry_topic
from headrace.app.retries.topics import AppTopics
from headrace.app.shadow import Shadow
from headrace.app.worker.quiet import is_quiet, next_due_ms
from headrace.app.worker.worker import Worker
from headrace.client.admin.groups import Groups, Move, Place
from headrace.client.admin.topics import Topics
from headrace.client.errors import ClientError
from headrace.client.lookup.record_reader import BEGINNING, AtTime, RecordReader, Start
from headrace.client.records import Record, TopicPartition
from headrace.services.replay.comparison import Comparison, compared, results_of

LOOK_EVERY_S = 0.2
# Between the end of the last record and its commit nothing is under way: it must stay so.
QUIET_LOOKS = 3


@dataclass(slots=True)
class ShadowSpan:
    """The range that the shadow reads."""

    starts: dict[Place, int]
    ends: dict[Place, int]
    goes_on: bool  # it was stopped before, and starts from its own offsets

    @property
    def records(self) -> int:
        return sum(max(0, end - self.starts[place]) for place, end in self.ends.items())


@dataclass(slots=True)
class ShadowOutcome:
    handled: int
    failed: int  # attempts
    dead: int  # in the shadow's dead letters
    comparisons: list[Comparison] = field(default_factory=list)


class ShadowRun:
    """`app` has been made a shadow by `cast_shadow`."""

    def __init__(self, app: App, *, sleep: Callable[[float], None] = time.sleep) -> None:
        assert app.shadow is not None
        self._app = app
        self.shadow: Shadow = app.shadow
        self._sleep = sleep

    def plan(self, since_ms: int | None, from_offset: int | None) -> ShadowSpan:
        groups = Groups(self._app.connection)
        topics = AppTopics(self._app.connection, group=self._app.group, dead_letters_keep_ms=1)
        sources = topics.sources(self._app.subscriptions)
        places = [place for topic in sources for place in groups.partitions_of(topic)]
        firsts, ends = groups.beginnings(places), groups.ends(places)
        by_time = firsts if since_ms is None else groups.at_time(places, since_ms)
        starts = {
            place: min(ends[place], max(by_time[place], firsts[place], from_offset or 0))
            for place in places
        }
        own = groups.committed(self._app.group) if groups.is_there(self._app.group) else {}
        return ShadowSpan(starts | {p: o for p, o in own.items() if p in starts}, ends, bool(own))

    def run(self, span: ShadowSpan) -> Iterator[int]:
        """Yields how many offsets are left, until the shadow has done everything."""
        groups = Groups(self._app.connection)
        groups.move(
            self._app.group,
            [Move(*place, None, offset, offset) for place, offset in span.starts.items()],
        )
        worker = self._app.begin(None)
        try:
            yield from self._until_done(worker, span)
        finally:
            self._app.stop()
        if worker.failure is not None:
            raise worker.failure

    def _until_done(self, worker: Worker, span: ShadowSpan) -> Iterator[int]:
        ends = {TopicPartition(*place): end for place, end in span.ends.items()}
        quiet = 0
        while quiet < QUIET_LOOKS:
            if worker.wait(0):
                raise worker.failure or ClientError("The shadow's worker has stopped.")
            owned = {(one.topic, one.partition) for one in list(worker.intake.owned.values())}
            if owned >= span.ends.keys() and next_due_ms(worker) is None:
                quiet = quiet + 1 if is_quiet(worker, ends | self._retry_ends(span)) else 0
            else:
                quiet = 0
            yield self._left(worker, span)
            self._sleep(LOOK_EVERY_S)

    def _left(self, worker: Worker, span: ShadowSpan) -> int:
        read = {
            stream.place: stream.read_to
            for owned in list(worker.intake.owned.values())
            for stream in owned.streams
        }
        return sum(
            max(0, end - max(span.starts[place], read.get(TopicPartition(*place), 0)))
            for place, end in span.ends.items()
        )

    def _retry_ends(self, span: ShadowSpan) -> dict[TopicPartition, int]:
        names = [retry_topic(topic, self._app.group) for topic in {t for t, _ in span.ends}]
        spans = Topics(self._app.connection).spans(names)
        return {
            TopicPartition(topic, partition): end
            for topic, found in spans.items()
            for partition, (_, end) in found.items()
        }

    # ---- what came of it

    def outcome(self, span: ShadowSpan, since_ms: int | None) -> ShadowOutcome:
        stats = [each.stats for each in self._app.subscriptions]
        outcome = ShadowOutcome(
            handled=sum(each.handled for each in stats),
            failed=sum(each.failed for each in stats),
            dead=sum(each.parked for each in stats),
        )
        start: Start = BEGINNING if since_ms is None else AtTime(since_ms)
        for of, name in sorted(self._published().items()):
            now, without = results_of(self._records(name, BEGINNING), self._app.group)
            before, _ = results_of(self._records(of, start), self.shadow.of_group)
            replayed = [name for name in before if _is_within(name.rpartition("~")[0], span)]
            result = compared(
                of, before, now, replayed=[name.rpartition("~")[0] for name in replayed]
            )
            result.without_id = without
            outcome.comparisons.append(result)
        return outcome

    def _published(self) -> dict[str, str]:
        """Returns the results, also those of an earlier run of the same shadow, or of a handler
        that returned nothing."""
        there = Topics(self._app.connection).cluster.topics
        suffix = f".shadow-{self.shadow.name}"
        found = {
            name.removesuffix(suffix): name
            for name in there
            if name.endswith(suffix) and name.removesuffix(suffix) in there
        }
        named = {each.publish for each in self._app.subscriptions if each.publish is not None}
        return {of: name for of, name in found.items() if of in named or of in self.shadow.topics}

    def _records(self, topic: str, start: Start) -> Iterator[Record]:
        with closing(RecordReader(self._app.connection, topic, start=start)) as reader:
            yield from reader.records()


def _is_within(source: str, span: ShadowSpan) -> bool:
    """Whether the record of this id was replayed; ids that senders chose tell no place."""
    topic, _, rest = source.partition("@")[0].rpartition("/")[0].rpartition("/")
    offset = source.partition("@")[0].rpartition("/")[2]
    if not rest.isdecimal() or not offset.isdecimal():
        return False
    place = (topic, int(rest))
    return place in span.ends and span.starts[place] <= int(offset) < span.ends[place]
