"""A connection that sends whatever it is told, also what no client would send.

Framing and headers are written here a second time on purpose: the broker's own would hide its own
mistakes. Only the bodies use `headrace.wire.protocol.messages`.
"""

from __future__ import annotations

import itertools
import socket
import struct
from types import ModuleType
from typing import Any

from headrace.wire.protocol.primitives import Message

API_VERSIONS_KEY = 18


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


class NoAnswer(Exception):
    """The broker kept the connection open and said nothing for the time waited."""


def piece_bytes(pieces: list[Any]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)


def encode_body(api: ModuleType, version: int, request: Message) -> bytes:
    pieces: list[Any] = []
    api.ENCODE_REQUEST[version](request, pieces.append)
    return piece_bytes(pieces)


def encode_header(
    api_key: int, version: int, correlation_id: int, *, flexible: bool, client_id: str | None = "c"
) -> bytes:
    head = struct.pack(">hhi", api_key, version, correlation_id)
    name = client_id.encode() if client_id is not None else b""
    head += struct.pack(">h", -1 if client_id is None else len(name)) + name
    return head + (b"\0" if flexible else b"")


class Connection:
    """One socket to a broker; requests are answered in order."""

    def __init__(self, port: int, *, timeout_s: float = 60.0, client_id: str = "c") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._correlation_ids = itertools.count(1000)
        self._client_id = client_id

    def ask(self, api: ModuleType, version: int, request: Message) -> Message:
        """Send a request and decode its answer."""
        self.send(api, version, request)
        return self.answer(api, version)

    def send(self, api: ModuleType, version: int, request: Message) -> None:
        flexible = version >= api.FLEXIBLE_FROM
        number = next(self._correlation_ids)
        header = encode_header(
            api.API_KEY, version, number, flexible=flexible, client_id=self._client_id
        )
        self.send_frame(header + encode_body(api, version, request))

    def send_frame(self, frame: bytes) -> None:
        try:
            self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        except (ConnectionResetError, BrokenPipeError):
            raise ConnectionClosed from None

    def answer(self, api: ModuleType, version: int) -> Message:
        return decode_answer(api, version, self.receive_frame())

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def _receive(self, length: int) -> bytes:
        received = bytearray()
        while len(received) < length:
            try:
                more = self.socket.recv(min(length - len(received), 1 << 20))
            except TimeoutError:
                raise NoAnswer from None
            except ConnectionResetError:
                raise ConnectionClosed from None
            if not more:
                raise ConnectionClosed
            received += more
        return bytes(received)

    def close(self) -> None:
        self.socket.close()


def decode_answer(api: ModuleType, version: int, frame: bytes) -> Message:
    """The message in a frame; every byte of it must belong to the message."""
    position = 4
    # ApiVersions answers with the old header in all versions, so that any client can read it.
    if version >= api.FLEXIBLE_FROM and api.API_KEY != API_VERSIONS_KEY:
        assert frame[position] == 0, "tags in a response header"
        position += 1
    message, end = api.DECODE_RESPONSE[version](memoryview(frame), position)
    assert end == len(frame), f"{len(frame) - end} bytes behind the answer"
    answer: Message = message
    return answer
