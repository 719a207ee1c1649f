"""Runs an app in the foreground: until a signal to stop, or within a loop of the caller."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.app.app import App


def run_until_signal(app: App) -> None:
    """Run until SIGINT or SIGTERM, then stop in an orderly way; raises a failure of the worker."""
    told = threading.Event()
    before: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda *_: told.set())
    try:
        app.start()
        worker = app.worker
        assert worker is not None
        while not told.is_set() and not worker.wait(0.2):
            pass
        failure = worker.failure
        app.stop()
        if failure is not None:
            raise failure
    finally:
        for replaced, handler in before.items():
            signal.signal(replaced, handler)


async def serve(app: App) -> None:
    """Run the handlers on this loop. Cancel to stop."""
    loop = asyncio.get_running_loop()
    beginning = asyncio.ensure_future(asyncio.to_thread(app.begin, loop))
    try:
        worker = await asyncio.shield(beginning)
    except asyncio.CancelledError:  # a thread cannot be cancelled: the app begins all the same
        if await asyncio.wait([beginning]) and beginning.exception() is None:
            await asyncio.to_thread(app.stop)
        raise
    worker.watch_loop()
    try:
        while not worker.wait(0):
            await asyncio.sleep(0.1)
    finally:
        await asyncio.shield(asyncio.to_thread(app.stop))
    if worker.failure is not None:
        raise worker.failure
