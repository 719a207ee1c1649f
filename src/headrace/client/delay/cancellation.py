"""Cancels a delayed message and waits for the outcome.

The delay service decides the outcome and writes it in the same transaction: "cancelled" means that
the message is never visible to read_committed consumers, "too-late" that it was delivered,
"unknown" that no message with that id waits in the partition. We wait for it in the topic of
outcomes, so this works wherever the service runs.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from headrace.client.admin.groups import Groups
from headrace.client.connection import ClientSettings
from headrace.client.consumer.consumer import Consumer
from headrace.client.errors import ClientError
from headrace.client.producer.producer import Producer
from headrace.client.records import Record, Sent, TopicPartition
from headrace.wire.contract import headers
from headrace.wire.contract.delay_topics import outcomes_of

LONGEST_POLL_S = 0.5


class NoOutcome(ClientError):
    """The cancel is written, but no delay service decided it in time."""


@dataclass(slots=True)
class Cancelled:
    """The outcome of a cancel; `outcome` is "cancelled", "too-late" or "unknown"."""

    topic: str
    id: str
    outcome: str
    partition: int
    offset: int  # of the cancel record, in the companion

    @property
    def in_time(self) -> bool:
        return self.outcome == headers.CANCELLED


class Cancelling:
    """Cancels with clients of its own, which stay open: opening them takes longer than
    cancelling."""

    def __init__(self, connection: ClientSettings) -> None:
        self._connection = connection
        self._lock = threading.Lock()  # one cancel at a time: the consumer reads for one
        self._producer: Producer[Any, Any] | None = None
        self._outcomes: Consumer[Any, Any] | None = None
        self._groups: Groups | None = None

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        for client in (self._producer, self._outcomes):
            if client is not None:
                client.close()
        self._producer = self._outcomes = self._groups = None

    def cancel_and_wait(
        self,
        topic: str,
        id: str,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timeout_s: float = 10.0,
    ) -> Cancelled:
        """Send the cancel, then read outcomes from the end offsets before it."""
        with self._lock:
            try:
                return self._cancel(topic, id, key, partition, timeout_s)
            except BaseException:
                self._close()  # after any failure the next call begins with new clients
                raise

    def _cancel(
        self,
        topic: str,
        id: str,
        key: bytes | str | None,
        partition: int | None,
        timeout_s: float,
    ) -> Cancelled:
        deadline = time.monotonic() + timeout_s
        self._producer = producer = self._producer or Producer(self._connection)
        self._outcomes = outcomes = self._outcomes or Consumer(self._connection)
        producer.companions.require(topic)
        if self._groups is None or outcomes_of(topic) not in self._groups.cluster.topics:
            self._groups = Groups(self._connection)
        ends = self._groups.ends(self._groups.partitions_of(outcomes_of(topic)))
        outcomes.assign({TopicPartition(*place): end for place, end in ends.items()})
        wish = producer.cancel(topic, id, key=key, partition=partition).result(timeout_s)
        while (left_s := deadline - time.monotonic()) > 0:
            record = outcomes.poll(min(left_s, LONGEST_POLL_S))
            if record is not None and is_about(record, wish):
                outcomes.assign({})
                said = record.header(headers.OUTCOME) or b""
                return Cancelled(topic, id, said.decode(), wish.partition, wish.offset)
        raise NoOutcome(
            f"The request to cancel {id} is written to {wish.topic}, and no delay service has "
            f"decided it within {timeout_s:g} seconds. `headrace delay stats` shows whether one "
            "runs; the request takes effect as soon as one does."
        )


def is_about(record: Record, wish: Sent) -> bool:
    """Whether an outcome answers this cancel."""
    asked = f"{wish.topic}/{wish.partition}/{wish.offset}"
    return record.header(headers.SOURCE) == asked.encode()
