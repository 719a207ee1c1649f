"""Writers of the topic that is copied: an idempotent one, and one whose transactions end as chance
says, a third of them aborted. They go on through every death of their broker and remember what they
wrote and what they were told.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from tests.soak.anomalies import Written

PARTITIONS = 3
PAUSE_S = 0.03
RECORDS_PER_PAUSE = 10
ABORTED = 1 / 3
WITHIN_S = 60.0
SETTINGS = {"socket.timeout.ms": 5_000, "reconnect.backoff.max.ms": 200, "log_level": 0}


class Feeder(threading.Thread):
    """Writes numbered records until told to stop."""

    name_of_all = "idempotent"

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.settings: dict[str, Any] = {"bootstrap.servers": bootstrap} | SETTINGS
        self.topic = topic
        self.chance = random.Random(seed)
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.unclear: list[str] = []  # nobody knows how these transactions ended
        self.failure: BaseException | None = None
        self._sent: list[tuple[int, str, str, str | None]] = []
        self._offsets: dict[str, int] = {}
        self._over = threading.Event()

    def run(self) -> None:
        try:
            self.feed()
        except (AssertionError, KafkaException) as failure:
            self.failure = failure

    def feed(self) -> None:
        producer = confluent_kafka.Producer(self.settings | {"enable.idempotence": True})
        while not self._over.wait(PAUSE_S):
            for _ in range(RECORDS_PER_PAUSE):
                self.send(producer)
            producer.poll(0)
        assert producer.flush(WITHIN_S) == 0, "a feeder was not acknowledged"

    def send(self, producer: confluent_kafka.Producer, transaction: str = "", of: int = 1) -> None:
        number = len(self._sent)
        partition = self.chance.randrange(PARTITIONS)
        key, value = f"key {number % 17}", f"{self.name_of_all} {number:08}"
        headers: dict[str, str | bytes | None] | None = (
            {"transaction": transaction, "of": str(of)} if transaction else None
        )
        producer.produce(
            self.topic, value, key, partition=partition, headers=headers, on_delivery=self._answered
        )
        self._sent.append((partition, value, key, transaction or None))

    def _answered(self, error: Any, message: Any) -> None:
        if error is None:
            self._offsets[message.value().decode()] = message.offset()

    def stop(self) -> None:
        self._over.set()
        self.join(3 * WITHIN_S)
        assert not self.is_alive(), f"the {self.name_of_all} feeder never finished"
        if self.failure is not None:
            raise self.failure

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def written(self) -> list[Written]:
        offsets = self._offsets
        return [
            Written(
                partition,
                value,
                key,
                # librdkafka does not know the offset of what turned out to be there already
                offset=offsets[value] if offsets.get(value, -1) >= 0 else None,
                writer=self.name_of_all,
                transaction=transaction,
                acknowledged=value in offsets,
            )
            for partition, value, key, transaction in self._sent
        ]


class TransactionalFeeder(Feeder):
    name_of_all = "transactional"

    def feed(self) -> None:
        producer = self.new_producer()
        while not self._over.wait(PAUSE_S):
            transaction = f"fed-{len(self.committed) + len(self.aborted) + len(self.unclear)}"
            try:
                self.transact(producer, transaction)
            except KafkaException:  # nothing to be done with this producer any more
                self.unclear.append(transaction)
                producer = self.new_producer()

    def new_producer(self) -> confluent_kafka.Producer:
        own = {"transactional.id": f"feeds-{self.topic}", "transaction.timeout.ms": 30_000}
        producer = confluent_kafka.Producer(self.settings | own)
        again(producer.init_transactions)
        return producer

    def transact(self, producer: confluent_kafka.Producer, transaction: str) -> None:
        of = self.chance.randint(1, 12)
        commit = self.chance.random() >= ABORTED
        producer.begin_transaction()
        try:
            for _ in range(of):
                self.send(producer, transaction, of)
            if commit:
                again(producer.commit_transaction)
                self.committed.append(transaction)
                return
            if self.chance.random() < 0.8:  # the others are aborted with records on their way
                producer.flush(WITHIN_S)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
        again(producer.abort_transaction)
        self.aborted.append(transaction)


def again(call: Any) -> None:
    """As long as librdkafka says that the same call may be made again."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            call(WITHIN_S)
            return
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline:
                raise
