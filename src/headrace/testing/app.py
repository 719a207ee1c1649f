"""An app in a test: on a real broker in the test's process, with a clock that the test moves.

`with TestApp(app) as running: ...` starts a broker, creates the app's topics on it, runs the app
there and restores everything at the end. Nothing is imitated: records go through topics, retries
through the delay service. `advance` moves time from one due moment to the next, so eight attempts
over ten minutes are made one after the other, within a second or two; nothing sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import timedelta
from types import TracebackType
from typing import Any

from headrace.app.app import App
from headrace.app.names import dead_topic, retry_topic
from headrace.app.worker.quiet import is_quiet, next_due_ms, streams
from headrace.app.worker.worker import Worker
from headrace.client.admin.requests import Requests
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings, Setting, connected, program_settings
from headrace.client.intake import Intake, RawRecord
from headrace.client.lookup.record_reader import RecordReader
from headrace.client.records import Record, Sent, TopicPartition
from headrace.testing.broker import Broker
from headrace.wire.contract.delay_topics import companion_of
from headrace.wire.contract.headers import DELIVER_AT, SOURCE

WITHIN_S = 30.0
LOOK_EVERY_S = 0.002
# The end of a partition is known when a fetch returns nothing: soon.
FETCH_WAIT_MS = 5
READS_ALONG: dict[str, Setting] = {
    "group.id": "headrace-testing",  # librdkafka wants one; no member joins it
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": FETCH_WAIT_MS,
}


class TestApp:
    """`partitions` is for the topics that it creates: those of the app's handlers, and `topics`."""

    __test__ = False  # pytest collects classes with such names

    def __init__(
        self,
        app: App,
        *,
        partitions: int = 1,
        topics: Iterable[str] = (),
        broker: Broker | None = None,
        settings: dict[str, Setting] | None = None,
    ) -> None:
        self.app = app
        self._partitions = partitions
        self._topics = list(topics)
        self._given_broker = broker
        self._settings = settings
        self._before = (app.connection, app.clock, app.fetch_wait_ms)

    # ---- beginning and end

    def __enter__(self) -> TestApp:
        app = self.app
        waits = any(s.needs_delay_service for s in app.subscriptions) and app.delay != "off"
        self.broker = (
            self._given_broker
            or Broker(delay=waits, settings={"group.initial.rebalance.delay.ms": 0}).start()
        )
        app.connection = connected(self.broker.bootstrap, self._settings)
        app.clock = self.broker.clock.wall_ms
        app.fetch_wait_ms = FETCH_WAIT_MS
        self._make_topics()
        app.start()
        self.worker.impatient = True
        self._requests = Requests(app.connection)
        self._delayed = _Delayed(app.connection, self._companions())
        self.until(self.worker.started.is_set)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._delayed.close()
            self.app.stop()
        finally:
            self.app.connection, self.app.clock, self.app.fetch_wait_ms = self._before
            if self._given_broker is None:
                self.broker.stop()

    def _make_topics(self) -> None:
        topics = Topics(self.app.connection)
        handled = [t for s in self.app.subscriptions for t in s.topics if not t.startswith("^")]
        published = [s.publish for s in self.app.subscriptions if s.publish]
        for name in dict.fromkeys([*handled, *published, *self._topics]):
            if name not in topics.cluster.topics:
                topics.create(name, partitions=self._partitions)

    def _companions(self) -> list[str]:
        return [
            companion_of(retry_topic(topic, self.app.group))
            for subscription in self.app.subscriptions
            if subscription.needs_delay_service and self.app.delay != "off"
            for topic in subscription.topics
            if not topic.startswith("^")
        ]

    @property
    def worker(self) -> Worker:
        worker = self.app.worker
        if worker is None:
            raise RuntimeError("The app is not running: use `with TestApp(app) as running`.")
        if worker.failure is not None:
            raise RuntimeError("The app failed.") from worker.failure
        return worker

    # ---- for tests

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: bytes | str | None = None,
        headers: dict[str, bytes | str | None] | None = None,
        partition: int | None = None,
        **when: Any,
    ) -> Sent:
        """Send a record and wait until the broker has it."""
        return self.app.send(
            topic, value, key=key, headers=headers, partition=partition, **when
        ).result(WITHIN_S)

    def until_idle(self, within_s: float = WITHIN_S) -> None:
        """Wait until all sent records are handled, parked, or waiting for a later time."""
        self.until(self._is_idle, within_s)

    settle = until_idle  # the older name, which tests of users call

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Let time pass; everything that becomes due on the way happens at its moment."""
        by = timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        end_ms = self.app.clock() + by // timedelta(milliseconds=1)
        self.until_idle()
        while True:
            due_ms = self._next_due_ms()
            now_ms = self.app.clock()
            to_ms = end_ms if due_ms is None else min(due_ms, end_ms)
            if to_ms > now_ms:
                self.broker.move_clock(timedelta(milliseconds=to_ms - now_ms))
            self.until_idle()
            if to_ms >= end_ms:
                return

    def until(self, true: Callable[[], object], within_s: float = WITHIN_S) -> None:
        """Wait for a condition; an AssertionError if it does not come true."""
        deadline = time.monotonic() + within_s
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"{getattr(true, '__name__', true)} did not come true.")
            time.sleep(LOOK_EVERY_S)

    def records(self, topic: str) -> list[Record[bytes, bytes]]:
        """All records of a topic, in the order of their partitions."""
        with closing(RecordReader(self.app.connection, topic)) as reader:
            return sorted(reader.records(), key=lambda record: (record.partition, record.offset))

    def dead_letters(self, topic: str) -> list[Record[bytes, bytes]]:
        """The parked records of a topic."""
        return self.records(dead_topic(topic, self.app.group))

    # ---- inside

    def _is_idle(self) -> bool:
        worker = self.worker
        self.app.sender.producer.flush(WITHIN_S)
        before = [subscription.stats.received for subscription in self.app.subscriptions]
        if not is_quiet(worker, {}) or not self._delayed.all_delivered(self.app.clock()):
            return False
        places = [*(stream.place for stream in streams(worker)), *self._delayed.sources]
        ends = self._requests.end_offsets(places, WITHIN_S)
        if not self._delayed.has_read(ends):
            return False
        received = [subscription.stats.received for subscription in self.app.subscriptions]
        return is_quiet(worker, ends) and received == before

    def _next_due_ms(self) -> int | None:
        found = [next_due_ms(self.worker), self._delayed.next_due_ms()]
        return min((due for due in found if due is not None), default=None)


class _Delayed:
    """The records in the companions of retry topics that have not come back."""

    def __init__(self, connection: ClientSettings, companions: list[str]) -> None:
        self._waiting: dict[str, int] = {}  # topic/partition/offset -> due
        self._delivered: set[str] = set()
        self._read_to: dict[TopicPartition, int] = {}
        self._intake: Intake | None = None
        self.sources: list[TopicPartition] = []
        if companions:
            self._intake = Intake(program_settings(connection, READS_ALONG))
            self.sources = self._partitions_of(companions)
            targets = self._partitions_of([name.removesuffix(".delay") for name in companions])
            self._intake.assign(dict.fromkeys([*self.sources, *targets], 0))

    def _partitions_of(self, topics: list[str]) -> list[TopicPartition]:
        intake = self._intake
        assert intake is not None
        return [
            TopicPartition(name, partition)
            for name in topics
            for partition in intake.partitions_of(name, WITHIN_S)
        ]

    def _look(self) -> None:
        while self._intake is not None and (arrived := self._intake.read(0, 500)):
            for place, records in arrived.stretches:
                for record in records:
                    offset = record.offset() or 0
                    self._read_to[place] = offset + 1
                    self._note(f"{place.topic}/{place.partition}/{offset}", record)
            self._read_to.update(arrived.ends)
        for known in self._delivered & self._waiting.keys():
            del self._waiting[known]

    def _note(self, record_id: str, record: RawRecord) -> None:
        given: Any = record.headers() or ()
        headers = dict(given)
        if DELIVER_AT in headers:
            self._waiting[record_id] = int(headers[DELIVER_AT])
        elif SOURCE in headers:
            self._delivered.add(headers[SOURCE].decode())

    def has_read(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether all records that were sent to companions are known here."""
        return all(self._read_to.get(place, 0) >= ends[place] for place in self.sources)

    def all_delivered(self, now_ms: int) -> bool:
        self._look()
        return all(due > now_ms for due in self._waiting.values())

    def next_due_ms(self) -> int | None:
        self._look()
        return min(self._waiting.values(), default=None)

    def close(self) -> None:
        if self._intake is not None:
            self._intake.close()
