"""One attempt at one record, or at one batch: decode, `once=`, observers, the handler, its results.

An exception of the handler, of any class, is raised unchanged and judged by the caller. The same
code serves coroutines on a loop and plain functions on threads: for plain functions nothing in it
ever suspends, and the slot runs the coroutine to its end by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from headrace.app.attempts.sender import published
from headrace.app.dispatch.record_in_hand import RecordInHand
from headrace.app.message import Message
from headrace.app.observation.observer import Observer, forgiven
from headrace.app.once.memory import OnceAttempt
from headrace.app.once.message_ids import remembered_as
from headrace.app.retry import AttemptTimedOut
from headrace.app.worker.subscription_runner import SubscriptionRunner
from headrace.client.records import HeaderList, Outgoing
from headrace.wire.contract import confirmations
from headrace.wire.contract.headers import CONFIRM

Written = list[Outgoing[Any, Any]]
MakeSafe = Callable[[Written], Awaitable[None]]


class Duplicate(Exception):
    """`once=` has this message already: it is done without the handler."""


class Attempts:
    """Calls the handler of one subscription."""

    def __init__(self, runner: SubscriptionRunner, *, make_safe: MakeSafe) -> None:
        """`make_safe` writes results and waits until they are acknowledged."""
        subscription = runner.subscription
        self.runner = runner
        self._make_safe = make_safe
        self.plan = subscription.plan
        self._handler = self.plan.handler
        self._once = subscription.once
        self._confirms = subscription.confirm
        self._observers = runner.observers
        limit_ms = subscription.retry.time_limit_ms
        self.time_limit_s = None if limit_ms is None else limit_ms / 1000
        self._decoders: dict[str, Any] = {}
        self._left: dict[RecordInHand, HeaderList] = {}  # left by attempts that failed a moment ago
        # The common case, on the path of every record.
        self.simple = (
            self.plan.only_value
            and not self.plan.yields
            and not self.plan.batch
            and self._once is None
            and not self._confirms
            and not self._observers
            and self.time_limit_s is None
        )

    def decoder(self, topic: str) -> Any:
        decode = self._decoders.get(topic)
        if decode is None:
            subscription = self.runner.subscription
            decode = self.plan.decode_for(topic, subscription.codec) or (lambda raw: None)
            self._decoders[topic] = decode
        return decode

    def value(self, record: RecordInHand) -> Any:
        """The decoded value. Raises Undecodable."""
        return self.decoder(record.stream.owned.topic)(record.native.value())

    async def one(self, record: RecordInHand) -> Written:
        """Handle a record; returns the records to publish for it. Raises what the handler
        raises."""
        value = self.value(record)
        message = record.message()
        with _observed(self._observers, self.runner.subscription, message):
            try:
                if self.time_limit_s is not None and self.plan.asynchronous:
                    written = await self._within_limit(record, value, message)
                else:
                    written = await self._with_once(record, value, message)
                return written + self.confirmation(message)
            except Duplicate:
                raise
            except BaseException:
                if self._observers:
                    self._left[record] = self.headers_for(message)
                raise

    def left_by(self, record: RecordInHand) -> HeaderList:
        """Headers for records that are written because the attempt failed: they belong to the
        attempt."""
        return self._left.pop(record, [])

    async def batch(self, values: list[Any], messages: list[Message]) -> Written:
        call = self._called(values, messages, None)
        if self.time_limit_s is None or not self.plan.asynchronous:
            results = await call
        else:
            try:
                async with asyncio.timeout(self.time_limit_s) as limit:
                    results = await call
            except TimeoutError as late:
                if not limit.expired():
                    raise
                raise self.timed_out() from late
        return self._published(results, messages[0])

    async def _within_limit(self, record: RecordInHand, value: Any, message: Message) -> Written:
        limit = asyncio.timeout(self.time_limit_s)
        try:
            async with limit:
                return await self._with_once(record, value, message)
        except TimeoutError as late:
            if not limit.expired():
                raise  # the handler's own
            raise self.timed_out() from late

    def timed_out(self) -> AttemptTimedOut:
        return AttemptTimedOut(
            f"{self.plan.name} did not end within {self.time_limit_s:g} seconds."
        )

    async def _with_once(self, record: RecordInHand, value: Any, message: Message) -> Written:
        """Handle a record with `once=`; returns the records that are still to be written for it."""
        if self._once is None:
            return self._published(await self._called(value, message, None), message)
        name = remembered_as(message.topic, message.id)
        async with self._once_attempt(name, record.written_at_ms) as attempt:
            if not attempt.duplicate:
                results = await self._called(value, message, attempt.db)
                # Publish before the message counts as handled: afterwards nothing would publish
                # them. A crash in between publishes them again, under the same ids.
                await self._make_safe(self._published(results, message))
        if attempt.duplicate:
            raise Duplicate
        return []

    @contextlib.asynccontextmanager
    async def _once_attempt(
        self, message_id: str, written_at_ms: int | None
    ) -> AsyncIterator[OnceAttempt]:
        once, group = self._once, self.runner.group
        assert once is not None
        if self.plan.asynchronous:
            async with once.attempt_async(group, message_id, written_at_ms) as attempt:
                yield attempt
        else:
            with once.attempt(group, message_id, written_at_ms) as attempt:
                yield attempt

    async def _called(self, value: Any, message: Any, db: Any) -> list[Any]:
        plan = self.plan
        if plan.only_value:
            result = self._handler(value)
        else:
            result = self._handler(**plan.arguments(value, message, db))
        match plan.kind:
            case "coroutine":
                return _results(await result)
            case "async generator":
                return [one async for one in result]
            case "generator":
                return list(result)
        return _results(result)

    def _published(self, results: list[Any], message: Message) -> Written:
        if not results:
            return []
        return self.results_of(results, message)

    def confirmation(self, message: Message) -> Written:
        """The confirmation, written when the message has had its effect, also if that was in an
        earlier attempt: the outbox sends a message again until it gets its confirmation."""
        asks = message.header(CONFIRM) if self._confirms else None
        if asks is None:
            return []
        value = confirmations.written(
            outbox_id=asks.decode("utf-8", "replace"),
            message_id=message.id,
            group=self.runner.group,
        )
        return [Outgoing(confirmations.TOPIC, value, message.id.encode(), [])]

    def results_of(self, results: Iterable[Any], message: Message) -> Written:
        subscription = self.runner.subscription
        records = published(
            iter(results),
            message,
            group=self.runner.group,
            default_topic=subscription.publish,
            codec=subscription.codec,
            headers=self.headers_for(message),
        )
        if subscription.shadow is not None:
            for record in records:
                record.topic = subscription.shadow.topic(record.topic)
        return records

    def headers_for(self, message: Message) -> HeaderList:
        found: HeaderList = []
        for observer in self._observers:
            with forgiven(observer):
                found += observer.headers(self.runner.subscription, message)
        return found


def _results(result: Any) -> list[Any]:
    if result is None:
        return []
    return result if isinstance(result, list) else [result]


@contextlib.contextmanager
def _observed(
    observers: tuple[Observer, ...], subscription: Any, message: Message
) -> Iterator[None]:
    if not observers:
        yield
        return
    with contextlib.ExitStack() as stack:
        for observer in observers:
            with forgiven(observer):
                around = observer.around(subscription, message)
                if around is not None:
                    around.__enter__()
                    stack.push(functools.partial(_left, observer, around))
        yield


def _left(observer: Observer, around: AbstractContextManager[None], *how: Any) -> bool:
    """Leave the observer's context. It neither raises nor swallows exceptions: only the handler's
    outcome counts."""
    with forgiven(observer):
        around.__exit__(*how)
    return False
