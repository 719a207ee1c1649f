"""Looks at a group twice, and at the records that it would read next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

from headrace.app.names import retry_topic
from headrace.app.retries.carried_headers import carried_by
from headrace.client.admin.groups import Groups
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_pages import Bounds, Browser
from headrace.client.records import Record
from headrace.services.backlog.diagnosis import Finding, KeySample, Retrying, diagnosed
from headrace.services.backlog.lag import GroupLag, Look, PartitionLag, group_lag

# How many partitions' next records are looked at: those that are furthest behind.
MOST_SAMPLED = 5
SAMPLED_RECORDS = 500
BOUNDS = Bounds(records=SAMPLED_RECORDS, bytes=4 << 20, seconds=2.0)
# The ages of partitions are asked one by one, so only of so many.
MOST_AGED = 200


class Watching:
    def __init__(
        self,
        connection: ClientSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._wall_ms = wall_ms
        self._sleep = sleep

    def status(self, names: list[str], seconds: float) -> list[tuple[GroupLag, list[Finding]]]:
        """Returns the lag and the findings of these groups, all watched together for `seconds`."""
        before = {name: self._look(name) for name in names}
        self._sleep(seconds)
        found = []
        for name in names:
            lag = group_lag(name, before[name], self._look(name))
            samples = self._samples(lag)
            found.append((lag, diagnosed(lag, samples, self._retrying(lag))))
        return found

    def _retrying(self, lag: GroupLag) -> list[Retrying]:
        """Returns the failed records of an app's group that wait for a retry. Other groups have no
        such topic."""
        topics = Topics(self._connection)
        there = topics.cluster.topics
        names = {retry_topic(one.topic, lag.group): one.topic for one in lag.partitions}
        names = {name: topic for name, topic in names.items() if name in there}
        if not names:
            return []
        groups = Groups(self._connection)
        committed = groups.committed(lag.group)
        offsets = {p: committed.get(p) for name in names for p in groups.partitions_of(name)}
        unread = groups.unread(offsets)
        found = []
        for name, topic in names.items():
            waiting = {p: unread.after(p, committed.get(p)) or 0 for p in offsets if p[0] == name}
            starts = {p[1]: unread.first(p, committed.get(p)) for p, n in waiting.items() if n}
            if starts:
                attempts = self._attempts(name, starts)
                found.append(Retrying(topic, name, sum(waiting.values()), attempts))
        return found

    def _attempts(self, topic: str, starts: dict[int, int]) -> int:
        with closing(Browser(self._connection, topic)) as browser:
            page = browser.onwards(starts, want=1, bounds=BOUNDS)
        return carried_by(page.found[0].record.headers).made if page.found else 0

    def _look(self, name: str) -> Look:
        groups = Groups(self._connection)
        [described] = groups.describe([name])
        at_s = self._clock()
        places = {(one.topic, one.partition): one for one in described.progress}
        return Look(
            at_s,
            committed={p: one.committed for p, one in places.items() if one.committed is not None},
            ends={p: one.end_offset for p, one in places.items() if one.end_offset is not None},
            unread={p: one.unread for p, one in places.items() if one.unread is not None},
            state=described.state,
            members={member.id: list(member.assigned) for member in described.members},
        )

    def _samples(self, lag: GroupLag) -> list[KeySample]:
        """Keys of the next records where most of them wait; on the way the ages of all."""
        behind = sorted((one for one in lag.partitions if one.lag), key=lambda one: -one.lag)
        samples: list[KeySample] = []
        for topic in {one.topic for one in behind}:
            with closing(Browser(self._connection, topic)) as browser:
                for rank, one in enumerate(behind[:MOST_AGED]):
                    if one.topic == topic:
                        sample = self._next_records(browser, one, sampled=rank < MOST_SAMPLED)
                        if rank < MOST_SAMPLED:
                            samples.append(sample)
        return samples

    def _next_records(self, browser: Browser, one: PartitionLag, *, sampled: bool) -> KeySample:
        want = SAMPLED_RECORDS if sampled else 1
        page = browser.onwards(
            {one.partition: one.committed or 0},
            want=want,
            bounds=BOUNDS,
        )
        records = [seen.record for seen in page.found]
        if records and records[0].timestamp_ms is not None:
            one.behind_s = max(0.0, (self._wall_ms() - records[0].timestamp_ms) / 1000)
        mean_bytes = sum(map(_bytes, records)) // len(records) if records else 0
        return KeySample(one.place, Counter(record.key for record in records), mean_bytes)


def _bytes(record: Record) -> int:
    in_headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + in_headers
