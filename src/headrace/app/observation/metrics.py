"""An app's metrics for Prometheus, read from plain counters at each scrape.

Nothing is counted twice, and an app without scrapes has no cost. For alarms: growth of
`parked_total` means that something cannot be handled, and `dead_letter_oldest_timestamp_seconds` is
the time of the oldest dead letter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from headrace.app.names import dead_topic
from headrace.client.admin.topics import Topics
from headrace.client.errors import ClientError
from headrace.client.lookup.record_reader import RecordReader
from headrace.prometheus_text import Family

if TYPE_CHECKING:
    from headrace.app.app import App
    from headrace.app.subscription import Subscription

log = logging.getLogger("headrace.app")

# name without prefix and suffix, what it counts: fields of `Stats`
COUNTERS = {
    "received": "Records read, also from retry topics.",
    "handled": "Records whose handler succeeded.",
    "failed": "Attempts that failed.",
    "put_off": "Attempts to be made later because something is away (TryLater), not counted.",
    "retried": "Attempts to be made again.",
    "parked": "Records put into the dead letters.",
    "duplicates": "Records that once= knew already.",
    "published": "Records written on behalf of handlers.",
}
GAUGES = {
    "in_flight": "Attempts under way.",
}
# Reading the dead letters costs requests; alarms do not need it more often.
LOOK_AT_LETTERS_EVERY_S = 30.0


class AppMetrics:
    """One per app: it caches what it has read from the dead letters for a while."""

    def __init__(self, app: App, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._monotonic = monotonic
        self._letters: dict[str, tuple[int, float | None]] = {}
        self._looked_at = float("-inf")

    def families(self) -> Iterator[Family]:
        stats = [(self._labels(each), each.stats) for each in self._app.subscriptions]
        for kind, suffix, named in (("counter", "_total", COUNTERS), ("gauge", "", GAUGES)):
            for name, explanation in named.items():
                samples = [(labels, getattr(counted, name)) for labels, counted in stats]
                yield Family(f"headrace_app_{name}{suffix}", kind, explanation, samples)
        yield from self._of_the_worker()
        yield Family(
            "headrace_app_busy_seconds_total",
            "counter",
            "Time spent in handlers, added up.",
            [(labels, counted.busy_seconds) for labels, counted in stats],
        )
        yield from self._dead_letters()

    def _labels(self, subscription: Subscription) -> dict[str, str]:
        return {"group": self._app.group, "handler": subscription.name}

    def _of_the_worker(self) -> Iterator[Family]:
        """The metrics that exist only while the app runs."""
        worker = self._app.worker
        runners = worker.runners if worker is not None else []
        yield Family(
            "headrace_app_waiting",
            "gauge",
            "Records read and not begun.",
            [(self._labels(each.subscription), each.waiting) for each in runners],
        )
        yield Family(
            "headrace_app_put_off_waiting",
            "gauge",
            "Records that wait for a system that their handler needs.",
            [(self._labels(each.subscription), each.put_off_now()) for each in runners],
        )

    def _dead_letters(self) -> Iterator[Family]:
        if self._monotonic() - self._looked_at >= LOOK_AT_LETTERS_EVERY_S:
            self._looked_at = self._monotonic()
            self._letters = letters_of(self._app)
        found = [({"topic": topic}, *letters) for topic, letters in self._letters.items()]
        yield Family(
            "headrace_app_dead_letters",
            "gauge",
            "Letters in the topic, settled or not.",
            [(labels, number) for labels, number, _ in found],
        )
        yield Family(
            "headrace_app_dead_letter_oldest_timestamp_seconds",
            "gauge",
            "When the oldest letter of the topic was parked.",
            [(labels, parked_at_s) for labels, _, parked_at_s in found if parked_at_s is not None],
        )


def letters_of(app: App) -> dict[str, tuple[int, float | None]]:
    """How many letters each existing dead-letter topic of the app has, and the time of the
    oldest."""
    try:
        topics = Topics(app.connection)
        there = {each.name for each in topics.all()}
        wanted = {
            dead_topic(topic, app.group)
            for subscription in app.subscriptions
            if subscription.dead_letters
            for topic in there
            if subscription.matches(topic)
        }
        found = {}
        for topic in topics.describe(sorted(wanted & there)):
            count = 0
            oldest: list[float] = []
            for partition in topic.partitions:
                length = (partition.end_offset or 0) - (partition.start_offset or 0)
                count += length
                if length:
                    oldest += _first_time_s(app, topic.name, partition.partition)
            found[topic.name] = (count, min(oldest, default=None))
        return found
    except ClientError as away:  # the other metrics are still useful
        log.warning("cannot count the dead letters: %s", away)
        return {}


def _first_time_s(app: App, topic: str, partition: int) -> list[float]:
    with closing(RecordReader(app.connection, topic, partitions=[partition])) as reader:
        for record in reader.records():
            return [] if record.timestamp_ms is None else [record.timestamp_ms / 1000]
    return []
