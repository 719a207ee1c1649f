"""The questions about a partition that the group has given us, before its timeline can begin.

What is committed (asked for with require-stable: an open transaction of a former owner is waited
for), where its log begins and ends, and which topic it is. Nothing here waits: `answer` looks at
the futures. A transaction that stays open is ended by fencing its producer, in a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.client.connection import Connection
from headrace.client.errors import ClientError, kafka_error
from headrace.client.transactional_ids import TransactionalIds
from headrace.contract import delay_topics
from headrace.services.delay.intake import Place

log = logging.getLogger("headrace.delay")

ASK_AGAIN_S = 0.05
ANSWER_WITHIN_S = 10.0
# A transaction of ours takes milliseconds; one that is open for longer has lost its owner.
STUCK_AFTER_S = 0.5
FENCE_AGAIN_S = 2.0

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class Answer:
    offset: int | None  # the group's; None: never committed
    metadata: str | None
    log_start: int
    log_end: int  # of what is committed
    topic_id: str


class Questions:
    """For one partition; `answer` is None as long as it is not known."""

    def __init__(self, admin: AdminClient, group: str, place: Place) -> None:
        self.place = place
        self.unstable_since: float | None = None
        self._admin = admin
        self._group = group
        self._futures: list[Future[Any]] = []
        self._ask_at = 0.0
        self._asked_at = 0.0

    def answer(self) -> Answer | None:
        now = monotonic()
        if not self._futures:
            if now >= self._ask_at:
                self._ask()
                self._asked_at = now
            return None
        if not all(future.done() for future in self._futures):
            if now - self._asked_at > ANSWER_WITHIN_S:
                self._again()
            return None
        try:
            return self._read([future.result() for future in self._futures])
        except KafkaException as failure:
            self._not_yet(kafka_error(failure))
            return None

    def stuck(self) -> bool:
        since = self.unstable_since
        return since is not None and monotonic() - since > STUCK_AFTER_S

    def _ask(self) -> None:
        place = TopicPartition(*self.place)
        admin, within = self._admin, ANSWER_WITHIN_S
        committed = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, [place])],
            require_stable=True,
            request_timeout=within,
        )
        stable = IsolationLevel.READ_COMMITTED
        self._futures = [
            *committed.values(),
            *admin.list_offsets({place: _EARLIEST}, request_timeout=within).values(),
            *admin.list_offsets(
                {place: _LATEST}, isolation_level=stable, request_timeout=within
            ).values(),
            *admin.describe_topics(
                TopicCollection([self.place[0]]), request_timeout=within
            ).values(),
        ]

    def _read(self, results: list[Any]) -> Answer | None:
        committed, start, end, topic = results
        (found,) = committed.topic_partitions
        if found.error is not None:
            self._not_yet(found.error)
            return None
        return Answer(
            found.offset if found.offset >= 0 else None,
            found.metadata,
            start.offset,
            end.offset,
            str(topic.topic_id),
        )

    def _not_yet(self, error: KafkaError) -> None:
        if error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
            self.unstable_since = self.unstable_since or monotonic()
        else:
            log.info("%s-%d: %s; asking again", *self.place, error.str())
        self._again()

    def _again(self) -> None:
        self._futures = []
        self._ask_at = monotonic() + ASK_AGAIN_S


class Fencing:
    """Ends transactions that hold back partitions of ours: of instances that are gone or asleep."""

    def __init__(self, connection: Connection, group: str, own: str) -> None:
        self._connection = connection
        self._prefix = f"{group}-"
        self._own = own
        self._again_at = 0.0
        self._thread: threading.Thread | None = None

    def fence(self, places: Iterable[Place]) -> None:
        now = monotonic()
        if now < self._again_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._again_at = now + FENCE_AGAIN_S
        self._thread = threading.Thread(
            target=self._run, args=(list(places),), name="headrace-delay-fencing", daemon=True
        )
        self._thread.start()

    def _run(self, places: list[Place]) -> None:
        try:
            self._fence(places)
        except ClientError as failure:
            log.warning("an open transaction of another instance cannot be ended: %s", failure)

    def _fence(self, places: list[Place]) -> None:
        held = set()
        for companion, partition in places:
            target = delay_topics.target_of(companion)
            held |= {
                (target, partition),
                (delay_topics.rejected_of(target), partition),
                (delay_topics.outcomes_of(target), partition),
            }
        ids = TransactionalIds(self._connection)
        for found in ids.all(["Ongoing"], longer_than_ms=int(STUCK_AFTER_S * 1000)):
            name = found.transactional_id
            if not name.startswith(self._prefix) or name == self._own:
                continue
            written = set(ids.describe(name).partitions)
            # Offsets alone may be those of our partitions.
            if written & held or all(topic == "__consumer_offsets" for topic, _ in written):
                log.warning("the transaction of %s is open for long: its producer is fenced", name)
                ids.abort(name)
