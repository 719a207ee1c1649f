"""A trigger's handler: turns a batch of records into calls of its target, and reports failures.

Records that the filter rejects are done. The others go in calls of at most `bytes`, no faster than
`rate`. A call that is refused as a whole is split in two until the bad record is found, so its
neighbours get through. While the breaker is open no call is made, and waiting does not count as an
attempt: an endpoint that is down for an hour causes no dead letters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headrace.app.message import Message, PartialFailure
from headrace.app.retry import TryLater
from headrace.app.triggers.breaker import BreakerState, CircuitBreaker
from headrace.app.triggers.cloud_events import Event
from headrace.app.triggers.filters import facts_of
from headrace.app.triggers.settings import Trigger
from headrace.app.triggers.targets import Target, TargetFailed

CE_TYPE = "ce_type"


class CallRefused(Exception):
    """The target will never accept this record."""


class Failed(Exception):
    """The target failed with this record; a retry may succeed."""


@dataclass(slots=True)
class Call:
    """One record within a batch."""

    at: int
    event: Event


class Calling:
    """The handler of one trigger for `app.on`."""

    def __init__(
        self,
        trigger: Trigger,
        target: Target,
        *,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.trigger = trigger
        self._target = target
        self._now_ms = now_ms
        self._sleep = sleep
        self._breaker = CircuitBreaker()
        self._next_call_ms = 0.0
        self.calls = 0
        self.filtered = 0

    async def __call__(self, messages: list[Message]) -> None:
        wanted = self._wanted(messages)
        failed: dict[int, BaseException] = {}
        for call in by_size(wanted, self.trigger.batch.bytes):
            failed |= await self._call(call)
        if failed:
            raise PartialFailure(sorted(failed), errors=failed)

    def _wanted(self, messages: list[Message]) -> list[Call]:
        accepts = self.trigger.filter.accepts if self.trigger.filter is not None else None
        wanted = [
            Call(at, event_of(message, self.trigger))
            for at, message in enumerate(messages)
            if accepts is None or accepts(facts_of(message))
        ]
        self.filtered += len(messages) - len(wanted)
        return wanted

    async def _call(self, calls: list[Call]) -> dict[int, BaseException]:
        """Call the target; returns the failed records with their errors."""
        await self._wait_for_turn()
        try:
            named = await self._target.call([call.event for call in calls])
        except TargetFailed as failure:
            return await self._whole_failed(calls, failure)
        except BaseException:  # this shows nothing about the endpoint
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        reasons = {failure.id: failure.reason for failure in named}
        unknown = reasons.keys() - {call.event.id for call in calls}
        if unknown:  # any record may be meant: none of them is done
            stray = f"the target named {min(unknown)[:100]!r} as failed, which is not in this call"
            reasons = {call.event.id: stray for call in calls} | reasons
        return {
            call.at: Failed(reasons[call.event.id]) for call in calls if call.event.id in reasons
        }

    async def _whole_failed(
        self, calls: list[Call], failure: TargetFailed
    ) -> dict[int, BaseException]:
        if failure.target_is_down:
            self._breaker.failed(self._now_ms())
            return dict.fromkeys((call.at for call in calls), self._down(failure))
        self._breaker.succeeded()  # it answered
        if len(calls) > 1:
            middle = len(calls) // 2
            first = await self._call(calls[:middle])
            return first | await self._call(calls[middle:])
        kind = Failed if failure.retriable else CallRefused
        return {calls[0].at: kind(str(failure))}

    def _down(self, failure: TargetFailed) -> BaseException:
        """The error for records of a failed call; while the breaker is open it does not count as an
        attempt."""
        if self._breaker.state is BreakerState.OPEN:
            rest_ms = max(1, self._breaker.closes_at_ms - self._now_ms(), failure.retry_after_ms)
            return TryLater(str(failure), after=rest_ms)
        if failure.retry_after_ms:
            return TryLater(str(failure), after=failure.retry_after_ms)
        return Failed(str(failure))

    async def _wait_for_turn(self) -> None:
        while wait_ms := self._breaker.wait_ms(self._now_ms()):
            await self._sleep(wait_ms / 1000)
        if self.trigger.rate is not None:
            now_ms = self._now_ms()
            turn_ms = max(self._next_call_ms, now_ms)
            self._next_call_ms = turn_ms + 1000 / self.trigger.rate
            if turn_ms > now_ms:
                await self._sleep((turn_ms - now_ms) / 1000)
        self.calls += 1


def by_size(calls: list[Call], most_bytes: int) -> list[list[Call]]:
    """Split into calls of at most `most_bytes` of data; a record that is larger goes alone."""
    parts: list[list[Call]] = []
    size = 0
    for call in calls:
        length = len(call.event.data or b"")
        if not parts or size + length > most_bytes:
            parts.append([])
            size = 0
        parts[-1].append(call)
        size += length
    return parts


def event_of(message: Message, trigger: Trigger) -> Event:
    named = message.header(CE_TYPE)
    return Event(
        id=message.id,
        source=f"/{message.topic}/{message.partition}",
        type=trigger.type if named is None else named.decode(errors="replace"),
        time_ms=-1 if message.timestamp_ms is None else message.timestamp_ms,
        subject=None if message.key is None else message.key.decode(errors="replace"),
        data=message.value,
    )
