"""What a delay service must never do, checked from outside: by what was sent and what arrived.

A `Ledger` sends delayed records and keeps what the broker acknowledged. A `Watcher` is a
read_committed consumer that notes when it sees each record. `judge` compares: lost, doubled, early,
out of order, changed. An unnamed record is known by its value, which is unique.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.consumer.fetched import headers_of
from headrace.client.delay.delayed_topics import DelayedTopics
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_topics import companion_of, outcomes_of, rejected_of

# A record that arrives when later ones are delivered already comes after them; within this time it
# may still have been on its way to the service.
ON_ITS_WAY_MS = 3_000


def make_delayed_topic(
    bootstrap: str, topic: str, partitions: int, settings: dict[str, str] | None = None
) -> None:
    at = ClientSettings({"bootstrap.servers": bootstrap})
    Topics(at).create(topic, partitions=partitions, settings=settings)
    deadline = time.monotonic() + 400
    while topic not in Topics(at).cluster.topics:
        assert time.monotonic() < deadline, f"{topic} does not appear"
        time.sleep(0.05)
    DelayedTopics(at).enable(topic)


@dataclass(slots=True)
class Sent:
    value: bytes
    key: bytes | None
    partition: int  # of the companion
    offset: int
    appended_ms: int
    delay_ms: int | None = None  # None: `due_ms` was given
    due_ms: int = 0
    to_partition: int | None = None
    id: str | None = None

    @property
    def source(self) -> tuple[int, int]:
        return self.partition, self.offset


@dataclass(slots=True)
class Arrived:
    value: bytes
    key: bytes | None
    partition: int
    offset: int
    timestamp_ms: int
    due_ms: int
    source: tuple[int, int]
    seen_ms: int
    headers: dict[str, bytes] = field(default_factory=dict)


class Ledger:
    """Sends to a companion; what was acknowledged is in `sent`, what was refused in `failed`."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self.topic = topic
        self.companion = companion_of(topic)
        self.sent: list[Sent] = []
        self.failed: list[str] = []
        self.tried = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                "metadata.recovery.strategy": "none",
                "log_level": 0,
                **settings,
            }
        )

    def send(
        self,
        value: bytes,
        *,
        partition: int,
        key: bytes | None = None,
        delay_ms: int | None = None,
        at_ms: int | None = None,
        id: str | None = None,
        to_partition: int | None = None,
        more: list[tuple[str, bytes]] | None = None,
    ) -> None:
        given: list[tuple[str, str | bytes | None]] = list(more or ())
        if delay_ms is not None:
            given.append((names.DELAY, str(delay_ms).encode()))
        if at_ms is not None:
            given.append((names.DELIVER_AT, str(at_ms).encode()))
        if id is not None:
            given.append((names.ID, id.encode()))
        if to_partition is not None:
            given.append((names.PARTITION, str(to_partition).encode()))

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed.append(error.str())
                return
            appended = message.timestamp()[1]
            due = at_ms if at_ms is not None else appended + (delay_ms or 0)
            self.sent.append(
                Sent(
                    value,
                    key,
                    partition,
                    message.offset(),
                    appended,
                    delay_ms,
                    due,
                    to_partition,
                    id,
                )
            )

        self.tried += 1
        while True:
            try:
                self._producer.produce(
                    self.companion,
                    value,
                    key,
                    partition=partition,
                    headers=given,
                    on_delivery=acknowledged,
                )
                break
            except BufferError:
                self._producer.poll(0.05)
        self._producer.poll(0)

    def cancel(self, id: str, *, partition: int, key: bytes | None = None) -> None:
        self._producer.produce(
            self.companion, None, key, partition=partition, headers=[(names.CANCEL, id.encode())]
        )

    def flush(self, within_s: float = 400.0) -> None:
        left = self._producer.flush(within_s)
        assert left == 0, f"{left} records were not acknowledged"


