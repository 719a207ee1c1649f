"""One consumer instance of v2: a consumer of the client, and the records given to its reader.

Offsets are committed for records that an answer held, and only once the reader has come again or
has asked for it: an answer that was lost on the way is given again to the next reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import cast

from headrace.client.consumer.async_consumer import AsyncConsumer, uninterrupted
from headrace.client.consumer.fetched import NativeMessage, ends_of_rows, place_of
from headrace.client.consumer.offset_reset import OffsetReset
from headrace.client.errors import ClientError
from headrace.client.records import TopicPartition
from headrace.services.http.dialects.v2 import NewInstance
from headrace.services.http.limits import HttpLimits
from headrace.services.http.refusal import ILLEGAL_STATE, Refusal, busy
from headrace.services.http.streams.record_forms import Form, of_messages
from headrace.services.http.users.user_access import UserAccess

BATCH = 500
COMMIT_EVERY_S = 5.0
PER_RECORD = 64  # bytes of a document around key and value, about
USED_AT_ONCE = "Another request uses this instance; send one at a time."


class ConsumerInstance:
    def __init__(self, user: UserAccess, group: str, new: NewInstance, limits: HttpLimits) -> None:
        self.user, self.new = user, new
        self.topics: list[str] = []
        self.assigned: list[TopicPartition] = []
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Lock()
        self._kept: deque[NativeMessage] = deque()  # read, and did not fit the last answer
        self._given: dict[TopicPartition, int] = {}  # where the last answers end
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at_s = 0.0
        self._group = group
        self._consumer = self._made()
        user.in_use += 1

    def _made(self) -> AsyncConsumer[bytes, bytes]:
        return AsyncConsumer(
            self.user.connection,
            group=self._group,
            auto_offset_reset=cast(OffsetReset, self.new.auto_offset_reset),
            on_revoked=self._revoked,
            settings={
                "fetch.min.bytes": max(1, self.new.min_bytes),
                "max.poll.interval.ms": int(self._limits.instance_idle_s * 1000) + 60_000,
                "queued.max.messages.kbytes": self._limits.answer_bytes // 1024,
            },
        )

    # ---- what to read

    async def subscribe(self, topics: Sequence[str]) -> None:
        if self.assigned:
            raise _twice()
        async with self._alone():
            await self._consumer.subscribe(topics)
            self.topics = list(topics)

    async def unsubscribe(self) -> None:
        async with self._alone():
            await uninterrupted(self._begin_anew())

    async def _begin_anew(self) -> None:
        """Begins again with another consumer: one that has left reads nothing and is in no
        group."""
        await self._leave()
        self._consumer = self._made()
        self.topics, self.assigned = [], []
        self._forget(None)

    async def assign(self, places: Sequence[TopicPartition]) -> None:
        if self.topics:
            raise _twice()
        async with self._alone():
            await self._consumer.assign(places)
            self.assigned = list(places)
            self._forget(None)

    async def assignment(self) -> list[TopicPartition]:
        async with self._alone():
            return await self._consumer.assignment()

    async def seek(self, places: dict[TopicPartition, int]) -> None:
        async with self._alone():
            for place, offset in places.items():
                await self._consumer.seek(place, offset)
            self._forget(list(places))

    async def seek_to_an_end(self, places: list[TopicPartition], *, beginning: bool) -> None:
        async with self._alone():
            if beginning:
                await self._consumer.seek_to_beginning(places)
            else:
                await self._consumer.seek_to_end(places)
            self._forget(places)

    # ---- reading

    async def records(self, form: Form, *, wait_s: float, most_bytes: int, most: int) -> list[str]:
        async with self._alone():
            if self._is_commit_due:
                await self._commit_given(wait=False)
                self._commit_at_s = time.monotonic() + COMMIT_EVERY_S
            if not self._kept:
                # More than are wanted: the next requests find them here, without a thread.
                self._kept.extend(await self._consumer.batch_messages(BATCH, wait_s))
            return self._taken(form, most_bytes, most)

    @property
    def has_records(self) -> bool:
        """Returns whether `records_at_once` has records, and nothing else must be done first."""
        return bool(self._kept) and not self._one_at_a_time.locked() and not self._is_commit_due

    def records_at_once(self, form: Form, *, most_bytes: int, most: int) -> list[str]:
        return self._taken(form, most_bytes, most)

    @property
    def _is_commit_due(self) -> bool:
        return self.new.auto_commit and time.monotonic() >= self._commit_at_s

    def _taken(self, form: Form, most_bytes: int, most: int) -> list[str]:
        """Returns as many records as fit; a record that has no such form is refused when it comes
        first."""
        documents: list[str] = []
        given: list[NativeMessage] = []
        kept, shown, size = self._kept, of_messages(form), 0
        try:
            while kept and len(documents) < most:
                message = kept[0]
                size += len(message) + len(message.key() or b"") + PER_RECORD
                if documents and size > most_bytes:
                    break
                documents.append(shown(message))
                given.append(kept.popleft())
        except Refusal:
            if not documents:
                raise
        for message in ends_of_rows(given):
            self._given[place_of(message)] = (message.offset() or 0) + 1
        return documents

    # ---- committing

    async def commit(self, offsets: dict[TopicPartition, int] | None) -> None:
        async with self._alone():
            if offsets is None:
                await self._commit_given(wait=True)
            else:
                await self._consumer.commit(offsets)

    async def committed(self, places: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        async with self._alone():
            return await self._consumer.committed(places)

    async def _commit_given(self, *, wait: bool) -> None:
        fresh = {
            place: offset
            for place, offset in self._given.items()
            if self._committed.get(place) != offset
        }
        if not fresh:
            return
        if wait:
            await self._consumer.commit(fresh)
        else:
            await self._consumer.commit_async(fresh)
        self._committed.update(fresh)

    def _revoked(self, places: list[TopicPartition]) -> None:
        """Runs on the consumer's thread: commits what was given while that is allowed, then drops
        the rest."""
        given = {place: self._given[place] for place in places if place in self._given}
        if self.new.auto_commit and given:
            with contextlib.suppress(ClientError):  # another member reads them again
                self._consumer.sync.commit(given, timeout_s=5.0)
        self._loop.call_soon_threadsafe(self._forget, places)

    def _forget(self, places: list[TopicPartition] | None) -> None:
        """Forgets partitions; None: all of them."""
        if places is None:
            self._kept.clear()
            self._given.clear()
            return
        gone = set(places)
        self._kept = deque(each for each in self._kept if place_of(each) not in gone)
        for place in gone:
            self._given.pop(place, None)

    # ---- the end

    def _alone(self) -> asyncio.Lock:
        """Returns the lock. Requests for one instance come one at a time, as in the other
        proxies."""
        if self._one_at_a_time.locked():
            raise busy(USED_AT_ONCE)
        return self._one_at_a_time

    async def close(self) -> None:
        self._consumer.stop()  # a request that waits for records ends
        async with self._one_at_a_time:
            self.user.in_use -= 1
            await self._leave()

    async def _leave(self) -> None:
        self._committed.clear()  # commit again what was sent without an answer
        if self.new.auto_commit:
            with contextlib.suppress(ClientError):  # the next member reads it again
                await self._commit_given(wait=True)
        await self._consumer.close()


def _twice() -> Refusal:
    said = "Subscription to topics, partitions and pattern are mutually exclusive."
    return Refusal(409, said, code=ILLEGAL_STATE)
