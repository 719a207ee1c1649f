"""Questions about what is parked of a group's backlog, in the one place that the console was
started with (`--park-to`). A browser never names a file or a host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.services.backlog.parked import Owner, ParkedSpan, ParkedStore, ParkingRun
from headrace.services.backlog.parking import Parking, needed_packages, store_at
from headrace.services.replay.retried import require_retry_topic
from headrace.services.replay.selection import Selection
from headrace.services.replay.topic_copy import CopyPlan

MOST_PARKINGS = 20
# Each is a question to the place.
MOST_TOPICS = 20


@dataclass(slots=True)
class ParkedRun:
    topic: str
    run: ParkingRun

    @property
    def offsets(self) -> int:
        return sum(end - first for first, end in self.run.spans.values())


@dataclass(slots=True)
class ParkedList:
    runs: list[ParkedRun]  # the newest first
    unseen: int  # topics that were not looked for


@dataclass(slots=True)
class ReturnPlan:
    """The plan of bringing back."""

    topic: str
    group: str
    spans: list[ParkedSpan] = field(default_factory=list)
    given_up: int = 0  # parkings that do not count

    @property
    def waiting(self) -> int:
        return sum(each.waiting for each in self.spans)


def list_parked(
    connection: ClientSettings, group: str, topics: Sequence[str], address: str, notes_moves: bool
) -> ParkedList:
    """Returns the newest parkings for a group, of the first of these topics."""
    there = Topics(connection).cluster.topics
    named = [topic for topic in topics[:MOST_TOPICS] if topic in there]
    ids = Topics(connection).ids(named) if named else {}
    found = []
    for topic in named:
        with _opened(address, Owner(group, topic, ids[topic])) as store:
            runs = Parking(connection).parked(store, topic, group, notes_moves=notes_moves)
            found += [ParkedRun(topic, run) for run in runs]
    found.sort(key=lambda each: -each.run.at_ms)
    return ParkedList(found[:MOST_PARKINGS], max(0, len(topics) - MOST_TOPICS))


def plan_return(
    connection: ClientSettings,
    group: str,
    topic: str,
    wanted: Selection,
    address: str,
    notes_moves: bool,
) -> ReturnPlan:
    wanted.check()
    topics = Topics(connection)
    require_retry_topic(topic, group, {each.name: each.partitions for each in topics.all()})
    with _opened(address, Owner(group, topic, topics.ids([topic])[topic])) as store:
        runs = Parking(connection).parked(store, topic, group, notes_moves=notes_moves)
        spans = store.spans() if runs else []
    return ReturnPlan(topic, group, spans, sum(not run.moved for run in runs))


def begin_return(
    connection: ClientSettings, group: str, topic: str, wanted: Selection, address: str, by: str
) -> tuple[ParkedStore, CopyPlan, int]:
    """Returns the opened return, for a job that closes it, and how many records wait."""
    with needed_packages():
        store, plan = Parking(connection).bring_back_plan(topic, group, address, wanted, by=by)
    return store, plan, sum(each.waiting for each in store.spans())


@contextmanager
def _opened(address: str, owner: Owner) -> Iterator[ParkedStore]:
    with needed_packages():
        store = store_at(address, owner)
    with closing(store):
        yield store
