"""Look at a group twice, and at the records that it would read next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

from headrace.client.browsing import Bounds, Browser
from headrace.client.connection import Connection
from headrace.client.groups import Groups
from headrace.services.backlog.diagnosis import Finding, KeySample, diagnosed
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
        connection: Connection,
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
        """Of these groups, watched for so long together."""
        before = {name: self._look(name) for name in names}
        self._sleep(seconds)
        found = []
        for name in names:
            lag = group_lag(name, before[name], self._look(name))
            samples = self._samples(lag)
            found.append((lag, diagnosed(lag, samples)))
        return found

    def _look(self, name: str) -> Look:
        groups = Groups(self._connection)
        [described] = groups.describe([name])
        at_s = self._clock()
        places = {(one.topic, one.partition): one for one in described.progress}
        return Look(
            at_s,
            committed={p: one.committed for p, one in places.items() if one.committed is not None},
            ends={p: one.end_offset for p, one in places.items() if one.end_offset is not None},
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
                        keys = self._next_records(browser, one, sampled=rank < MOST_SAMPLED)
                        if rank < MOST_SAMPLED:
                            samples.append(KeySample(one.place, keys))
        return samples

    def _next_records(
        self, browser: Browser, one: PartitionLag, *, sampled: bool
    ) -> Counter[bytes | None]:
        want = SAMPLED_RECORDS if sampled else 1
        page = browser.onwards(
            {one.partition: one.committed or 0},
            want=want,
            accepts=lambda seen: seen.is_data,
            bounds=BOUNDS,
        )
        records = [seen.record for seen in page.found]
        if records and records[0].timestamp_ms is not None:
            one.behind_s = max(0.0, (self._wall_ms() - records[0].timestamp_ms) / 1000)
        return Counter(record.key for record in records)
