"""Runs the HTTP server until a signal: listen, report the address, serve; at the end finish
requests."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from headrace.client.connection import ClientSettings
from headrace.edge.host_names import in_address, is_loopback, our_names
from headrace.services.http.direct_requests import DirectRequests
from headrace.services.http.door import Door
from headrace.services.http.guard import Guard
from headrace.services.http.http_connection import HttpConnection
from headrace.services.http.limits import HttpLimits

Say = Callable[[str], None]

log = logging.getLogger("headrace.http")

BACKLOG = 1024
KEPT_FILES = 512
SWEEP_S = 5.0
THREADS = 48
LINGER_S = 2.0
HANDSHAKE_S = 10.0
# aiohttp logs each malformed request with a traceback: a client that sends many would fill the log.
MALFORMED = logging.getLogger("headrace.http.malformed")
MALFORMED.setLevel(logging.CRITICAL)
TOO_MANY = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)


class NotGuarded(Exception):
    """Other machines would reach the server without TLS or without a login."""


@dataclass(slots=True, kw_only=True)
class Settings:
    host: str = "localhost"
    port: int = 8082
    listening: socket.socket | None = None  # opened by the process that started this one
    ends_with_stdin: bool = False  # which a parent holds open as long as it lives
    certificate: str | None = None  # PEM files
    key: str | None = None
    login: bool = False
    mechanism: str = "SCRAM-SHA-512"
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    limits: HttpLimits = field(default_factory=HttpLimits)


def run(connection: ClientSettings, settings: Settings, say: Say) -> None:
    """Runs until SIGINT or SIGTERM; calls `say` with the address once it listens."""
    asyncio.run(_run(connection, settings, say))


async def _run(connection: ClientSettings, settings: Settings, say: Say) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if settings.ends_with_stdin:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    site = Site(connection, settings)
    try:
        say(await site.open())
        with suppress(asyncio.CancelledError):
            await stop.wait()
    finally:
        await site.close()


class Site:
    """The HTTP server at its address."""

    def __init__(self, connection: ClientSettings, settings: Settings) -> None:
        if not is_loopback(settings.host) and not (settings.certificate and settings.login):
            raise NotGuarded(
                f"Other machines reach {settings.host}: the HTTP server listens there only with "
                "--tls-cert and --login. From elsewhere without them, forward a "
                "port: ssh -L 8082:localhost:8082 HOST"
            )
        self._settings = settings
        self.door = Door(
            connection,
            settings.limits,
            Guard(frozenset(), settings.origins),
            login=settings.login,
            mechanism=settings.mechanism,
        )
        self._direct = DirectRequests(self.door)
        self._server = web.Server(self.door.handle, handler_cancellation=True)
        self._per_connection: dict[str, Any] = {
            "access_log": None,
            "logger": MALFORMED,
            "keepalive_timeout": settings.limits.idle_s,
            "lingering_time": LINGER_S,
            "auto_decompress": False,  # a few bytes could become many
        }
        # Accepted, and not among the server's connections yet.
        self._coming: dict[HttpConnection, float] = {}
        self._most = most_connections(settings.limits.connections)
        self._listening: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> str:
        """Listens; returns the address."""
        settings = self._settings
        context = _tls(settings)
        handshake_s = None if context is None else HANDSHAKE_S
        loop = asyncio.get_running_loop()
        # Transactions wait for the cluster there, each on a thread.
        loop.set_default_executor(ThreadPoolExecutor(THREADS, "headrace-http-waiting"))
        if settings.listening is not None:
            self._listening = await loop.create_server(
                self._connected,
                sock=settings.listening,
                backlog=BACKLOG,
                ssl=context,
                ssl_handshake_timeout=handshake_s,
            )
        else:
            host = "127.0.0.1" if settings.host == "localhost" else settings.host
            self._listening = await loop.create_server(
                self._connected,
                host,
                settings.port,
                backlog=BACKLOG,
                ssl=context,
                ssl_handshake_timeout=handshake_s,
            )
        port = int(self._listening.sockets[0].getsockname()[1])
        scheme = "http" if context is None else "https"
        self.door.base = f"{scheme}://{in_address(settings.host)}:{port}"
        self.door.guard.names = _names(settings, port, context is not None)
        self._sweeping = asyncio.ensure_future(self._sweep())
        return self.door.base

    def _connected(self) -> asyncio.BaseProtocol:
        most = self._most
        if len(self._server.connections) + len(self._coming) >= most:
            self._count_anew()
        if len(self._server.connections) + len(self._coming) >= most:
            self.door.counters.connections_refused += 1
            return _OneTooMany()
        loop = asyncio.get_running_loop()
        coming = HttpConnection(self._server, loop=loop, **self._per_connection)
        coming.made, coming.offer = self._made, self._direct.offer
        coming.misunderstood, coming.owe = self.door.misunderstood, self.door.owe
        coming.stalled, coming.stall_s = self.door.stalled, self._settings.limits.stall_s
        self._coming[coming] = loop.time()
        return coming

    def _made(self, made: HttpConnection) -> None:
        self._coming.pop(made, None)

    def _count_anew(self) -> None:
        """Counts connections again, without those whose TLS handshake failed."""
        oldest_s = asyncio.get_running_loop().time() - HANDSHAKE_S
        self._coming = {each: at_s for each, at_s in self._coming.items() if at_s > oldest_s}

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._count_anew()
            try:
                await self.door.sweep()
            except Exception:
                log.exception("the cleanup of idempotency keys failed; it is tried again")

    async def close(self) -> None:
        """Takes no more requests, lets those under way end, writes what is left."""
        self.door.drain()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._listening is not None:
            self._listening.close()
        self._server.pre_shutdown()
        await self._server.shutdown(self._settings.limits.grace_s)
        await self.door.close()


def most_connections(wanted: int) -> int:
    """Returns how many connections there are files for; some files are reserved for the cluster.
    Without that the server could neither accept a client nor reach a broker."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    most = min(wanted, max(files - KEPT_FILES, files // 2))
    if most < wanted:
        log.warning("%d files may be open: %d connections instead of %d", files, most, wanted)
    return most


class _OneTooMany(asyncio.Protocol):
    """For a connection beyond the limit: an answer and its end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(TOO_MANY)
        transport.close()


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.certificate, settings.key)
    return context


def _names(settings: Settings, port: int, tls: bool) -> frozenset[str] | None:
    """Returns the allowed Host names, or None for any: beyond loopback, TLS and the login protect
    the data."""
    if not is_loopback(settings.host) and not settings.hosts:
        return None
    return our_names(settings.host, port, settings.hosts, tls=tls)
