"""The actions on a group's backlog: widening, its abort, parking, bringing back, expiry.

One at a time for each group and topic. All of it is in the journal or in the place where records
are parked, so a job that was stopped, or ended with the console, is begun again and goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from headrace.client.connection import ClientSettings
from headrace.console.jobs.owner import BACKLOG, Subject, ending
from headrace.services.backlog import parking, widening
from headrace.services.backlog.expiry import Expiry, ExpiryPlan
from headrace.services.backlog.parked import ParkedStore
from headrace.services.backlog.parking import Parking, ParkPlan, ParkStatus, needed_packages
from headrace.services.backlog.widening import Widening, WidenPlan, WidenStatus
from headrace.services.replay import journal
from headrace.services.replay.journal import CopyEntry
from headrace.services.replay.pace import Pace
from headrace.services.replay.topic_copy import CopyPlan


@dataclass(slots=True)
class Widen:
    connection: ClientSettings
    plan: WidenPlan
    by: str
    command: str
    status: WidenStatus | None = None

    @property
    def is_done(self) -> bool:
        return self.status is not None and self.status.step is widening.Step.HANDED_BACK

    def steps(self) -> Iterator[None]:
        with ending(Widening(self.connection).run(self.plan, by=self.by)) as found:
            for status in found:
                self.status = status
                yield


@dataclass(slots=True)
class AbortWidening:
    connection: ClientSettings
    plan: WidenPlan
    by: str
    command: str
    targets: dict[int, int] | None = None

    @property
    def is_done(self) -> bool:
        return self.targets is not None

    def steps(self) -> Iterator[None]:
        """Runs in one step: a half-done abort would be neither."""
        self.targets = Widening(self.connection).abort(self.plan, by=self.by)
        yield


@dataclass(slots=True)
class Park:
    connection: ClientSettings
    plan: ParkPlan
    to: str
    by: str
    reason: str
    command: str
    status: ParkStatus | None = None

    @property
    def is_done(self) -> bool:
        return self.status is not None and self.status.step is parking.Step.DONE

    def steps(self) -> Iterator[None]:
        found = Parking(self.connection).park(self.plan, self.to, by=self.by, reason=self.reason)
        with needed_packages(), ending(found):
            for status in found:
                self.status = status
                yield


@dataclass(slots=True)
class BringBack:
    connection: ClientSettings
    store: ParkedStore
    plan: CopyPlan
    group: str
    waiting: int  # records that are parked when it begins; conditions may mean fewer
    rate: int  # records per second
    command: str
    entry: CopyEntry | None = None

    @property
    def is_done(self) -> bool:
        return self.entry is not None and self.entry.state == journal.DONE

    def steps(self) -> Iterator[None]:
        with closing(self.store):
            parked = Parking(self.connection)
            found = parked.bring_back(self.store, self.plan, self.group, Pace(float(self.rate)))
            with ending(found):
                for entry in found:
                    self.entry = entry
                    yield


@dataclass(slots=True)
class Expire:
    connection: ClientSettings
    plan: ExpiryPlan
    by: str
    command: str
    entry: CopyEntry | None = None
    is_done: bool = False  # the group has committed behind the expired records

    def steps(self) -> Iterator[None]:
        with ending(Expiry(self.connection).expire(self.plan, by=self.by)) as found:
            for entry in found:
                self.entry = entry
                yield
        self.is_done = True


BacklogWork = Widen | AbortWidening | Park | BringBack | Expire


def subject_of(group: str, topic: str) -> Subject:
    return BACKLOG, group, topic
