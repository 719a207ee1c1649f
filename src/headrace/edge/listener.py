"""Accepts connections for an asyncio server, up to a limit; one more gets a refusal and its end.

The limit is kept below the number of files that the process may open. Handshakes of TLS that take
too long are ended. What is served on a connection is its protocol's business.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from os import PathLike

log = logging.getLogger(__name__)

BACKLOG = 1024
HANDSHAKE_S = 10.0
KEPT_FILES = 512


class Listener:
    """`connected` makes the protocol of a connection; `count` returns how many are open."""

    def __init__(
        self,
        connected: Callable[[], asyncio.BaseProtocol],
        *,
        count: Callable[[], int],
        most: int,
        refusal: HTTPStatus,
        refused: Callable[[], None],
    ) -> None:
        self._connected, self._count, self._most = connected, count, most
        self._refusal, self._refused = _answer(refusal), refused
        self._server: asyncio.Server | None = None

    async def open(
        self,
        host: str,
        port: int,
        *,
        listening: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Listens at the address, or on a socket that is open already; returns the port."""
        loop = asyncio.get_running_loop()
        handshake_s = None if tls is None else HANDSHAKE_S
        if listening is not None:
            self._server = await loop.create_server(
                self._accepted,
                sock=listening,
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=handshake_s,
            )
        else:
            self._server = await loop.create_server(
                self._accepted,
                host,
                port,
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=handshake_s,
            )
        # A name may have several addresses; with port 0 each of their sockets has its own port.
        return int(self._server.sockets[-1].getsockname()[1])

    def close(self) -> None:
        """Accepts no more connections; those that are open stay."""
        if self._server is not None:
            self._server.close()

    def _accepted(self) -> asyncio.BaseProtocol:
        if self._count() < self._most:
            return self._connected()
        self._refused()
        return _OneTooMany(self._refusal)


class _OneTooMany(asyncio.Protocol):
    """A connection beyond the limit."""

    def __init__(self, refusal: bytes) -> None:
        self._refusal = refusal

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._refusal)
        transport.close()


def _answer(status: HTTPStatus) -> bytes:
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nRetry-After: 1\r\nConnection: close\r\n"
        "Content-Length: 0\r\n\r\n"
    ).encode()


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


def tls_of_server(
    certificate: str | PathLike[str], key: str | PathLike[str] | None
) -> ssl.SSLContext:
    """Raises OSError, of which SSLError is one, if the PEM files cannot be used."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context
