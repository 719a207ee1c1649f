"""`@app.trigger(...)`: a function of the program becomes a trigger of its app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.app.retry import Duration, Retry, milliseconds
from headrace.app.triggers.calling import Calling
from headrace.app.triggers.filters import Filter
from headrace.app.triggers.in_process_target import EventHandler, InProcessTarget
from headrace.app.triggers.settings import BatchSettings, Trigger

if TYPE_CHECKING:
    from headrace.app.app import App


def trigger(
    app: App,
    topics: Sequence[str],
    *,
    filter: str | None = None,
    batch: int = 1,
    bytes: int = 1_048_576,
    wait: Duration = "1s",
    rate: float | None = None,
    concurrency: int = 1,
    retry: Retry | None = None,
) -> Callable[[EventHandler], EventHandler]:
    from headrace.app.triggers.running_triggers import subscribe

    def subscribed(function: EventHandler) -> EventHandler:
        settings = Trigger(
            name=f"{function.__module__}.{function.__qualname__}",
            filter=None if filter is None else Filter(filter),
            batch=BatchSettings(batch, bytes, milliseconds(wait, "wait")),
            rate=rate,
            concurrency=concurrency,
        )
        subscribe(app, Calling(settings, InProcessTarget(function)), topics, retry or Retry())
        return function

    return subscribed
