"""Runs the console until a signal: listen, say where, serve."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web

from headrace.client.connection import Connection
from headrace.console.application import application, make_console
from headrace.console.security.addresses import is_loopback, our_names

Say = Callable[[str], None]

KEEP_ALIVE_S = 30.0
LONGEST_STOP_S = 2.0
PORTS_TRIED = 100
PORT_TAKEN = (errno.EADDRINUSE, errno.EACCES)


class NotLoopback(Exception):
    """There is no login yet, so nobody else's machine may reach the console."""


@dataclass(slots=True)
class Settings:
    host: str = "localhost"
    port: int = 8080
    read_only: bool = False
    or_next_port: bool = False  # when the port is taken
    listening: socket.socket | None = None  # opened by whoever started this process
    ends_with_stdin: bool = False  # which a parent holds open as long as it lives


def run(connection: Connection, settings: Settings, say: Say) -> None:
    """Until SIGINT or SIGTERM; `say` hears the address once it listens."""
    asyncio.run(_run(connection, settings, say))


async def _run(connection: Connection, settings: Settings, say: Say) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if settings.ends_with_stdin:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    site = Site(connection, settings)
    try:
        say(await site.open())
        with suppress(asyncio.CancelledError):
            await stop.wait()
    finally:
        await site.close()


class Site:
    """The console on its address."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        if not is_loopback(settings.host):
            raise NotLoopback(
                f"The console has no login yet, so it listens on this machine only, not on "
                f"{settings.host}. From elsewhere, forward a port: ssh -L 8080:localhost:8080 HOST"
            )
        self.console = make_console(connection, read_only=settings.read_only)
        self._settings = settings
        self._runner = web.AppRunner(
            application(self.console),
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=LONGEST_STOP_S,
            auto_decompress=False,  # a few bytes could become many
        )

    async def open(self) -> str:
        """Listen; the address for a browser."""
        await self._runner.setup()
        port = await self._listen()
        self.console.guard.names = our_names(self._settings.host, port)
        host = self._settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def _listen(self) -> int:
        if self._settings.listening is not None:
            await web.SockSite(self._runner, self._settings.listening).start()
            return int(self._settings.listening.getsockname()[1])
        host, first = self._settings.host, self._settings.port
        last = first + (PORTS_TRIED if self._settings.or_next_port and first else 0)
        for port in range(first, last + 1):
            try:
                await web.TCPSite(self._runner, host, port).start()
                break
            except OSError as taken:
                if port == last or taken.errno not in PORT_TAKEN:
                    raise
        return int(self._runner.addresses[-1][1])

    async def close(self) -> None:
        await self._runner.cleanup()
