"""One partition of the topic of idempotency keys, while this server holds it.

Requests whose keys fall into the slot are written one group after the other, each group in one
transaction: all of its records, and for each request a record with its key and its answer. The
slot's transactional id is the same at every server, so a server that takes the slot over fences the
one before it, whose open transaction is then aborted. The order that makes a request be written
once:

1. `prepare_transactions`: from here on no other server can commit in this slot. 2. Read the
partition to its end: every key that was ever committed is known. 3. Write and commit what is not
known. Fenced, aborted, or no answer: go back to 1.

A kill at any point leaves either nothing or all of it, and the next holder finds out which in 2.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.client.connection import ClientSettings
from headrace.client.errors import (
    ClientError,
    Fenced,
    TransactionAborted,
    Unreachable,
)
from headrace.client.lookup.record_pages import Bounds, Browser
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.records import Outgoing, Sent
from headrace.services.http.cluster_refusals import refusal_of, unwritten
from headrace.services.http.dialects.v2 import Outcome, Unwritten, Written
from headrace.services.http.limits import HttpLimits
from headrace.services.http.questions import Questions
from headrace.services.http.refusal import AWAY, UNPROCESSABLE, Refusal
from headrace.services.http.users.user_access import outgoing_of, producer_settings
from headrace.services.http.writes.idempotency_window import Entry, Window
from headrace.services.http.writes.writes import Write
from headrace.wire.contract.own_records import OwnRecords

log = logging.getLogger("headrace.http")
T = TypeVar("T")

GROUP_REQUESTS = 64
GROUP_BYTES = 4 << 20
# After a kill the slot's transaction stays open, and readers of committed records wait for it.
TRANSACTION_TIMEOUT_MS = 15_000
# Two servers with requests for one slot take it from each other: each lets the other one work for a
# while, several times as long as a transaction takes.
FENCED_WAIT_S = (0.1, 0.5)
FAILED_WAIT_S = (0.05, 0.3)
PAGE = Bounds(records=50_000, bytes=32 << 20, seconds=10.0)
# The errors of the cluster that would come again for the same request.
FOR_GOOD = (400, 401, 403, 404, 413, 422)


@dataclass(slots=True)
class Answered:
    outcomes: list[Outcome]
    replayed: bool


@dataclass(slots=True)
class Keyed:
    """A request with a key, waiting for its turn."""

    digest: bytes
    topic: str
    writes: list[Write]
    fingerprint: str
    answer: asyncio.Future[Answered] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    until_s: float = 0.0

    @property
    def size(self) -> int:
        return sum(len(each.value or b"") + len(each.key or b"") for each in self.writes)


class _NotAll(Exception):
    """Some records of a group were not written, so the transaction is aborted."""

    def __init__(self, ends: list[list[Sent | ClientError]]) -> None:
        super().__init__("not all records were written")
        self.ends = ends


class KeySlot:
    def __init__(
        self,
        connection: ClientSettings,
        topic: str,
        index: int,
        limits: HttpLimits,
        questions: Questions,
        *,
        most: int,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._connection, self._topic, self._index = connection, topic, index
        self._own = OwnRecords(topic, log)
        self._limits, self._questions = limits, questions
        self._wall_ms = wall_ms
        self.window = Window(most=most, lasts_ms=limits.key_s * 1000)
        self._producer: AsyncProducer[bytes, bytes] | None = None
        self._waiting: deque[Keyed] = deque()
        self._running: asyncio.Task[None] | None = None
        self.used_s = time.monotonic()
        self.fenced = 0

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting) or self._running is not None

    async def write(self, request: Keyed) -> Answered:
        self.used_s = time.monotonic()
        request.until_s = self.used_s + self._limits.delivery_s
        self._waiting.append(request)
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())
        try:
            # Not cancelled with its caller: the transaction is under way.
            return await asyncio.wait_for(
                asyncio.shield(request.answer), self._limits.delivery_s * 2
            )
        except TimeoutError:
            raise Refusal(
                AWAY,
                "Whether it was written is not known yet: send it again with the same key.",
                retry_after_s=1,
            ) from None

    async def _run(self) -> None:
        group: list[Keyed] = []
        try:
            while self._waiting:
                group = self._group()
                try:
                    await self._hold()
                    await self._serve(group)
                except ClientError as failure:
                    await self._failed(group, failure)
                except Refusal as refusal:  # the server is busy: it did not start to write
                    await self._let_go()
                    _end(group, refusal)
        except Exception as fault:
            log.exception("idempotency keys: the slot %d of %s failed", self._index, self._topic)
            await self._let_go()
            _end([*group, *self._waiting], fault)
            self._waiting.clear()
        finally:
            self._running = None

    def _group(self) -> list[Keyed]:
        """Returns requests for one transaction. If two have the same key, the second one comes
        later."""
        group: list[Keyed] = []
        later: list[Keyed] = []
        digests: set[bytes] = set()
        size = 0
        while self._waiting and len(group) < GROUP_REQUESTS and size < GROUP_BYTES:
            request = self._waiting.popleft()
            if request.answer.done():
                continue
            if request.digest in digests:
                later.append(request)
                continue
            digests.add(request.digest)
            group.append(request)
            size += request.size
        self._waiting.extendleft(reversed(later))
        return group

    async def _failed(self, group: list[Keyed], failure: ClientError) -> None:
        """The outcome is unknown: reopen the slot and read it, or fail requests whose deadline has
        passed."""
        await self._let_go()
        again = not _is_for_good(failure)
        now_s = time.monotonic()
        for each in reversed(group):
            if each.answer.done():
                continue
            if again and now_s < each.until_s:
                self._waiting.appendleft(each)
            else:
                each.answer.set_exception(_unknown(failure) if again else refusal_of(failure))
        if isinstance(failure, Fenced):
            self.fenced += 1
            await asyncio.sleep(random.uniform(*FENCED_WAIT_S))
        else:
            log.info("idempotency keys: slot %d is taken again: %s", self._index, failure)
            await asyncio.sleep(random.uniform(*FAILED_WAIT_S))

    # ---- holding the slot

    async def _hold(self) -> None:
        if self._producer is not None and not self._producer.failed_for_good:
            return
        await self._let_go()
        settings = producer_settings(self._limits)
        del settings["message.timeout.ms"]  # the transaction's own bounds it
        settings["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
        self._producer = AsyncProducer(
            self._connection,
            transactional_id=f"{self._topic}-{self._index}",
            max_block_s=self._limits.delivery_s,
            settings=settings,
        )
        await self._producer.prepare_transactions()
        await self._questions.ask(self._catch_up)

    def _catch_up(self) -> None:
        """Reads to the end of the partition. Call it on a thread, while the window is not used
        elsewhere."""
        window, slot = self.window, self._index
        browser = Browser(self._connection, self._topic)
        try:
            end = browser.ends([slot]).get(slot)
            if end is None:
                raise Unreachable(f"No broker leads {self._topic}-{slot} now.")
            if window.next_offset is not None and window.next_offset > end:
                window.forget()
            if window.next_offset is None:
                oldest_ms = self._wall_ms() - self._limits.key_s * 1000
                window.next_offset = browser.at_time([slot], oldest_ms).get(slot)
            if window.next_offset is None:
                raise Unreachable(f"No broker leads {self._topic}-{slot} now.")
            at = window.next_offset
            while at < end:
                page = browser.onwards({slot: at}, want=PAGE.records, bounds=PAGE)
                if page.unread or page.next[slot] <= at:
                    why = page.unread.get(slot, "nothing was read")
                    raise Unreachable(f"{self._topic}-{slot} cannot be read: {why}.")
                for seen in page.found:
                    record = seen.record
                    if record.key is not None:
                        stamp = record.timestamp_ms or 0
                        window.note(record.key, offset=record.offset, wall_ms=stamp)
                at = page.next[slot]
            window.next_offset = max(at, end)
        finally:
            browser.close()

    async def _let_go(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(0)

    # ---- one group

    async def _serve(self, group: list[Keyed]) -> None:
        now_ms = self._wall_ms()
        fresh = []
        for each in group:
            offset = self.window.find(each.digest, now_ms)
            if offset is None:
                fresh.append(each)
            else:
                await self._replay(each, offset)
        if fresh and not self.window.has_room(now_ms):
            for each in fresh:
                said = "The window of idempotency keys is full; send it without a key, or later."
                each.answer.set_exception(Refusal(AWAY, said, retry_after_s=60))
            return
        if fresh:
            await self._write(fresh)

    async def _write(self, fresh: list[Keyed]) -> None:
        try:
            await self._transact(fresh)
        except _NotAll as partly:
            if len(fresh) > 1:  # one bad record aborts it for the others
                for each in fresh:
                    await self._write([each])
                return
            [request], [ends] = fresh, partly.ends
            request.answer.set_result(Answered([_undone(end) for end in ends], replayed=False))

    async def _transact(self, fresh: list[Keyed]) -> None:
        producer = self._producer
        assert producer is not None
        outgoing: list[list[Outgoing[bytes, bytes]]] = []
        for each in list(fresh):
            try:
                outgoing.append([await outgoing_of(producer, each.topic, w) for w in each.writes])
            except ClientError as refused:  # it asks for what cannot be, and nothing is sent
                fresh.remove(each)
                each.answer.set_exception(refusal_of(refused))
        if not fresh:
            return
        async with producer.transaction():
            flat = await (await producer.send_all([one for many in outgoing for one in many]))
            ends = _split(flat, [len(many) for many in outgoing])
            failures = [end for end in flat if isinstance(end, ClientError)]
            for failure in failures:
                if not _is_for_good(failure):
                    raise failure
            if failures:
                raise _NotAll(ends)
            entries = [Entry(r.fingerprint, _written(e)) for r, e in zip(fresh, ends, strict=True)]
            marks = await (
                await producer.send_all(
                    [
                        Outgoing(self._topic, entry.to_bytes(), r.digest, partition=self._index)
                        for r, entry in zip(fresh, entries, strict=True)
                    ]
                )
            )
            for mark in marks:
                if isinstance(mark, ClientError):
                    raise mark
        for request, entry, mark in zip(fresh, entries, marks, strict=True):
            assert isinstance(mark, Sent)
            self.window.note(request.digest, offset=mark.offset, wall_ms=self._wall_ms())
            if not request.answer.done():
                request.answer.set_result(Answered(list(entry.written), replayed=False))

    async def _replay(self, request: Keyed, offset: int) -> None:
        value = await self._questions.ask(lambda: self._value_at(offset))
        entry = self._own.read(_entry_of, None, value, partition=self._index, offset=offset)
        if entry is None:
            said = "What is written under this Idempotency-Key cannot be read; use another key."
            request.answer.set_exception(Refusal(UNPROCESSABLE, said))
            return
        if entry.fingerprint == request.fingerprint:
            request.answer.set_result(Answered(list(entry.written), replayed=True))
            return
        request.answer.set_exception(
            Refusal(
                UNPROCESSABLE,
                "This Idempotency-Key was used for another request; nothing was written.",
            )
        )

    def _value_at(self, offset: int) -> bytes | None:
        browser = Browser(self._connection, self._topic)
        try:
            seen = browser.at(self._index, offset)
        finally:
            browser.close()
        if seen is None:
            raise Unreachable(f"{self._topic}-{self._index} at {offset} cannot be read now.")
        return seen.record.value

    async def close(self) -> None:
        if self._running is not None:
            await asyncio.wait([self._running], timeout=self._limits.grace_s)
        await self._let_go()


def _end(requests: list[Keyed], why: Exception) -> None:
    for each in requests:
        if not each.answer.done():
            each.answer.set_exception(why)


def _split(flat: list[Sent | ClientError], counts: list[int]) -> list[list[Sent | ClientError]]:
    found, at = [], 0
    for count in counts:
        found.append(flat[at : at + count])
        at += count
    return found


def _entry_of(key: bytes | None, value: bytes | None) -> Entry:
    return Entry.read(value)


def _written(ends: list[Sent | ClientError]) -> list[Written]:
    return [Written(e.partition, e.offset, e.timestamp_ms) for e in ends if isinstance(e, Sent)]


def _is_for_good(failure: ClientError) -> bool:
    """Returns whether the request itself is refused, and not only this attempt to write it."""
    if isinstance(failure, Fenced | TransactionAborted | Unreachable):
        return False
    # Before `retriable`: Kafka calls a topic that is not there a passing thing, and the producer
    # has waited for it already.
    return refusal_of(failure).status in FOR_GOOD


def _undone(end: Sent | ClientError) -> Outcome:
    """Returns the outcome of an aborted request: what was wrong with its record, or that another
    record was refused."""
    if isinstance(end, ClientError):
        return unwritten(end)
    said = "Not written: another record of this request was refused, and a key covers all of them."
    return Unwritten(said, False, Refusal(UNPROCESSABLE, said))


def _unknown(failure: ClientError) -> Refusal:
    said = f"Whether it was written is not known: send it again with the same key. {failure}"
    return Refusal(AWAY, said, retry_after_s=1)
