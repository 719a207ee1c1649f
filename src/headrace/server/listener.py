"""Where clients knock: listening sockets, and how many may come in.

Bounds: connections in all and per address. Who comes beyond them is closed at once and logged.
When the process has no descriptor left, accepting pauses instead of spinning.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import Counter
from dataclasses import dataclass

from headrace.server.connection import Connection
from headrace.server.loop import Loop
from headrace.serving.session import Session

log = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
LONGEST_PAUSE_WITHOUT_DESCRIPTORS_MS = 1_000  # or until somebody leaves
# Bytes on their way to a client on the same machine should stay in the processor's cache: fetches
# of 1 MiB took 0.42 processor seconds per GB with this buffer and 0.75 with the system's own tuning
# (4 MiB). Over a network the tuning is right, since it follows the round trip.
SEND_BUFFER_ON_LOOPBACK = 256 * 1024
# And large requests should arrive whole: batches of 256 KiB took 0.78 processor seconds per GB with
# this one and 1.33 with Kafka's default of 100 KiB, which hands them over in three pieces.
RECEIVE_BUFFER_ON_LOOPBACK = 1024 * 1024
CHOOSE = -1


@dataclass(slots=True, frozen=True)
class Limits:
    connections: int
    connections_per_address: int
    idle_ms: int


@dataclass(slots=True, frozen=True)
class Buffers:
    send_bytes: int = CHOOSE
    receive_bytes: int = CHOOSE

    def apply(self, sock: socket.socket, host: str) -> None:
        send_bytes, receive_bytes = self.send_bytes, self.receive_bytes
        if host.startswith("127.") or host == "::1":
            send_bytes = SEND_BUFFER_ON_LOOPBACK if send_bytes == CHOOSE else send_bytes
            receive_bytes = RECEIVE_BUFFER_ON_LOOPBACK if receive_bytes == CHOOSE else receive_bytes
        if send_bytes != CHOOSE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        if receive_bytes != CHOOSE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)


class Listener:
    """One listening socket of a named listener."""

    def __init__(self, name: str, host: str, port: int, *, backlog: int) -> None:
        self.name = name
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind(address)
            self.socket.listen(backlog)
        except OSError:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        self.host: str = self.socket.getsockname()[0]
        self.port: int = self.socket.getsockname()[1]


class Door:
    """Lets clients in through all listeners, within the limits."""

    def __init__(
        self, loop: Loop, listeners: list[Listener], limits: Limits, buffers: Buffers
    ) -> None:
        self.loop = loop
        self.listeners = listeners
        self.limits = limits
        self.buffers = buffers
        self.accepted = 0
        self._per_address: Counter[str] = Counter()
        self._paused: list[Listener] = []
        loop.on_close = self._left

    def open(self) -> None:
        now_ms = self.loop.now.monotonic_ms
        for listener in self.listeners:
            self._watch(listener)
        self.loop.timers.every(LONGEST_PAUSE_WITHOUT_DESCRIPTORS_MS, self._resume, now_ms)
        check_ms = max(100, min(30_000, self.limits.idle_ms // 10))
        self.loop.timers.every(check_ms, lambda: self.loop.close_idle(self.limits.idle_ms), now_ms)

    def change_limits(self, limits: Limits) -> None:
        """From now on; who is in stays in."""
        self.limits = limits

    def close(self) -> None:
        for listener in self.listeners:
            self.loop.stop_calling(listener.socket)
            listener.socket.close()
        self.listeners = []

    def _watch(self, listener: Listener) -> None:
        self.loop.call_when_readable(listener.socket, lambda: self._accept(listener))

    def _resume(self) -> None:
        paused, self._paused = self._paused, []
        for listener in paused:
            if listener in self.listeners:
                self._watch(listener)

    def _accept(self, listener: Listener) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                if failure.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    log.error("cannot accept connections for the moment: %s", failure)
                    self.loop.stop_calling(listener.socket)
                    self._paused.append(listener)
                    return
                continue  # the client left before it was let in
            self._let_in(listener, sock, address)

    def _let_in(self, listener: Listener, sock: socket.socket, address: tuple[str, int]) -> None:
        host, port = address[:2]
        if len(self.loop.connections) >= self.limits.connections:
            self._turn_away(sock, host, f"all {self.limits.connections} connections are taken")
            return
        if self._per_address[host] >= self.limits.connections_per_address:
            most = self.limits.connections_per_address
            self._turn_away(sock, host, f"it has {most} connections already")
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffers.apply(sock, host)
        self._per_address[host] += 1
        self.accepted += 1
        session = Session(host, listener.name)
        connection = Connection(sock, session, f"{host}:{port}", self.loop.now.monotonic_ms)
        session.connection = connection
        self.loop.add(connection)

    def _turn_away(self, sock: socket.socket, host: str, why: str) -> None:
        self.loop.refused += 1
        log.warning("turned away a connection of %s: %s", host, why)
        sock.close()

    def _left(self, connection: Connection) -> None:
        host = connection.session.client_host
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]
        if self._paused:
            self._resume()
