"""The one way from a page to the cluster: a few questions at a time, each with a time limit.

Questions are plain blocking functions of a connection and run on threads. If all threads are busy,
up to `MOST_WAITING` questions wait; more are refused at once, so that a cluster in trouble does not
get more and more questions. After the time limit the page gives up; the thread ends by itself when
the client's own time limit is over.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from headrace.client.connection import ClientSettings
from headrace.client.errors import BufferFull, ClientError, DeliveryFailed, Fenced
from headrace.client.producer.producer import Producer
from headrace.console.access.held_connection import HeldClientSettings, held
from headrace.console.access.parts import Part
from headrace.console.access.rates import RateMeter

Answer = TypeVar("Answer")

THREADS = 8
PERSONAL_THREADS = 4  # of each person who is logged in
MOST_WAITING = 64
LONGEST_S = 20.0
# The client's own limit is shorter, so that users read the client's message.
CLIENT_TIMEOUT_S = 8.0
# A message is written or refused within this time, so that its sender learns which.
SENDING = {"delivery.timeout.ms": "6000"}
LAST_WAIT_S = 2.0


# When the page that asks was asked for; a live part has none, and each of its questions is new.
page_began_s: ContextVar[float | None] = ContextVar("when the page began", default=None)


class TooBusy(ClientError):
    """So many questions are under way that this one was not asked."""


class Ended(ClientError):
    """The user has logged out, or the console stops."""


class TookTooLong(ClientError):
    """The cluster did not answer in time."""


class ClusterAccess:
    def __init__(self, connection: ClientSettings, *, threads: int = THREADS) -> None:
        self.connection: HeldClientSettings = held(connection)
        self.connection.timeout_s = min(connection.timeout_s, CLIENT_TIMEOUT_S)
        self.meter = RateMeter()  # of the topics that this connection may see
        self.is_metering = False
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="console")
        self._most = threads + MOST_WAITING
        self._under_way = 0
        self._is_closed = False
        self._producer: Producer[Any, Any] | None = None

    @property
    def bootstrap(self) -> str:
        return self.connection.bootstrap

    @property
    def answers(self) -> bool | None:
        """Whether a broker answered a question of the last seconds; None if there was none."""
        return self.connection.kept.metadata.answers

    @property
    def cluster(self) -> str:
        """The cluster's id, or its address until a broker has sent the id."""
        return self.connection.kept.metadata.cluster_id or self.bootstrap

    async def ask(
        self, question: Callable[..., Answer], *given: Any, longest_s: float = LONGEST_S
    ) -> Answer:
        """Runs `question(connection, *given)` on a thread and returns its answer."""
        if self._is_closed:
            raise Ended("You are logged out, or the console is stopping.")
        if self._under_way >= self._most:
            raise TooBusy("The console has too many requests in progress; try again in a moment.")
        self._under_way += 1
        since_s = page_began_s.get() or time.monotonic()
        call = functools.partial(question, self.connection.for_page(since_s), *given)
        asked = asyncio.get_running_loop().run_in_executor(self._threads, call)
        asked.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(asked), longest_s)
        except TimeoutError:
            raise TookTooLong(
                f"The cluster did not answer within {longest_s:g} seconds. It may be busy or "
                "partly down; reload the page to try again."
            ) from None

    async def part(self, question: Callable[..., Answer], *given: Any) -> Part[Answer]:
        """Asks like `ask`, for a part of a page that may be missing."""
        try:
            return Part(await self.ask(question, *given))
        except ClientError as failure:
            return Part(None, str(failure))

    def _done(self, asked: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        if not self._under_way:
            self.connection.kept.metadata.forget()  # it may be large, and no page waits for it
        if not asked.cancelled():
            asked.exception()  # the caller has gone and does not read it

    @contextmanager
    def sender(self) -> Iterator[Producer[Any, Any]]:
        """Yields the one producer for all that is sent here; call it on a thread of `ask`."""
        with self.connection.kept.lock:
            if self._producer is None:
                self._producer = Producer(self.connection, settings=SENDING)
            producer = self._producer
        try:
            yield producer
        except (DeliveryFailed, Fenced, BufferFull):
            # It may be unusable, for example after the cluster was created again: the next call
            # makes a new one.
            with self.connection.kept.lock:
                if self._producer is producer:
                    self._producer = None
            self._threads.submit(producer.close, LAST_WAIT_S)
            raise

    async def close(self) -> None:
        self._is_closed = True
        if self._producer is not None:
            await asyncio.get_running_loop().run_in_executor(
                None, self._producer.close, LAST_WAIT_S
            )
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.connection.forget()
