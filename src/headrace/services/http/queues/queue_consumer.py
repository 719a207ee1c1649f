"""A share consumer on a thread of its own, for the HTTP requests of one user.

Requests hand it questions and wait for the futures. A record that was given to a request is held
under an id until it is acknowledged or its lock runs out; what no request took is released at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeVar

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, Unreachable
from headrace.client.share.acquired_records import ShareRecord
from headrace.client.share.share_consumer import ShareConsumer

log = logging.getLogger("headrace.http")

StartFrom = Literal["earliest", "latest"]
MOST_HELD = 10_000  # records of one consumer that wait for their acknowledgement
SLICE_S = 0.05
COMMIT_S = 10.0
CLOSE_S = 15.0
NOT_HELD = (
    "This server does not hold the record: its lock ran out, it was acknowledged before, or "
    "another server gave it."
)


class Acknowledging(StrEnum):
    """What becomes of a record; the names of the endpoints."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renew"


@dataclass(slots=True)
class HeldRecord:
    id: str
    record: ShareRecord


@dataclass(slots=True)
class _Acquire:
    most: int
    deadline_s: float
    answer: Future[list[HeldRecord]] = field(default_factory=Future)


@dataclass(slots=True)
class _Acknowledge:
    how: Acknowledging
    ids: Sequence[str]
    answer: Future[dict[str, str]] = field(default_factory=Future)


Asked = TypeVar("Asked", _Acquire, _Acknowledge)


class QueueConsumer:
    """A share consumer of one user. `name` begins the ids of its records; other users cannot guess
    it."""

    def __init__(
        self,
        connection: ClientSettings,
        *,
        group: str,
        topics: Sequence[str],
        start_from: StartFrom,
        name: str,
    ) -> None:
        self.name = name
        self.failure: ClientError | None = None
        self._make: Callable[[], ShareConsumer] = lambda: ShareConsumer(
            connection, topics=topics, group=group, start_from=start_from
        )
        self._held: dict[str, ShareRecord] = {}
        self._given = 0
        self._acquires: deque[_Acquire] = deque()
        self._acknowledges: deque[_Acknowledge] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="headrace-http-queue", daemon=True)
        self._thread.start()

    # ---- on the loop

    async def acquire(self, most: int, wait_s: float) -> list[HeldRecord]:
        """Returns up to so many records; empty if none came in time."""
        asked = _Acquire(most, time.monotonic() + wait_s)
        self._hand_over(self._acquires, asked)
        return await asyncio.wrap_future(asked.answer)

    async def acknowledge(self, how: Acknowledging, ids: Sequence[str]) -> dict[str, str]:
        """Returns the ids that were not acknowledged, with the reason."""
        asked = _Acknowledge(how, ids)
        self._hand_over(self._acknowledges, asked)
        return await asyncio.wrap_future(asked.answer)

    async def close(self) -> None:
        """Releases the records that it holds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join, CLOSE_S)

    def _hand_over(self, where: deque[Asked], asked: Asked) -> None:
        with self._changed:
            if self._closing or self.failure is not None:
                raise self.failure or Unreachable("The server is closing this queue; try again.")
            where.append(asked)
            self._changed.notify()

    # ---- on the thread

    def _run(self) -> None:
        try:
            consumer = self._make()
            try:
                self._serve(consumer)
            finally:
                consumer.close()
        except ClientError as failure:
            log.info("a queue ended: %s", failure)
            self._end(failure)
        except BaseException as failure:
            self._end(ClientError(f"The queue has failed: {failure!r}."))
            raise
        else:
            self._end(Unreachable("The server is closing this queue; try again."))

    def _end(self, failure: ClientError) -> None:
        with self._changed:
            self.failure = failure
            left: list[_Acquire | _Acknowledge] = [*self._acquires, *self._acknowledges]
        for asked in left:
            if not asked.answer.done() and asked.answer.set_running_or_notify_cancel():
                asked.answer.set_exception(failure)

    def _serve(self, consumer: ShareConsumer) -> None:
        while True:
            with self._changed:
                while not (self._closing or self._acquires or self._acknowledges):
                    self._changed.wait()
                if self._closing:
                    return
                acknowledges = list(self._acknowledges)
                acquires = list(self._acquires)
            if acknowledges:
                self._acknowledged(consumer, acknowledges)
                for _ in acknowledges:
                    self._acknowledges.popleft()
            for asked in acquires:
                if not self._acquired(consumer, asked):
                    self._answer_late()
                    break
                self._acquires.popleft()

    def _answer_late(self) -> None:
        """The first request goes on waiting, so there is nothing for those behind it either."""
        now = time.monotonic()
        late: list[_Acquire] = []
        with self._changed:
            for _ in range(len(self._acquires)):
                asked = self._acquires.popleft()
                ends = now >= asked.deadline_s or asked.answer.cancelled()
                (late if ends else self._acquires).append(asked)
        for asked in late:
            if asked.answer.set_running_or_notify_cancel():
                asked.answer.set_result([])

    def _acquired(self, consumer: ShareConsumer, asked: _Acquire) -> bool:
        """Returns whether the request has its answer."""
        if asked.answer.cancelled():
            return True
        self._forget_expired()
        room = min(asked.most, MOST_HELD - len(self._held))
        records = consumer.poll(room, SLICE_S) if room > 0 else []
        if not records and time.monotonic() < asked.deadline_s:
            if room <= 0:
                time.sleep(SLICE_S)
            return False
        if not asked.answer.set_running_or_notify_cancel():  # its client has gone
            consumer.release(*records)
            return True
        found = []
        for record in records:
            self._given += 1
            held = HeldRecord(f"{self.name}.{self._given}", record)
            self._held[held.id] = record
            found.append(held)
        asked.answer.set_result(found)
        return True

    def _forget_expired(self) -> None:
        now = time.monotonic()
        if self._held and len(self._held) * 2 > MOST_HELD:
            self._held = {k: each for k, each in self._held.items() if each.locked_until > now}

    def _acknowledged(self, consumer: ShareConsumer, asked: Sequence[_Acknowledge]) -> None:
        ids: dict[tuple[str, int, int], str] = {}
        refused: dict[str, str] = {}
        consumer.take_refused()
        for each in asked:
            for held_id in dict.fromkeys(each.ids):
                record = self._held.get(held_id)
                if record is None:
                    refused[held_id] = NOT_HELD
                    continue
                if each.how is not Acknowledging.RENEW:
                    del self._held[held_id]
                ids[record.topic, record.partition, record.offset] = held_id
                _TO[each.how](consumer, record)
        for one in consumer.commit(COMMIT_S):
            for (topic, partition, offset), held_id in ids.items():
                of_it = (topic, partition) == (one.topic, one.partition)
                if of_it and one.first_offset <= offset <= one.last_offset:
                    refused[held_id] = one.why
        for each in asked:
            if each.answer.set_running_or_notify_cancel():
                each.answer.set_result({one: refused[one] for one in each.ids if one in refused})


_TO: dict[Acknowledging, Callable[[ShareConsumer, ShareRecord], None]] = {
    Acknowledging.ACCEPT: lambda consumer, record: consumer.accept(record),
    Acknowledging.RELEASE: lambda consumer, record: consumer.release(record),
    Acknowledging.REJECT: lambda consumer, record: consumer.reject(record),
    Acknowledging.RENEW: lambda consumer, record: consumer.renew(record),
}
