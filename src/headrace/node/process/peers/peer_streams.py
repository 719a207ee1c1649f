"""The bytes between this node and another one that it has called: plain, or by TLS.

A stream takes all that is put into it and sends what the socket takes; receiving raises
BlockingIOError when nothing is there, as a socket does. TLS goes through memory, as on the other
side (`tls.py`), so nothing that OpenSSL wants can stay unseen by the poller.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from socket import socket
from typing import Protocol

from headrace.environment import Buffer

# One send of more would only be cut by the socket's buffer.
JOIN_UP_TO = 256 * 1024
CIPHERTEXT_BYTES = 64 * 1024


class Stream(Protocol):
    @property
    def is_ready(self) -> bool:
        """The handshake is complete: requests may be sent."""
        ...

    @property
    def has_unsent(self) -> bool: ...

    def put(self, pieces: Iterable[Buffer]) -> None: ...

    def send(self) -> None:
        """Send as much as the socket takes now."""
        ...

    def receive_into(self, view: memoryview) -> int:
        """0: the other side has ended it. Raises BlockingIOError, or OSError if it is broken."""
        ...


class PlainStream:
    __slots__ = ("_socket", "_unsent", "receive_into")

    is_ready = True

    def __init__(self, sock: socket) -> None:
        self._socket = sock
        self._unsent: list[Buffer] = []
        self.receive_into: Callable[[memoryview], int] = sock.recv_into

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def put(self, pieces: Iterable[Buffer]) -> None:
        self._unsent += pieces

    def send(self) -> None:
        unsent = self._unsent
        with suppress(BlockingIOError):
            while unsent:
                run, count = _first_run(unsent)
                sent = self._socket.send(run)
                del unsent[:count]
                if sent < len(run):
                    unsent.insert(0, memoryview(run)[sent:])
                    return


def _first_run(pieces: list[Buffer]) -> tuple[Buffer, int]:
    """Small pieces as one; how many they were."""
    size = count = 0
    for piece in pieces:
        if count and size + len(piece) > JOIN_UP_TO:
            break
        size += len(piece)
        count += 1
    return (pieces[0] if count == 1 else b"".join(pieces[:count])), count


class TlsStream:
    __slots__ = ("_socket", "_tls", "_incoming", "_outgoing", "_encrypted", "_shaken", "_buffer")

    def __init__(self, sock: socket, context: ssl.SSLContext, host: str) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._encrypted = bytearray()  # what the socket has not taken yet
        self._shaken = False
        self._buffer = memoryview(bytearray(CIPHERTEXT_BYTES))
        self._shake_hands()

    @property
    def is_ready(self) -> bool:
        return self._shaken

    @property
    def has_unsent(self) -> bool:
        return bool(self._encrypted)

    def put(self, pieces: Iterable[Buffer]) -> None:
        for piece in pieces:
            view, at = memoryview(piece), 0
            while at < len(view):
                at += self._tls.write(view[at:])
        self._take_encrypted()

    def send(self) -> None:
        with suppress(BlockingIOError):
            while self._encrypted:
                del self._encrypted[: self._socket.send(self._encrypted)]

    def receive_into(self, view: memoryview) -> int:
        while True:
            if self._shaken:
                with suppress(ssl.SSLWantReadError):
                    # With a buffer, it returns how many bytes it has filled.
                    return self._tls.read(len(view), view)  # type: ignore[return-value]
            received = self._socket.recv_into(self._buffer)
            if not received:
                return 0
            self._incoming.write(self._buffer[:received])
            if not self._shaken:
                self._shake_hands()

    def _shake_hands(self) -> None:
        """One step; an ssl.SSLError is an OSError and ends the stream."""
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            self._shaken = True
        self._take_encrypted()

    def _take_encrypted(self) -> None:
        if self._outgoing.pending:
            self._encrypted += self._outgoing.read()
