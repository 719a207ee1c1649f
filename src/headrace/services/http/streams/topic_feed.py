"""One topic as its streams read it: a consumer at its end, and the newest records in memory.

A feed begins with the first reader and ends some time after the last. Readers at the end, or not
far behind it, are served from memory (`recent_records.py`); the others read from the cluster, at
their own pace (`stream_catch_up.py`). Only committed records are read.
"""

from __future__ import annotations

import asyncio
import logging
import time

from headrace.client.consumer.async_consumer import AsyncConsumer
from headrace.client.errors import ClientError, LoginRefused, NoSuchTopic, Unreachable
from headrace.client.lookup.record_pages import Browser
from headrace.client.records import TopicPartition
from headrace.services.http.limits import HttpLimits
from headrace.services.http.refusal import UNPROCESSABLE, Refusal
from headrace.services.http.streams.recent_records import RecentRecords
from headrace.services.http.streams.stream_cursor import MOST_PARTITIONS, mark_of
from headrace.services.http.users.user_access import UserAccess

log = logging.getLogger("headrace.http")

BATCH = 500
POLL_S = 1.0
LOOK_FOR_PARTITIONS_S = 30.0
IDLE_S = 10.0


class TopicFeed:
    def __init__(self, user: UserAccess, topic: str, limits: HttpLimits) -> None:
        self._user, self.topic, self._limits = user, topic, limits
        self.recent: RecentRecords | None = None  # None until it has begun
        self.mark = ""
        self.failure: ClientError | None = None  # why it has ended
        self.readers = 0
        self.left_s = time.monotonic()
        self._changed = asyncio.Event()
        self._beginning = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    async def begin(self) -> RecentRecords:
        """Begins at the end of the topic, as it is now."""
        async with self._beginning:
            if self.recent is None:
                mark, starts = await self._user.run(self._ends)
                if len(starts) > MOST_PARTITIONS:
                    raise Refusal(
                        UNPROCESSABLE,
                        f"{self.topic} has {len(starts)} partitions; a stream reads up to "
                        f"{MOST_PARTITIONS}. Use a consumer instance.",
                    )
                self.mark = mark
                self.recent = RecentRecords(mark, starts, self._limits.feed_bytes)
                self._user.in_use += 1
                self._reading = asyncio.ensure_future(self._read(self.recent))
        return self.recent

    def _ends(self) -> tuple[str, dict[int, int]]:
        browser = Browser(self._user.connection, self.topic)
        try:
            ends = browser.ends(browser.partitions)
            if len(ends) < len(browser.partitions):
                raise Unreachable(f"Not every partition of {self.topic} has a leader now.")
            return mark_of(browser.topic_id), ends
        finally:
            browser.close()

    async def _read(self, recent: RecentRecords) -> None:
        consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
            self._user.connection,
            auto_offset_reset="none",
            settings={
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": self._limits.feed_bytes // 1024,
                "fetch.wait.max.ms": 500,
            },
        )
        look_at_s = time.monotonic() + LOOK_FOR_PARTITIONS_S
        try:
            await consumer.assign(self._places(recent))
            while True:
                if records := await consumer.batch(BATCH, POLL_S):
                    recent.add(records)
                    self._wake()
                if time.monotonic() >= look_at_s:
                    await self._look_for_partitions(consumer, recent)
                    look_at_s = time.monotonic() + LOOK_FOR_PARTITIONS_S
        except ClientError as failure:
            log.info("the feed of %s ends: %s", self.topic, failure)
            self.failure = failure
        except Exception:
            log.exception("the feed of %s has a fault", self.topic)
            self.failure = ClientError("Internal error, see the server's log.")
        finally:
            self._wake()
            await consumer.close()

    def _places(self, recent: RecentRecords) -> dict[TopicPartition, int]:
        return {TopicPartition(self.topic, p): offset for p, offset in recent.next.items()}

    async def _look_for_partitions(
        self, consumer: AsyncConsumer[bytes, bytes], recent: RecentRecords
    ) -> None:
        """Looks for partitions that were added: they are read from their beginning. If the topic
        was deleted and created again, this feed ends."""
        mark, ends = await self._user.run(self._ends)
        if mark != self.mark:
            raise NoSuchTopic(f"The topic {self.topic} was created again.")
        if new := ends.keys() - recent.next.keys():
            recent.floor.update(dict.fromkeys(new, 0))
            recent.next.update(dict.fromkeys(new, 0))
            await consumer.assign(self._places(recent))

    # ---- readers

    def leave(self) -> None:
        self.readers -= 1
        self.left_s = time.monotonic()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def wake(self) -> None:
        """Wakes the readers, so that they see that the server closes."""
        self._wake()

    async def wait(self, longest_s: float) -> None:
        """Waits until a record has come, or the time is over."""
        changed = self._changed
        try:
            async with asyncio.timeout(longest_s):
                await changed.wait()
        except TimeoutError:
            pass

    @property
    def is_idle(self) -> bool:
        return self.readers == 0 and time.monotonic() - self.left_s > IDLE_S

    async def close(self) -> None:
        """Closes the feed; the remaining readers learn the reason."""
        if self._reading is None:
            return
        if self.failure is None and self.readers:
            self.failure = LoginRefused("This user is not served any more; log in again.")
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._user.in_use -= 1