class Watcher(threading.Thread):
    """Reads a topic from its beginning, committed records only, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name=f"watcher-{topic}", daemon=True)
        self.topic = topic
        self.arrived: list[Arrived] = []
        self._cluster = bootstrap
        self._stopping = threading.Event()
        self._reads = threading.Event()
        self.start()
        assert self._reads.wait(400), f"{topic} cannot be read"  # before anybody is killed

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster,
                "group.id": f"watcher-{self.topic}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "fetch.queue.backoff.ms": 5,
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
        )
        known = AdminClient({"bootstrap.servers": self._cluster, "log_level": 0})
        partitions = known.list_topics(self.topic, timeout=30).topics[self.topic].partitions
        consumer.assign([TopicPartition(self.topic, number, 0) for number in partitions])
        self._reads.set()
        while not self._stopping.is_set():
            first = consumer.poll(0.1)
            if first is None:
                continue
            self._note([first])
            self._note(consumer.consume(10_000, 0))
        consumer.close()

    def _note(self, messages: list[Message]) -> None:
        """By a clock that is read when all of them are here: none is seen before it comes."""
        seen_ms = time.time_ns() // 1_000_000
        self.arrived += [arrived(each, seen_ms) for each in messages if each.error() is None]

    def stop(self) -> list[Arrived]:
        self._stopping.set()
        self.join(60)
        return self.arrived

    def wait_for(self, count: int, within_s: float) -> None:
        """Until so many records have arrived; more may come."""
        deadline = time.monotonic() + within_s
        while len(self.arrived) < count:
            assert time.monotonic() < deadline, (
                f"{len(self.arrived)} of {count} records arrived in {self.topic}"
            )
            time.sleep(0.02)


def arrived(message: Message, seen_ms: int) -> Arrived:
    given = dict(headers_of(message))
    _, partition, offset = (given.get(names.SOURCE) or b"/-1/-1").decode().rsplit("/", 2)
    return Arrived(
        message.value() or b"",
        message.key(),
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        int(given.get(names.DUE_AT) or -1),
        (int(partition), int(offset)),
        seen_ms,
        given,
    )


@dataclass(slots=True)
class Verdict:
    """Examples of each fault; empty lists are what is hoped for."""

    lost: list[Sent] = field(default_factory=list)
    doubled: list[bytes] = field(default_factory=list)
    early: list[Arrived] = field(default_factory=list)
    unknown: list[Arrived] = field(default_factory=list)
    changed: list[tuple[Sent, Arrived]] = field(default_factory=list)
    disordered: list[tuple[Arrived, Arrived]] = field(default_factory=list)
    lateness_ms: list[int] = field(default_factory=list)  # sorted

    def late(self, share: float) -> int:
        if not self.lateness_ms:
            return 0
        return self.lateness_ms[min(int(len(self.lateness_ms) * share), len(self.lateness_ms) - 1)]

    def require_clean(self) -> None:
        for name in ("lost", "doubled", "early", "unknown", "changed", "disordered"):
            found = getattr(self, name)
            assert not found, f"{len(found)} {name}: {found[:3]}"

    def __str__(self) -> str:
        return (
            f"{len(self.lateness_ms)} arrived, {len(self.lost)} lost, {len(self.doubled)} doubled, "
            f"{len(self.early)} early, {len(self.disordered)} out of order; late p50 "
            f"{self.late(0.5)} ms, p99 {self.late(0.99)} ms, at most {self.late(1)} ms"
        )


def judge(sent: list[Sent], arrivals: list[Arrived]) -> Verdict:
    """For records without replacement or repetition: each exactly once."""
    verdict = Verdict()
    by_source = {each.source: each for each in sent}
    times = Counter(each.source for each in arrivals)
    verdict.lost = [each for each in sent if each.source not in times]
    verdict.doubled = [by_source[s].value for s, n in times.items() if n > 1 and s in by_source]
    for each in arrivals:
        asked = by_source.get(each.source)
        if asked is None:
            verdict.unknown.append(each)
            continue
        if each.seen_ms < asked.due_ms or each.timestamp_ms < asked.due_ms:
            verdict.early.append(each)
        wanted = asked.partition if asked.to_partition is None else asked.to_partition
        same = (asked.value, asked.key, asked.due_ms, wanted)
        if same != (each.value, each.key, each.due_ms, each.partition):
            verdict.changed.append((asked, each))
        verdict.lateness_ms.append(each.seen_ms - asked.due_ms)
    verdict.lateness_ms.sort()
    verdict.disordered = out_of_order(by_source, arrivals)
    return verdict


def out_of_order(
    by_source: dict[tuple[int, int], Sent], arrivals: list[Arrived]
) -> list[tuple[Arrived, Arrived]]:
    """Pairs of one source and one target partition in the wrong order without an excuse."""
    found = []
    last: dict[tuple[int, int], Arrived] = {}
    for each in sorted(arrivals, key=lambda one: (one.partition, one.offset)):
        way = (each.source[0], each.partition)
        before = last.get(way)
        if before is not None and (each.due_ms, each.source) < (before.due_ms, before.source):
            asked = by_source.get(each.source)
            if asked is not None and before.due_ms - asked.appended_ms > ON_ITS_WAY_MS:
                found.append((before, each))
            continue
        last[way] = each
    return found


def read_all(bootstrap: str, topic: str) -> list[Arrived]:
    """Every committed record of a topic up to its end now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    found: list[Arrived] = []
    known = consumer.list_topics(topic, timeout=30).topics[topic]
    unread = set(known.partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in unread])
    deadline = time.monotonic() + 400
    while unread:
        assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(arrived(message, 0))
        elif error.code() == KafkaError._PARTITION_EOF:
            unread.discard(message.partition() or 0)
    consumer.close()
    return found


def outcomes(bootstrap: str, topic: str) -> dict[tuple[int, int], str]:
    """What was decided about each cancel, by its place in the companion."""
    return {
        each.source: each.headers[names.OUTCOME].decode()
        for each in read_all(bootstrap, outcomes_of(topic))
    }


def rejections(bootstrap: str, topic: str) -> dict[tuple[int, int], str]:
    """Why a record was rejected, by its place in the companion."""
    return {
        each.source: each.headers[names.REJECTED_REASON].decode()
        for each in read_all(bootstrap, rejected_of(topic))
    }
