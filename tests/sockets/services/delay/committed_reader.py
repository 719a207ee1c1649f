"""A reader of committed records; conftest.py closes all of them when their test has ended."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from confluent_kafka import Consumer, TopicPartition

from headrace.testing import Broker

WITHIN_S = 180
QUIET = {"log_level": 0}


class Reader:
    """Shows the committed records of a topic's first partition."""

    open: ClassVar[list[Reader]] = []

    def __init__(self, broker: Broker, topic: str = "orders") -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                # Else `close` waits for a commit, for ever if the broker is gone.
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                **QUIET,
            }
        )
        self.consumer.assign([TopicPartition(topic, 0, 0)])
        self.open.append(self)

    def next(self, within_s: float = WITHIN_S) -> Any:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            message = self.consumer.poll(0.1)
            if message is not None and message.error() is None:
                return message
        raise AssertionError("nothing arrives")

    def values(self, count: int) -> list[bytes | None]:
        return [self.next().value() for _ in range(count)]
