"""Runs the console until a signal: listen, report the address, serve."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from headrace.client.connection import ClientSettings
from headrace.console.application import make_console
from headrace.console.clusters import application_of, base_of
from headrace.console.console import Console
from headrace.console.security.logins import uses_passwords
from headrace.console.security.tokens import cookie_name
from headrace.edge.host_names import in_address, is_everywhere, is_loopback, our_names
from headrace.edge.listener import Listener, most_connections, tls_of_server
from headrace.edge.web_site import serve_until_stopped

Say = Callable[[str], None]

log = logging.getLogger("headrace.console")

KEEP_ALIVE_S = 30.0
LONGEST_STOP_S = 2.0
LONGEST_ADDRESS = 128 << 10  # a link keeps the whole state of a page, an Avro schema with it
PORTS_TRIED = 100
# A page that shows live records keeps one; without a bound they could take all our files.
MOST_CONNECTIONS = 2048
PORT_TAKEN = (errno.EADDRINUSE, errno.EACCES)


class DepartedReaders(logging.Filter):
    """Turns the traceback of a reader that left into one line; those of bugs stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        if isinstance(fault, (ConnectionError, TimeoutError, web.RequestPayloadError)):
            record.msg, record.args = f"{record.getMessage()}: {str(fault)[:200]}", None
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.INFO, "INFO"
        return True


# aiohttp logs a traceback for each reader that disconnects during an answer.
CONNECTIONS = logging.getLogger("headrace.console.connections")
CONNECTIONS.addFilter(DepartedReaders())


class CannotServe(Exception):
    """One sentence why the console does not start like this, and what to do."""


@dataclass(slots=True)
class Settings:
    host: str = "localhost"
    port: int = 8080
    name: str = ""  # of the cluster, in the switch of several
    others: tuple[tuple[str, ClientSettings], ...] = ()  # more clusters, by name
    read_only: bool = False
    login: bool = False  # ask for a user of the cluster and its password
    tls: tuple[Path, Path | None] | None = None  # certificate chain, and its key if it is apart
    names: tuple[str, ...] = ()  # by which browsers reach it, besides the host
    outboxes: tuple[str, ...] = ()  # databases whose outboxes are shown
    pipelines: Path | None = None  # the folder of pipelines that are shown
    park_to: str = ""  # where backlogs are parked: a database's address or a folder
    or_next_port: bool = False  # when the port is taken
    listening: socket.socket | None = None  # opened by the process that started this one
    state: Path | None = None  # where lag over time is kept; None: in memory
    ends_with_stdin: bool = False  # which a parent holds open as long as it lives


def run(connection: ClientSettings, settings: Settings, say: Say) -> None:
    """Runs until SIGINT or SIGTERM; calls `say` with the address once it listens."""
    serving = serve_until_stopped(
        lambda: Site(connection, settings), say, ends_with_stdin=settings.ends_with_stdin
    )
    asyncio.run(serving)


class Site:
    """The console at its address."""

    def __init__(self, connection: ClientSettings, settings: Settings) -> None:
        _require_safe(connection, settings)
        self._settings = settings
        self.console = self._console_of(settings.name, connection)
        self.consoles = [self.console]
        for name, other in settings.others:
            _require_safe(other, settings)
            self.consoles.append(self._console_of(name, other))
        self._tls = None if settings.tls is None else _tls(*settings.tls)
        self._runner = web.AppRunner(
            application_of(self.consoles),
            access_log=None,
            logger=CONNECTIONS,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=LONGEST_STOP_S,
            max_line_size=LONGEST_ADDRESS,
            auto_decompress=False,  # a few bytes could become many
        )
        self._listener: Listener | None = None
        self._most = most_connections(MOST_CONNECTIONS)
        self._has_refused = False

    def _console_of(self, name: str, connection: ClientSettings) -> Console:
        """The first cluster's outboxes and store of parked backlogs are not those of others."""
        settings, is_first = self._settings, name == self._settings.name
        return make_console(
            connection,
            read_only=settings.read_only,
            state=settings.state,
            login=settings.login,
            outboxes=settings.outboxes if is_first else (),
            pipelines_at=settings.pipelines,
            park_to=settings.park_to if is_first else "",
            name=name if settings.others else "",
            base=base_of(name) if settings.others else "",
            audit=None if is_first else self.console.audit,
        )

    async def open(self) -> str:
        """Listens; returns the address for a browser."""
        await self._runner.setup()
        port = await self._listen()
        tls = self._tls is not None
        for number, console in enumerate(self.consoles):
            console.guard.names = our_names(
                self._settings.host, port, self._settings.names, tls=tls
            )
            # Each cluster has its own session: a login at one says nothing about another.
            own = f"-{number}" if number else ""
            console.guard.cookie = cookie_name(port, tls=tls) + own
        named = self._settings.names or (self._settings.host,)
        return f"{'http' if self._tls is None else 'https'}://{in_address(named[0])}:{port}"

    async def _listen(self) -> int:
        server = self._runner.server
        assert server is not None, "set up"
        self._listener = Listener(
            server,
            count=lambda: len(server.connections),
            most=self._most,
            refusal=HTTPStatus.SERVICE_UNAVAILABLE,
            refused=self._refused,
        )
        settings = self._settings
        last = settings.port + (PORTS_TRIED if settings.or_next_port and settings.port else 0)
        port = settings.port
        while True:
            try:
                return await self._listener.open(
                    settings.host, port, listening=settings.listening, tls=self._tls
                )
            except OSError as taken:
                if port == last or taken.errno not in PORT_TAKEN:
                    raise
            port += 1

    def _refused(self) -> None:
        if not self._has_refused:
            self._has_refused = True
            log.warning("%d connections are open; others are refused meanwhile", self._most)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()


def _require_safe(connection: ClientSettings, settings: Settings) -> None:
    if settings.login and not uses_passwords(connection.settings):
        raise CannotServe(
            "People log in with users of the cluster, and the login mechanism is not known: give "
            "security.protocol=sasl_ssl and sasl.mechanism by --client-config or -X."
        )
    if is_loopback(settings.host):
        return
    if not settings.login or settings.tls is None:
        raise CannotServe(
            f"The console listens beyond this machine, on {settings.host}, only with --login and "
            "--tls-cert. From elsewhere one can also forward a port: "
            "ssh -L 8080:localhost:8080 HOST"
        )
    if is_everywhere(settings.host) and not settings.names:
        raise CannotServe(
            f"{settings.host} is not a name that a browser can use: give --name, the host name or "
            "address by which people open the console. Other names are refused."
        )


def _tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    try:
        return tls_of_server(certificate, key)
    except OSError as failure:
        raise CannotServe(f"{certificate} cannot be used for TLS: {failure}.") from None
