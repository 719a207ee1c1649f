"""An app's metrics for Prometheus, read from plain counters at each scrape.

Nothing is counted twice, and an app without scrapes has no cost. For alarms: `parked_total` growing
means that something cannot be handled, and `dead_letter_oldest_timestamp_seconds` says how long the
oldest letter has been lying there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace.app.names import dead_topic
from headrace.client.admin.topics import Topics
from headrace.client.errors import ClientError
from headrace.client.lookup.record_reader import RecordReader

if TYPE_CHECKING:
    from headrace.app.app import App

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
# Looking at the dead letters costs requests; alarms do not need it more often.
LOOK_AT_LETTERS_EVERY_S = 30.0


class AppCollector(Collector):
    """The method that `prometheus_client` calls; register it, or use `rendered`."""

    def __init__(self, app: App, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._monotonic = monotonic
        self._letters: dict[str, tuple[int, float | None]] = {}
        self._looked_at = float("-inf")

    def describe(self) -> Iterator[Metric]:
        """Without it the registry collects once to learn the names, before the app runs."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        labels = ["group", "handler"]
        stats = [
            ([self._app.group, subscription.name], subscription.stats)
            for subscription in self._app.subscriptions
        ]
        for name, explanation in COUNTERS.items():
            counter = CounterMetricFamily(f"headrace_app_{name}", explanation, labels=labels)
            for values, counted in stats:
                counter.add_metric(values, getattr(counted, name))
            yield counter
        for name, explanation in GAUGES.items():
            gauge = GaugeMetricFamily(f"headrace_app_{name}", explanation, labels=labels)
            for values, counted in stats:
                gauge.add_metric(values, getattr(counted, name))
            yield gauge
        yield from self._of_the_worker()
        busy = CounterMetricFamily(
            "headrace_app_busy_seconds", "Time spent in handlers, added up.", labels=labels
        )
        for values, counted in stats:
            busy.add_metric(values, counted.busy_seconds)
        yield busy
        yield from self._dead_letters()

    def _of_the_worker(self) -> Iterator[Metric]:
        """The metrics that exist only while it runs."""
        worker = self._app.worker
        labels = ["group", "handler"]
        waiting = GaugeMetricFamily(
            "headrace_app_waiting", "Records read and not begun.", labels=labels
        )
        put_off = GaugeMetricFamily(
            "headrace_app_put_off_waiting",
            "Records that wait for a system that their handler needs.",
            labels=labels,
        )
        for runner in worker.runners if worker is not None else ():
            values = [self._app.group, runner.subscription.name]
            waiting.add_metric(values, runner.waiting)
            put_off.add_metric(values, runner.put_off_now())
        yield waiting
        yield put_off

    def _dead_letters(self) -> Iterator[Metric]:
        if self._monotonic() - self._looked_at >= LOOK_AT_LETTERS_EVERY_S:
            self._looked_at = self._monotonic()
            self._letters = letters_of(self._app)
        count = GaugeMetricFamily(
            "headrace_app_dead_letters", "Letters in the topic, settled or not.", labels=["topic"]
        )
        oldest = GaugeMetricFamily(
            "headrace_app_dead_letter_oldest_timestamp_seconds",
            "When the oldest letter of the topic was parked.",
            labels=["topic"],
        )
        for topic, (number, parked_at_s) in self._letters.items():
            count.add_metric([topic], number)
            if parked_at_s is not None:
                oldest.add_metric([topic], parked_at_s)
        yield count
        yield oldest


def letters_of(app: App) -> dict[str, tuple[int, float | None]]:
    """How many letters lie in each dead-letter topic of the app, and since when; what is there."""
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
    except ClientError as away:  # other numbers are still worth having
        log.warning("cannot count the dead letters: %s", away)
        return {}


def _first_time_s(app: App, topic: str, partition: int) -> list[float]:
    with closing(RecordReader(app.connection, topic, partitions=[partition])) as reader:
        for record in reader.records():
            return [] if record.timestamp_ms is None else [record.timestamp_ms / 1000]
    return []


def registry_of(app: App) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AppCollector(app))
    return registry


def rendered(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)
