"""Limits as somebody meets them who knocks: real sockets, a real broker."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from headrace.testing import Broker

API_VERSIONS = bytes.fromhex("0000000c 0012 0000 00000001 0002 6d65".replace(" ", ""))


@contextlib.contextmanager
def knocking(broker: Broker, count: int) -> Iterator[list[socket.socket]]:
    host, port = broker.bootstrap.rsplit(":", 1)
    with contextlib.ExitStack() as held:
        yield [
            held.enter_context(socket.create_connection((host, int(port)), timeout=60))
            for _ in range(count)
        ]


def is_served(connection: socket.socket) -> bool:
    """Whether it is answered; False if it was closed."""
    try:
        connection.sendall(API_VERSIONS)
        return len(connection.recv(4)) == 4
    except ConnectionError:
        return False


@pytest.mark.parametrize(
    "settings",
    [
        {"max.connections.per.ip.overrides": "10.0.0.1:1,127.0.0.1:3"},
        {"listener.name.plaintext.max.connections": "3"},
        {"max.connections": "3"},
        {"max.connections.per.ip": "3"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_who_comes_beyond_a_number_is_closed(settings: dict[str, str]) -> None:
    with Broker(settings=settings) as broker:
        with knocking(broker, 6) as connections:
            assert [is_served(each) for each in connections] == [True] * 3 + [False] * 3
        with knocking(broker, 1) as [later]:
            deadline_of_tries = 100
            while not is_served(later) and deadline_of_tries:
                deadline_of_tries -= 1
                host, port = broker.bootstrap.rsplit(":", 1)
                later.close()
                later = socket.create_connection((host, int(port)), timeout=60)
            later.close()
            assert deadline_of_tries, "those who left make room"


@pytest.mark.integration
def test_a_listener_above_its_rate_rests_and_everybody_is_served_in_the_end() -> None:
    settings = {"max.connection.creation.rate": "5", "quota.window.num": "2"}
    with Broker(settings=settings) as broker, knocking(broker, 12) as connections:
        assert all(is_served(each) for each in connections)
