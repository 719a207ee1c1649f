"""Crowds of clients that take their time or come back at once, each kind as one object.

A crowd comes with `with`, does its worst while the block lasts, and leaves with it. They come from
several addresses of loopback, as a crowd does: the limit of connections per address stays on.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.wire.protocol.messages import fetch, sasl_authenticate, sasl_handshake
from tests.conformance.stage import Topic
from tests.conformance.stories.asking import fetch_request, fetch_topic, from_offset
from tests.conformance.wire import encode_body, encode_header
from tests.interop.brokers import HeadraceNode, free_port
from tests.sockets.server.a_secured_server import PLAIN_USERS, Certificates

MB = 1 << 20
ADDRESSES = [f"127.0.0.{number}" for number in range(11, 16)]
# A client's hello of TLS, and 500 bytes that never come.
HALF_A_HELLO = bytes.fromhex("1603010200010001fc0303")
API_VERSIONS = encode_header(18, 0, 1, flexible=False)
API_VERSIONS = struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS


class ThreeDoors(HeadraceNode):
    """In the clear, with TLS, and with a login: for the companion and for each kind of crowd."""

    def __init__(self, folder: Path, certificates: Certificates, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        super().__init__(folder, certificates.settings() | named)
        self.tls_port, self.sasl_port = free_port(), free_port()
        self.settings |= {
            "listeners": f"PLAINTEXT://{self.bootstrap},SSL://127.0.0.1:{self.tls_port},"
            f"SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        }

    def command(self) -> list[str]:
        program, start, data, folder, _, _, *rest = super().command()
        return [program, start, data, folder, *rest]  # where to listen is among the settings


_turn = itertools.cycle(ADDRESSES)


def connect_from_anywhere(port: int) -> socket.socket:
    source = (next(_turn), 0)
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=source)


def is_at_end(connection: socket.socket) -> bool:
    waiting = select.poll()  # descriptors may be above those that select.select takes
    waiting.register(connection, select.POLLIN)
    if not waiting.poll(0):
        return False
    try:
        # Past any TLS: what counts is whether the connection itself has ended.
        return socket.socket.recv(connection, 1, socket.MSG_PEEK) == b""
    except ConnectionResetError:
        return True


class Crowd:
    """`count` connections that are opened one after the other, and greeted."""

    def __init__(
        self, port: int, count: int, greet: Callable[[socket.socket], Any] = lambda _: None
    ) -> None:
        self.connections: list[socket.socket] = []
        self._port = port
        self._count = count
        self._greet = greet

    def __enter__(self) -> Crowd:
        for _ in range(self._count):
            connection = connect_from_anywhere(self._port)
            self.connections.append(connection)
            self._greet(connection)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self.connections:
            connection.close()

    def gone(self) -> int:
        return sum(map(is_at_end, self.connections))


def trickle(crowd: Crowd, *, every_s: float) -> None:
    """One request on each connection, a byte at a time; then every answer must come."""
    due = time.monotonic()
    for at in range(len(API_VERSIONS)):
        for connection in crowd.connections:
            connection.sendall(API_VERSIONS[at : at + 1])
        due += every_s
        time.sleep(max(0.0, due - time.monotonic()))
    for connection in crowd.connections:
        assert len(connection.recv(4)) == 4


def half_a_handshake(connection: socket.socket) -> None:
    connection.sendall(HALF_A_HELLO)


def half_a_login(connection: socket.socket) -> None:
    """A handshake by SCRAM and the first token: the challenge is never answered."""
    send(connection, sasl_handshake, 1, sasl_handshake.SaslHandshakeRequest("SCRAM-SHA-256"))
    token = sasl_authenticate.SaslAuthenticateRequest(b"n,,n=alice,r=mine")
    send(connection, sasl_authenticate, 1, token)


def send(connection: socket.socket, messages: Any, version: int, request: Any) -> None:
    flexible = version >= messages.FLEXIBLE_FROM
    head = encode_header(messages.API_KEY, version, 1, flexible=flexible)
    frame = head + encode_body(messages, version, request)
    connection.sendall(struct.pack(">i", len(frame)) + frame)


class TlsCrowd(Crowd):
    """They shake hands, ask for a hundred megabytes each, and read nothing of it."""

    def __init__(self, port: int, count: int, context: ssl.SSLContext, topic: Topic) -> None:
        super().__init__(port, count)
        self._context = context
        wanted = fetch_topic(13, topic, from_offset(0, partition=1, max_bytes=5 * MB))
        frame = encode_header(1, 13, 1, flexible=True)
        frame += encode_body(fetch, 13, fetch_request(wanted))
        self._frames = (struct.pack(">i", len(frame)) + frame) * 20

    def __enter__(self) -> TlsCrowd:
        for _ in range(self._count):
            plain = connect_from_anywhere(self._port)
            client = self._context.wrap_socket(plain, server_hostname="localhost")
            self.connections.append(client)
            client.sendall(self._frames)
        return self


@contextlib.contextmanager
def storm(port: int, threads: int, once: Callable[[socket.socket], Any]) -> Iterator[list[int]]:
    """Threads that connect, do something and leave as quickly as they can; the list is counts."""
    stop = threading.Event()
    counts = [0] * threads

    def run(number: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), connect_from_anywhere(port) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                once(connection)
                counts[number] += 1

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield counts
    finally:
        stop.set()
        for thread in running:
            thread.join(90)


def ask_and_leave(connection: socket.socket) -> None:
    connection.sendall(API_VERSIONS)
    connection.recv(4)


def fail_to_log_in(connection: socket.socket) -> None:
    send(connection, sasl_handshake, 1, sasl_handshake.SaslHandshakeRequest("PLAIN"))
    wrong = sasl_authenticate.SaslAuthenticateRequest(b"\0alice\0wrong")
    send(connection, sasl_authenticate, 1, wrong)
    while connection.recv(1024):
        pass
