"""How many connections a listener takes."""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus

import pytest

from headrace.edge.listener import Listener, most_connections


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")


@pytest.mark.parametrize("status", [HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE])
def test_one_connection_too_many_is_refused_and_counted(status: HTTPStatus) -> None:
    made: list[Greeting] = []
    refused: list[None] = []

    def connected() -> Greeting:
        made.append(Greeting())
        return made[-1]

    async def ask() -> tuple[bytes, bytes]:
        listener = Listener(
            connected,
            count=lambda: len(made),
            most=1,
            refusal=status,
            refused=lambda: refused.append(None),
        )
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = await listener.open("", 0, listening=listening)
            first, first_writer = await asyncio.open_connection("127.0.0.1", port)
            greeting = await first.readexactly(5)
            second, second_writer = await asyncio.open_connection("127.0.0.1", port)
            refusal = await second.read()
            listener.close()
            for writer in (first_writer, second_writer):
                writer.close()
        return greeting, refusal

    greeting, refusal = asyncio.run(ask())
    assert greeting == b"hello" and len(made) == len(refused) == 1
    first_line, *rest = refusal.split(b"\r\n")
    assert first_line == f"HTTP/1.1 {status.value} {status.phrase}".encode()
    assert rest == [b"Retry-After: 1", b"Connection: close", b"Content-Length: 0", b"", b""]


def test_files_are_kept_back_for_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert most_connections(8192) == 512
    assert most_connections(100) == 100
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 1))
    assert most_connections(8192) == 8192
