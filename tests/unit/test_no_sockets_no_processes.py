"""Tests of this folder are watched: one that opens a socket or starts a process fails."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest
from confluent_kafka import Producer

from tests.unit.conftest import WATCH, NotAUnitTest


def test_an_address_and_a_process_are_refused_and_remembered() -> None:
    with pytest.raises(NotAUnitTest, match="socket.bind"), socket.socket() as one:
        one.bind(("127.0.0.1", 0))
    assert WATCH.end() == "socket.bind: the place of this test is tests/sockets"

    WATCH.begin("again")
    with pytest.raises(NotAUnitTest, match="subprocess.Popen"):
        subprocess.run([sys.executable, "-c", ""], check=True)
    assert "tests/processes" in str(WATCH.end())


def test_another_thread_is_watched_too() -> None:
    def swallowed() -> None:
        with pytest.raises(NotAUnitTest):
            socket.create_connection(("127.0.0.1", 1))

    thread = threading.Thread(target=swallowed)
    thread.start()
    thread.join()
    assert "tests/sockets" in str(WATCH.end())


def test_a_client_of_librdkafka_is_seen_by_its_threads() -> None:
    WATCH.threads = set()  # as if no earlier test had left a client behind
    producer = Producer({"bootstrap.servers": ""})
    assert len(producer) == 0
    if sys.platform == "linux":
        assert WATCH.end() == "a client of librdkafka: the place of this test is tests/sockets"
    WATCH.begin("the rest of this test, in which the client ends")


def test_the_pair_of_an_event_loop_is_free() -> None:
    left, right = socket.socketpair()
    left.close()
    right.close()
    assert WATCH.end() is None
