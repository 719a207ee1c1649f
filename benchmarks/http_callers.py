"""Callers of HTTP that cost little themselves: plain sockets, one epoll, requests made in advance.

Each connection sends its next request when the answer to the last one has come whole. A caller on
asyncio's streams costs three times as much, and on two cores that is measured as the server's.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

RECEIVE_BYTES = 1 << 20


def request(port: int, method: str, path: str, body: bytes, kind: str, accept: str) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: {kind}\r\n"
        f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Line:
    """One connection."""

    def __init__(self, port: int, asked: bytes) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked = asked
        self._got = b""
        self._wanted = 0  # bytes of the answer that is coming; 0: not known yet
        self.sent_s = 0.0

    def ask(self) -> None:
        self.sent_s = time.perf_counter()
        self.sock.sendall(self._asked)

    def body(self) -> bytes | None:
        """That of the answer, once it is whole."""
        piece = self.sock.recv(RECEIVE_BYTES)
        assert piece, "the server has closed the connection"
        self._got += piece
        if not self._wanted:
            end = self._got.find(b"\r\n\r\n")
            if end < 0:
                return None
            assert self._got.startswith(b"HTTP/1.1 200"), self._got[:400]
            head = self._got[:end].lower()
            at = head.index(b"content-length:") + 15
            self._begin = end + 4
            self._wanted = self._begin + int(head[at:].split(b"\r", 1)[0])
        if len(self._got) < self._wanted:
            return None
        found, self._got, self._wanted = self._got[self._begin :], b"", 0
        return found


class Fleet:
    """Connections that each ask the same again and again; `asked` has one request for each."""

    def __init__(self, port: int, asked: list[bytes]) -> None:
        self._epoll = select.epoll()
        self._lines: dict[int, _Line] = {}
        for each in asked:
            line = _Line(port, each)
            self._lines[line.sock.fileno()] = line
            self._epoll.register(line.sock, select.EPOLLIN)

    def run(self, goes_on: Callable[[bytes], bool]) -> list[float]:
        """Seconds of each request. `goes_on` sees each body and says whether its connection asks
        again; the run is over when none does."""
        times: list[float] = []
        open_ = len(self._lines)
        for line in self._lines.values():
            line.ask()
        while open_:
            for number, _ in self._epoll.poll():
                line = self._lines[number]
                if (body := line.body()) is None:
                    continue
                times.append(time.perf_counter() - line.sent_s)
                if goes_on(body):
                    line.ask()
                else:
                    open_ -= 1
        return times

    def close(self) -> None:
        for line in self._lines.values():
            line.sock.close()
        self._epoll.close()
