"""Runs triggers: one app, and so one consumer group, for each trigger of the file.

Because of its own group a trigger that is slow, or waits for its endpoint, delays no other; its lag
has its own name, `<group>.<trigger>`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.app.app import App
from headrace.app.message import Message
from headrace.app.retry import Retry
from headrace.app.triggers.calling import Calling, CallRefused
from headrace.app.triggers.function_target import FunctionTarget
from headrace.app.triggers.http_target import HttpTarget
from headrace.app.triggers.settings import Trigger, TriggerFile
from headrace.app.triggers.targets import Target
from headrace.client.connection import ClientSettings


@dataclass(slots=True)
class RunningTrigger:
    app: App
    target: Target
    calling: Calling


async def run(file: TriggerFile, connection: ClientSettings) -> None:
    """Run until cancelled; then drain the calls under way."""
    triggers = [started(trigger, file.group, connection) for trigger in file.triggers]
    try:
        async with asyncio.TaskGroup() as group:
            for trigger in triggers:
                group.create_task(trigger.app.serve())
    finally:
        for trigger in triggers:
            await trigger.target.close()


def started(trigger: Trigger, group: str, connection: ClientSettings) -> RunningTrigger:
    """The app of one trigger; it begins when it is served."""
    target = target_of(trigger)
    calling = Calling(trigger, target)
    app = App(connection, group=f"{group}.{trigger.name}")
    topic = trigger.topic if trigger.topic is not None else f"^{trigger.pattern}$"
    waits = trigger.retry
    retry = Retry(attempts=waits.attempts, first=waits.first_ms, longest=waits.longest_ms)
    subscribe(app, calling, [topic], retry)
    return RunningTrigger(app, target, calling)


def subscribe(app: App, calling: Calling, topics: Sequence[str], retry: Retry) -> None:
    trigger = calling.trigger

    async def call(messages: list[Message]) -> None:
        await calling(messages)

    call.__qualname__ = call.__name__ = trigger.name
    app.add(
        call,
        topics,
        retry=replace(retry, fatal=(*retry.fatal, CallRefused)),
        concurrency=trigger.concurrency,
        batch=trigger.batch.records,
        batch_wait_ms=trigger.batch.wait_ms if trigger.batch.records > 1 else 0,
    )


def target_of(trigger: Trigger) -> Target:
    if trigger.function is not None:
        return FunctionTarget(
            trigger.function,
            workers=trigger.concurrency,
            memory_bytes=trigger.memory_bytes,
            timeout_s=trigger.timeout_ms / 1000,
        )
    assert trigger.url is not None, "settings have one of the two"
    return HttpTarget(
        trigger.url,
        mode=trigger.mode,
        secret=trigger.secret,
        headers=trigger.headers,
        timeout_s=trigger.timeout_ms / 1000,
        allow_hosts=trigger.allow_hosts,
        connections=max(trigger.concurrency, 1),
        now_s=lambda: int(time.time()),
    )
