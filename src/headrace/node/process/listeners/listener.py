"""Listening sockets: accepts connections within the limits.

The limits are in `connection_limits.py`. A connection above a limit is closed at once and logged; a
listener with too many new connections per second pauses, and a connection of an address that
connects too often is closed a little later. When the process has no descriptor left, accepting
pauses instead of spinning. Bytes are not read here (`loop.py`).
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.node.process.listeners.connection import Connection
from headrace.node.process.listeners.connection_limits import ConnectionLimits, Doorkeeper
from headrace.node.process.listeners.newcomers import Newcomers, has_arrived
from headrace.node.process.loop import Loop
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.session import Session

if TYPE_CHECKING:
    from headrace.node.process.listeners.security import Security

log = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
LONGEST_PAUSE_WITHOUT_DESCRIPTORS_MS = 1_000  # or until a connection closes
# Bytes for a client on the same machine should stay in the processor's cache: fetches of 1 MiB took
# 0.42 processor seconds per GB with this buffer and 0.75 with the system's own tuning (4 MiB). Over
# a network the tuning is right, since it follows the round trip.
SEND_BUFFER_ON_LOOPBACK = 256 * 1024
# Large requests should arrive in one piece: batches of 256 KiB took 0.78 processor seconds per GB
# with this one and 1.33 with Kafka's default of 100 KiB, which delivers them in three pieces.
RECEIVE_BUFFER_ON_LOOPBACK = 1024 * 1024
CHOOSE = -1
# A refused client may reconnect a thousand times a second; the log has at most this many lines.
MOST_LINES_PER_SECOND = 20
# Sockets that are closed later because their address connects too often; more are closed at once.
MOST_CLOSED_LATER = 1_000


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
    """Accepts connections on all listeners, within the limits."""

    def __init__(
        self,
        loop: Loop,
        listeners: list[Listener],
        limits: ConnectionLimits,
        buffers: Buffers,
        security: Security | None = None,
    ) -> None:
        self.loop = loop
        self.listeners = listeners
        self.keeper = Doorkeeper(limits)
        self.buffers = buffers
        self.accepted = 0
        self.turned_away = 0
        self._open: set[str] = set()
        self._is_watching = False
        self._paused: list[Listener] = []
        self._resting: set[Listener] = set()
        self._closed_later = 0
        self._lines = 0  # of this second
        self._unsaid = 0
        self.security = security  # None: no listener asks for TLS or a login
        self.newcomers = Newcomers(loop)
        # Called with the session of a closed connection.
        self.on_left: Callable[[Session], None] = lambda session: None
        loop.on_close = self._left

    def open(self, names: Collection[str] | None = None) -> None:
        """Accept connections on these listeners; None: on all that are not open yet."""
        for listener in self.listeners:
            if listener.name not in self._open and (names is None or listener.name in names):
                self._open.add(listener.name)
                self._watch(listener)
        if not self._is_watching:
            self._is_watching = True
            self._begin()

    def _begin(self) -> None:
        now_ms = self.loop.now.monotonic_ms
        if self.security is not None:
            self.newcomers.watch()
        self.loop.timers.every(LONGEST_PAUSE_WITHOUT_DESCRIPTORS_MS, self._every_second, now_ms)
        check_ms = max(100, min(30_000, self.keeper.limits.idle_ms // 10))
        self.loop.timers.every(
            check_ms, lambda: self.loop.close_idle(self.keeper.limits.idle_ms), now_ms
        )

    def open_also(self, listener: Listener) -> None:
        """Open another listener while others are open."""
        self.listeners.append(listener)
        self._open.add(listener.name)
        self._watch(listener)

    def change_limits(self, limits: ConnectionLimits) -> None:
        """The new limits apply to new connections; open ones stay."""
        self.keeper.change(limits)

    def close(self) -> None:
        for listener in self.listeners:
            self.loop.stop_calling(listener.socket)
            listener.socket.close()
        self.listeners = []

    def _watch(self, listener: Listener) -> None:
        self.loop.call_when_readable(listener.socket, lambda: self._accept(listener))

    def _every_second(self) -> None:
        self._resume()
        if self._unsaid:
            log.warning("turned away %d more connections", self._unsaid)
        self._lines = self._unsaid = 0

    def _resume(self) -> None:
        paused, self._paused = self._paused, []
        for listener in paused:
            if listener in self.listeners:
                self._watch(listener)

    def _accept(self, listener: Listener) -> None:
        # Bounded, so that a storm of new connections does not keep connected clients waiting.
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                # Without a free descriptor the socket stays readable, and the loop would spin. So
                # the listener pauses until a connection closes, or for a second.
                if failure.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    log.error("cannot accept connections for the moment: %s", failure)
                    self.loop.stop_calling(listener.socket)
                    self._paused.append(listener)
                    return
                continue  # the client closed before it was accepted
            self._let_in(listener, sock, address)
            if listener in self._resting:
                return

    def _let_in(self, listener: Listener, sock: socket.socket, address: tuple[str, int]) -> None:
        host, port = address[:2]
        now_ms = self.loop.now.monotonic_ms
        why = self.keeper.refusal(listener.name, host)
        if why is not None:
            self._turn_away(sock, host, why)
            return
        wait_ms = self.keeper.address_wait_ms(host, now_ms)
        if wait_ms:
            self._close_later(sock, host, wait_ms)
            return
        sock.setblocking(False)
        # Replies are already joined into as few sends as possible (`connection.py`), so Nagle's
        # algorithm could only delay them.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffers.apply(sock, host)
        rest_ms = self.keeper.entered(listener.name, host, now_ms)
        if rest_ms:
            self._rest(listener, rest_ms)
        self.accepted += 1
        session = Session(host, listener.name)
        connection = self._connection(sock, session, f"{host}:{port}")
        session.connection = connection
        self.loop.add(connection)
        if not has_arrived(connection):
            self.newcomers.add(connection)

    def _connection(self, sock: socket.socket, session: Session, address: str) -> Connection:
        now_ms = self.loop.now.monotonic_ms
        entrance = self.security and self.security.entrances.get(session.listener)
        if not entrance:
            return Connection(sock, session, address, now_ms)
        return entrance.connection(sock, session, address, now_ms)

    def _turn_away(self, sock: socket.socket, host: str, why: str) -> None:
        self._say_turned_away(host, why)
        sock.close()

    def _say_turned_away(self, host: str, why: str) -> None:
        self.turned_away += 1
        self.loop.refused += 1
        self._lines += 1
        if self._lines <= MOST_LINES_PER_SECOND:
            log.warning("turned away a connection of %s: %s", host, why)
        else:
            self._unsaid += 1

    def _close_later(self, sock: socket.socket, host: str, wait_ms: int) -> None:
        self._say_turned_away(host, "its address connects too often")
        if self._closed_later >= MOST_CLOSED_LATER:
            sock.close()
            return
        self._closed_later += 1

        def close() -> None:
            self._closed_later -= 1
            sock.close()

        self._after(wait_ms, close)

    def _rest(self, listener: Listener, wait_ms: int) -> None:
        """Pause the listener; new connections wait in its backlog meanwhile."""
        self._resting.add(listener)
        self.loop.stop_calling(listener.socket)

        def go_on() -> None:
            self._resting.discard(listener)
            if listener in self.listeners:
                self._watch(listener)

        self._after(wait_ms, go_on)

    def _after(self, wait_ms: int, do: Callable[[], None]) -> None:
        due_ms = self.loop.now.monotonic_ms + wait_ms
        waits = WaitingRequest(lambda expired: expired or None, deadline_ms=due_ms, hangs_on=[])
        waits.complete = lambda answer: do()
        self.loop.purgatory.add(waits)

    def _left(self, connection: Connection) -> None:
        session = connection.session
        self.keeper.left(session.listener, session.client_host)
        self.newcomers.left(connection)
        self.on_left(session)
        if self._paused:
            self._resume()
