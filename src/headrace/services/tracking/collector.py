"""Takes the bodies of requests, gives their events to the producer, and decides the answer.

An event that was answered with "accepted" is in the producer's queue: it is written as soon as the
cluster takes it, is tried for as long as this process lives, and is lost if the process is killed.
The queue is bounded in events and bytes: a request whose events do not fit is refused whole, so
that it can be sent again without repeating any. Belongs to one event loop; no task per event.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.client.connection import ClientSettings
from headrace.client.errors import BufferFull, ClientError
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.producer.interceptors import ProducerInterceptor
from headrace.client.records import Outgoing, Sent
from headrace.services.tracking import events
from headrace.services.tracking.rate import Rate
from headrace.wire.contract.tracking import KINDS

ACCEPTED, BAD, TOO_LARGE, TOO_QUICK, BUSY = 202, 400, 413, 429, 503
# The answer names the first faults; a page that sends only nonsense learns enough from these.
FAULTS_SHOWN = 20
QUEUE_BYTES = 64 * 1024 * 1024
RETRY_WHEN_FULL_S = 2


@dataclass(slots=True, kw_only=True)
class CollectorLimits:
    """The limits of one collector."""

    body_bytes: int = 262_144
    events: int = 500  # in one request
    rate: float = 10_000.0  # events per second; 0 for no limit
    queue: int = 100_000  # events that the cluster has not acknowledged
    queue_bytes: int = QUEUE_BYTES
    requests: int = 256  # at once
    connections: int = 4096  # at once
    body_s: float = 10.0  # for all of a body to come
    idle_s: float = 15.0  # for a request to begin on a connection


@dataclass(slots=True)
class Answer:
    status: int
    document: dict[str, Any]
    retry_after_s: int | None = None


@dataclass(slots=True)
class Counters:
    """Since the start; the metrics read them when asked."""

    requests: Counter[int] = field(default_factory=Counter)  # by status
    events: Counter[str] = field(default_factory=Counter)  # accepted, by topic
    faults: Counter[str] = field(default_factory=Counter)  # by field; only names of ours


class Ledger(ProducerInterceptor):
    """The events that the producer has accepted and not finished yet; reported on the event
    loop."""

    def __init__(self) -> None:
        self.taken = self.written = self.lost = self.bytes = 0
        self.last_failure: ClientError | None = None

    @property
    def waiting(self) -> int:
        return self.taken - self.written - self.lost

    def on_delivered(
        self, record: Outgoing[Any, Any], sent: Sent | None, error: ClientError | None
    ) -> None:
        self.bytes -= len(record.key or b"") + len(record.value or b"")
        if error is None:
            self.written += 1
        else:
            self.lost += 1
            self.last_failure = error


FIELDS = frozenset(one.name for kind in KINDS.values() for one in kind.fields) | {"kind", "age_ms"}


class Collector:
    """Made and used on the event loop; `close` writes what is left."""

    def __init__(
        self,
        connection: ClientSettings,
        limits: CollectorLimits,
        *,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        monotonic_s: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.limits = limits
        self.counters = Counters()
        self.ledger = Ledger()
        self._wall_ms, self._monotonic_s, self._new_id = wall_ms, monotonic_s, new_id
        self._rate = Rate(limits.rate, burst=limits.events)
        self._producer: AsyncProducer[bytes, bytes] = AsyncProducer(
            connection,
            interceptors=[self.ledger],
            max_block_s=0,
            settings={
                # Our own bounds come first, with whole requests; these are never reached.
                "queue.buffering.max.messages": limits.queue * 2 + limits.events,
                "queue.buffering.max.kbytes": limits.queue_bytes * 2 // 1024,
                "linger.ms": 20,
                "message.timeout.ms": 0,  # no browser can send it again: try for ever
            },
        )

    async def take(self, body: bytes) -> Answer:
        """Hands the events of one request to the producer. Returns the answer for the client."""
        try:
            batch = events.read(
                body,
                most=self.limits.events,
                received_ms=self._wall_ms(),
                new_id=self._new_id,
            )
        except events.TooMany as refusal:
            return Answer(TOO_LARGE, {"error": str(refusal)})
        except events.Unreadable as refusal:
            return Answer(BAD, {"error": str(refusal)})
        if wait_s := self._rate.take(len(batch), self._monotonic_s()):
            said = f"More than {self.limits.rate:g} events a second."
            return Answer(TOO_QUICK, {"error": said}, math.ceil(wait_s))
        if not self._has_room_for(batch):
            return _full(0)
        self._count_faults(batch)
        taken = await self._give(batch)
        if taken < len(batch.good):
            return _full(taken)
        return _answered(batch)

    def _has_room_for(self, batch: events.Batch) -> bool:
        ledger, limits = self.ledger, self.limits
        return (
            ledger.waiting + len(batch.good) <= limits.queue
            and ledger.bytes + batch.bytes <= limits.queue_bytes
        )

    async def _give(self, batch: events.Batch) -> int:
        ledger, send = self.ledger, self._producer.send_one_way
        for number, event in enumerate(batch.good):
            try:
                await send(event.topic, event.value, key=event.key)
            except BufferFull:
                return number
            ledger.taken += 1
            ledger.bytes += len(event.key) + len(event.value)
            self.counters.events[event.topic] += 1
        return len(batch.good)

    def _count_faults(self, batch: events.Batch) -> None:
        for fault in batch.faults:  # a made-up name must not become a label
            self.counters.faults[fault.field if fault.field in FIELDS else "other"] += 1

    async def close(self, grace_s: float) -> None:
        """Write what is in the queue; what is not written after `grace_s` is lost and counted."""
        await self._producer.close(grace_s)


def _answered(batch: events.Batch) -> Answer:
    document: dict[str, Any] = {"accepted": len(batch.good)}
    if not batch.faults:
        return Answer(ACCEPTED, document)
    shown = batch.faults[:FAULTS_SHOWN]
    document["refused"] = len(batch.faults)
    document["faults"] = [{"event": f.event, "field": f.field, "why": f.why} for f in shown]
    return Answer(BAD, document)


def _full(accepted: int) -> Answer:
    said = "The queue to the cluster is full; send it again a little later."
    return Answer(BUSY, {"error": said, "accepted": accepted}, RETRY_WHEN_FULL_S)
