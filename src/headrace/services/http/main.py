"""Runs the HTTP server until a signal: listen, report the address, serve; at the end finish
requests."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import web

from headrace.client.connection import ClientSettings
from headrace.edge.host_names import in_address, is_loopback, our_names
from headrace.edge.listener import HANDSHAKE_S, Listener, most_connections, tls_of_server
from headrace.edge.web_site import serve_until_stopped
from headrace.services.http.direct_requests import DirectRequests
from headrace.services.http.door import Door
from headrace.services.http.guard import Guard
from headrace.services.http.http_connection import (
    ConnectionSettings,
    HttpConnection,
    connection_of,
)
from headrace.services.http.limits import HttpLimits

Say = Callable[[str], None]

log = logging.getLogger("headrace.http")

SWEEP_S = 5.0
THREADS = 48
LINGER_S = 2.0
LEAST_GRACE_S = 0.1  # 0 would be no limit to aiohttp


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
    serving = serve_until_stopped(
        lambda: Site(connection, settings), say, ends_with_stdin=settings.ends_with_stdin
    )
    asyncio.run(serving)


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
        server = web.Server(self._handle, handler_cancellation=True)
        self._connections = ConnectionSettings(
            server=server,
            offer=self._direct.offer,
            made=self._made,
            misunderstood=self.door.misunderstood,
            owe=self.door.owe,
            stalled=self.door.stalled,
            stall_s=settings.limits.stall_s,
            idle_s=settings.limits.idle_s,
            linger_s=LINGER_S,
        )
        # Accepted, and not among the open connections yet.
        self._coming: dict[HttpConnection, float] = {}
        self._most = most_connections(settings.limits.connections)
        self._listener = Listener(
            self._connected,
            count=self._count,
            most=self._most,
            refusal=HTTPStatus.TOO_MANY_REQUESTS,
            refused=self._refused,
        )
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> str:
        """Listens; returns the address."""
        settings = self._settings
        tls = (
            None
            if settings.certificate is None
            else tls_of_server(settings.certificate, settings.key)
        )
        # Transactions wait for the cluster there, each on a thread.
        asyncio.get_running_loop().set_default_executor(
            ThreadPoolExecutor(THREADS, "headrace-http-waiting")
        )
        host = "127.0.0.1" if settings.host == "localhost" else settings.host
        port = await self._listener.open(host, settings.port, listening=settings.listening, tls=tls)
        scheme = "http" if tls is None else "https"
        self.door.base = f"{scheme}://{in_address(settings.host)}:{port}"
        self.door.guard.names = _names(settings, port, tls is not None)
        self._sweeping = asyncio.ensure_future(self._sweep())
        return self.door.base

    def _count(self) -> int:
        """Returns how many connections are open or in their handshake."""
        if len(self._connections.open) + len(self._coming) >= self._most:
            self._count_anew()
        return len(self._connections.open) + len(self._coming)

    def _refused(self) -> None:
        self.door.counters.connections_refused += 1

    def _connected(self) -> HttpConnection:
        coming = HttpConnection(self._connections)
        self._coming[coming] = asyncio.get_running_loop().time()
        return coming

    def _handle(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        connection_of(request).handling_began()
        return self.door.handle(request)

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
        self._listener.close()
        grace_s = self._settings.limits.grace_s
        until_s = asyncio.get_running_loop().time() + grace_s
        ending = [each.drain() for each in list(self._connections.open)]
        if direct := [each for each in ending if each is not None]:
            await asyncio.wait(direct, timeout=grace_s)
        left_s = max(LEAST_GRACE_S, until_s - asyncio.get_running_loop().time())
        await self._connections.server.shutdown(left_s)
        for each in list(self._connections.open):
            each.close()
        await self.door.close()


def _names(settings: Settings, port: int, tls: bool) -> frozenset[str] | None:
    """Returns the allowed Host names, or None for any: beyond loopback, TLS and the login protect
    the data."""
    if not is_loopback(settings.host) and not settings.hosts:
        return None
    return our_names(settings.host, port, settings.hosts, tls=tls)
