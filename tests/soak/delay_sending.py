"""Producers of delayed messages: they only set headers, and go on through every death of a broker.

`Crowd` sends many messages with chance delays at once. `Racers` sends a few per millisecond: plain
ones, and named schedules that are replaced or cancelled around the moment they are due. What was
accepted is read back from the intake itself; a sender only vouches for how many were acknowledged.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Iterator

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.wire.contract import headers

WITHIN_S = 400.0
SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.max.ms": 200,
    "queue.buffering.max.messages": 200_000,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
Header = tuple[str, str | bytes | None]


class Sender(threading.Thread):
    """Sends what `plan` yields, each at its time, until told to stop."""

    def __init__(self, bootstrap: str, companion: str, partitions: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.companion = companion
        self.partitions = partitions
        self.chance = random.Random(seed)
        self.sent = 0
        self.acknowledged = 0
        self.ended = 0.0
        self.failure: str | None = None
        self._over = threading.Event()
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap} | SETTINGS)

    def plan(self) -> Iterator[tuple[float, int, list[Header], bytes | None]]:
        """When (time.time()), to which partition, with which headers and value."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            for moment, partition, said, value in self.plan():
                if (wait := moment - time.time()) > 0:
                    self._producer.poll(0)
                    if self._over.wait(wait):
                        break
                self._send(partition, said, value)
            if self._producer.flush(WITHIN_S) > 0:
                self.failure = "not everything was acknowledged"
            self.ended = time.time()
        except KafkaException as failure:
            self.failure = str(failure)

    def _send(self, partition: int, said: list[Header], value: bytes | None) -> None:
        self.sent += 1
        while True:
            try:
                self._producer.produce(
                    self.companion,
                    value,
                    b"key-%d" % partition,
                    partition,
                    headers=said,
                    on_delivery=self._told,
                )
                return
            except BufferError:
                self._producer.poll(0.05)

    def _told(self, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failure = error.str()

    def stop(self) -> None:
        """No more; waits for the last acknowledgement."""
        self._over.set()
        self.join(2 * WITHIN_S)
        assert not self.is_alive(), "a sender did not end"
        assert self.failure is None, self.failure
        assert self.acknowledged == self.sent

    def wait(self) -> None:
        """Until all of the plan is sent and acknowledged."""
        self.join()
        self.stop()


class Crowd(Sender):
    """`count` messages with delays from nothing to `within_ms`, as fast as they are taken."""

    def __init__(
        self,
        bootstrap: str,
        companion: str,
        partitions: int,
        seed: int,
        *,
        count: int,
        within_ms: int,
    ) -> None:
        super().__init__(bootstrap, companion, partitions, seed)
        self.count = count
        self.within_ms = within_ms

    @property
    def is_due(self) -> bool:
        """Whether the last of them should have been delivered by now."""
        return not self.is_alive() and time.time() > self.ended + self.within_ms / 1000

    def plan(self) -> Iterator[tuple[float, int, list[Header], bytes | None]]:
        delay_of = self.chance.randrange
        for number in range(self.count):
            delay_ms = delay_of(self.within_ms)
            said: list[Header]
            if number % 2:
                due = time.time_ns() // 1_000_000 + delay_ms
                said = [(headers.DELIVER_AT, b"%d" % due)]
            else:
                said = [(headers.DELAY, b"%dms" % delay_ms), ("own", b"kept")]
            yield 0.0, number % self.partitions, said, b"crowd %d" % number


class Racers(Sender):
    """Schedules and what befalls them; `rate` schedules per second until stopped."""

    PLAIN, CANCELLED, REPLACED, BOTH = range(4)
    DELAYS_MS = (0, 50, 200, 1_000, 3_000)
    AROUND_MS = 400

    def __init__(
        self, bootstrap: str, companion: str, partitions: int, seed: int, *, rate: int
    ) -> None:
        super().__init__(bootstrap, companion, partitions, seed)
        self.rate = rate

    def plan(self) -> Iterator[tuple[float, int, list[Header], bytes | None]]:
        """A heap of what is still to come, by time; chains of one id keep their order."""
        waiting: list[tuple[float, int, int, list[Header], bytes | None]] = []
        ticks = itertools.count()
        began = time.time()
        for number in itertools.count():
            moment = began + number / self.rate
            for step in self._journey(number, moment):
                heapq.heappush(waiting, (step[0], next(ticks), *step[1:]))
            while waiting and waiting[0][0] <= moment:
                sent_at, _, partition, said, value = heapq.heappop(waiting)
                yield sent_at, partition, said, value

    def _journey(
        self, number: int, moment: float
    ) -> Iterator[tuple[float, int, list[Header], bytes | None]]:
        """One schedule's records: itself, perhaps another in its place, perhaps a cancel."""
        chance = self.chance
        partition, kind = chance.randrange(self.partitions), chance.randrange(4)
        delay_ms = chance.choice(self.DELAYS_MS) + chance.randrange(100)
        name = b"schedule-%d" % number
        due = int(moment * 1000) + delay_ms
        if kind == self.PLAIN:
            yield moment, partition, [(headers.DELAY, b"%d" % delay_ms)], b"plain " + name
            return
        named = (headers.ID, name)
        yield moment, partition, [named, (headers.DELIVER_AT, b"%d" % due)], b"first " + name
        at = self._around(moment, due)
        if kind in (self.REPLACED, self.BOTH):
            due += chance.randrange(2_000)
            yield at, partition, [named, (headers.DELIVER_AT, b"%d" % due)], b"second " + name
            at = self._around(at, due)
        if kind in (self.CANCELLED, self.BOTH):
            yield at, partition, [(headers.CANCEL, name)], None

    def _around(self, after: float, due_ms: int) -> float:
        """A moment near the due time, but behind what it refers to."""
        offset = self.chance.randint(-self.AROUND_MS, self.AROUND_MS // 2)
        return max(after + 0.001, (due_ms + offset) / 1000)
