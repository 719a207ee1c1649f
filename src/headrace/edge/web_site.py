"""Runs a web server until a signal, or until the process that started it has ended."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol


class WebSite(Protocol):
    """A server at its address."""

    async def open(self) -> str:
        """Listens; returns the address."""
        ...

    async def close(self) -> None: ...


async def serve_until_stopped(
    make: Callable[[], WebSite], say: Callable[[str], None], *, ends_with_stdin: bool
) -> None:
    """Runs until SIGINT or SIGTERM; calls `say` with the address once the server listens.

    `ends_with_stdin`: a parent holds our standard input open as long as it lives.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if ends_with_stdin:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    site = make()
    try:
        say(await site.open())
        with suppress(asyncio.CancelledError):
            await stop.wait()
    finally:
        await site.close()
