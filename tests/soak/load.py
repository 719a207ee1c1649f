"""Producers that go on through every death of their broker and remember what was acknowledged."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
PAUSE_S = 0.004
RECORDS_PER_PAUSE = 10


@dataclass(slots=True)
class Acknowledged:
    partition: int
    offset: int
    value: bytes


@dataclass(slots=True)
class Writer:
    """One producer in a thread of its own. Each value is sent once and says who sent it."""

    name: str
    bootstrap: str
    topic: str
    idempotent: bool
    compression: str
    acknowledged: list[Acknowledged] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    sent: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and wait until everything that was sent is answered."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join(180)
        assert not self._thread.is_alive(), f"{self.name} never finished"

    def _run(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": self.idempotent,
                "compression.type": self.compression,
                "linger.ms": 2,
                "message.timeout.ms": 170_000,
                "socket.timeout.ms": 5_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,  # every lost connection would be told
            }
        )
        while not self._stop.is_set():
            for _ in range(RECORDS_PER_PAUSE):
                self._send(producer)
            producer.poll(0)
            time.sleep(PAUSE_S)
        left = producer.flush(170)
        if left:
            self.failed.append(f"{left} records were never answered")

    def _send(self, producer: confluent_kafka.Producer) -> None:
        value = f"{self.name} {self.sent:08}".encode() + b"." * (self.sent % 200)
        try:
            producer.produce(
                self.topic, value, partition=self.sent % PARTITIONS, on_delivery=self._answered
            )
        except BufferError:  # the broker is down for long; wait for room
            producer.poll(0.1)
            return
        except confluent_kafka.KafkaException as fatal:  # the broker forgot the producer's state
            self.failed.append(str(fatal))
            self._stop.set()
            return
        self.sent += 1

    def _answered(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        value, offset, partition = message.value(), message.offset(), message.partition()
        assert value is not None and offset is not None and partition is not None
        self.acknowledged.append(Acknowledged(partition, offset, value))


@dataclass(slots=True)
class TopicMaker:
    """Creates topics all the time and remembers which were acknowledged."""

    bootstrap: str
    acknowledged: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        settings |= {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        admin = AdminClient(settings)
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"made-under-fire-{number}"
            made = admin.create_topics([NewTopic(name, 1, 1)], request_timeout=2.0)[name]
            try:
                made.result(10)
                self.acknowledged.append(name)
            except confluent_kafka.KafkaException:
                pass  # not acknowledged: it may or may not be there
            self._stop.wait(0.05)
