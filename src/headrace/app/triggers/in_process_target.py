"""A target of `@app.trigger`: a function of the app's own program.

It takes a list of events and returns nothing, or the ids of those that failed; an exception fails
the call. Coroutines run on the app's loop, plain functions on a thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from headrace.app.triggers.cloud_events import Event
from headrace.app.triggers.targets import Failure, TargetFailed

EventHandler = Callable[[list[Event]], Any]


class InProcessTarget:
    def __init__(self, function: EventHandler) -> None:
        self._function = function
        self._asynchronous = inspect.iscoroutinefunction(function)

    async def call(self, events: list[Event]) -> list[Failure]:
        try:
            if self._asynchronous:
                failed = await self._function(events)
            else:
                failed = await asyncio.to_thread(self._function, events)
        except Exception as problem:
            reason = f"{type(problem).__name__}: {problem}"
            raise TargetFailed(reason, retriable=True) from problem
        return [Failure(str(id), "named by the function") for id in failed or ()]

    async def close(self) -> None:
        """Does nothing: nothing was opened."""
