"""Where clients knock: what their sockets are given."""

import socket

import pytest

from headrace.node.process.listeners.listener import (
    RECEIVE_BUFFER_ON_LOOPBACK,
    SEND_BUFFER_ON_LOOPBACK,
    Buffers,
)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def sizes(sock):
    return [
        sock.getsockopt(socket.SOL_SOCKET, option)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
    ]


def set_by_hand(sock, send_bytes, receive_bytes):
    """What the system makes of these sizes: it doubles them and has limits of its own."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    return sizes(sock)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1"])
def test_clients_on_this_machine_get_buffers_of_our_choice(pair, host):
    ours, other = pair
    Buffers().apply(ours, host)
    assert sizes(ours) == set_by_hand(other, SEND_BUFFER_ON_LOOPBACK, RECEIVE_BUFFER_ON_LOOPBACK)


def test_clients_over_a_network_keep_the_tuning_of_the_system(pair):
    ours, untouched = pair
    Buffers().apply(ours, "10.0.0.7")
    assert sizes(ours) == sizes(untouched)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.7"])
def test_what_is_set_holds_everywhere(pair, host):
    ours, other = pair
    Buffers(40_000, 50_000).apply(ours, host)
    assert sizes(ours) == set_by_hand(other, 40_000, 50_000)
