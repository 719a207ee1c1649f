"""Clients that take their time, and clients that come back at once: others keep their rate."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.node.process.listeners.newcomers import LONGEST_LOGIN_MS
from headrace.wire.protocol.messages import metadata
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.wire import Connection
from tests.interop.brokers import TARGET, Node, make_node
from tests.interop.companion import Companion
from tests.interop.crowds import (
    Crowd,
    ThreeDoors,
    TlsCrowd,
    ask_and_leave,
    fail_to_log_in,
    half_a_handshake,
    half_a_login,
    storm,
    trickle,
)
from tests.interop.test_hostile import (
    others_keep_working,
    raise_open_files,
    wait_for_rounds,
)
from tests.sockets.server.a_secured_server import Certificates

OURS = pytest.mark.skipif(TARGET == "apache", reason="a test of ours, with doors of ours")
NEWCOMERS = 2_000  # that may be at their handshake or login, see docs/guide/security.md
LOGIN_S = LONGEST_LOGIN_MS / 1000


@contextlib.contextmanager
def node_with_topic(target: str, folder: Path, **settings: str) -> Iterator[tuple[Node, Topic]]:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    with make_node(target, folder, names) as node:
        yield node, new_topic(node)


@contextlib.contextmanager
def three_doors(folder: Path) -> Iterator[tuple[ThreeDoors, Topic, Certificates]]:
    certificates = Certificates(folder)
    node = ThreeDoors(folder / "node", certificates)
    with node:
        yield node, new_topic(node), certificates


def new_topic(node: Node) -> Topic:
    """Its second partition has something to read for who does not read it."""
    stage = Stage(node)
    topic = stage.topic("attacked", partitions=2)
    stage.produce(topic, *[build(R(b"x" * 900_000))] * 5, partition=1)
    stage.drop()
    return topic


def test_one_byte_a_second(target: str, tmp_path: Path) -> None:
    """A thousand requests that arrive byte by byte, and are answered in the end.

    It takes longer than the 20 s of silence that would end them; but they are not silent.
    """
    raise_open_files(3_000)
    with (
        node_with_topic(target, tmp_path, connections_max_idle_ms="20000") as (node, topic),
        others_keep_working(node, topic, memory_mb=60),
        Crowd(node.port, 1_000) as slow,
    ):
        trickle(slow, every_s=1.4)


def test_half_open_connections_end_by_themselves(target: str, tmp_path: Path) -> None:
    """Who says nothing, or begins and does not go on, is not kept for ever."""
    with (
        node_with_topic(target, tmp_path, connections_max_idle_ms="2000") as (node, topic),
        others_keep_working(node, topic, memory_mb=40),
        Crowd(node.port, 100) as silent,
        Crowd(node.port, 100, lambda each: each.sendall(struct.pack(">i", 100)[:3])) as begun,
    ):
        wait_until_gone(200, silent, begun)


def wait_until_gone(wanted: int, *crowds: Crowd) -> int:
    deadline = time.monotonic() + 400
    gone = 0
    while gone < wanted and time.monotonic() < deadline:
        time.sleep(0.1)
        gone = sum(crowd.gone() for crowd in crowds)
    assert gone >= wanted, f"{gone} of {wanted}"
    return gone


@OURS
def test_handshakes_and_logins_that_never_end(tmp_path: Path) -> None:
    """Of those who have not shown who they are 2,000 are kept; the oldest has to go."""
    raise_open_files(6_000)
    began = time.monotonic()
    with (
        three_doors(tmp_path) as (node, topic, certificates),
        others_keep_working(node, topic, memory_mb=250),
        Crowd(node.tls_port, 1_500, half_a_handshake) as shaking,
        Crowd(node.sasl_port, 1_000, half_a_login) as logging_in,
    ):
        gone = wait_until_gone(500, shaking, logging_in)
        if time.monotonic() - began < LOGIN_S:  # else the first have had all the time that there is
            assert gone <= 520, gone
            assert logging_in.gone() < 20, "the oldest go first"
        context = certificates.context()
        with (
            socket.create_connection(("127.0.0.1", node.tls_port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            assert client.version() == "TLSv1.3", "who goes on is let in"


@OURS
@pytest.mark.full  # test_all_of_them_together has as many, 7,000 of them idle
def test_10_000_connections(tmp_path: Path) -> None:
    """Ten thousand are let in and stay, one more is served, and the companion goes on."""
    raise_open_files(12_000)
    with (
        node_with_topic("headrace", tmp_path) as (node, topic),
        others_keep_working(node, topic, memory_mb=200, slowest_s=5.0),
        Crowd(node.port, 10_000) as idle,
    ):
        serve_one_more(node)
        assert idle.gone() == 0


def serve_one_more(node: Node) -> None:
    last = Connection(node.port)
    last.ask(metadata, 12, metadata.MetadataRequest([], False))
    last.close()


def test_a_storm_of_reconnects(target: str, tmp_path: Path) -> None:
    """Four threads that connect, ask and leave as quickly as they can."""
    with (
        node_with_topic(target, tmp_path) as (node, topic),
        others_keep_working(node, topic, memory_mb=60) as companion,
    ):
        with storm(node.port, 4, ask_and_leave) as counts:
            go_on_for(companion, 300)
        assert sum(counts) > 100


def go_on_for(companion: Companion, rounds: int) -> None:
    wait_for_rounds(companion, len(companion.latencies_s) + rounds, within_s=400)


@OURS
def test_logins_that_fail_and_come_back(tmp_path: Path) -> None:
    """Each is held up for a tenth of a second; that costs the others nothing."""
    with (
        three_doors(tmp_path) as (node, topic, _),
        others_keep_working(node, topic, memory_mb=60) as companion,
    ):
        with storm(node.sasl_port, 8, fail_to_log_in) as counts:
            go_on_for(companion, 300)
        assert sum(counts) > 10


@OURS
def test_readers_that_never_read_under_tls(tmp_path: Path) -> None:
    """Each asks for 100 MB; what is encrypted for it is a piece at a time."""
    with (
        three_doors(tmp_path) as (node, topic, certificates),
        others_keep_working(node, topic, memory_mb=120, slowest_s=5.0) as companion,
        TlsCrowd(node.tls_port, 100, certificates.context(), topic) as deaf,
    ):
        go_on_for(companion, 200)
        assert deaf.gone() == 0


@OURS
def test_all_of_them_together(tmp_path: Path) -> None:
    """Ten thousand connections of five kinds, and two storms, at the same time on one node."""
    raise_open_files(12_000)
    with (
        three_doors(tmp_path) as (node, topic, certificates),
        others_keep_working(node, topic, memory_mb=500, slowest_s=10.0) as companion,
    ):
        calm = rate(companion, 300)
        with (
            Crowd(node.port, 7_000) as idle,
            Crowd(node.tls_port, 1_000, half_a_handshake) as shaking,
            Crowd(node.sasl_port, 900, half_a_login) as logging_in,
            TlsCrowd(node.tls_port, 100, certificates.context(), topic) as deaf,
            Crowd(node.port, 1_000) as slow,
            storm(node.port, 2, ask_and_leave) as asked,
            storm(node.sasl_port, 2, fail_to_log_in) as refused,
        ):
            before = len(companion.latencies_s)
            trickle(slow, every_s=1.0)
            go_on_for(companion, max(1, 300 - (len(companion.latencies_s) - before)))
            serve_one_more(node)
            crowds = (idle, shaking, logging_in, deaf, slow)
            assert sum(len(crowd.connections) for crowd in crowds) == 10_000
            assert sum(crowd.gone() for crowd in (idle, deaf, slow)) == 0
            stormy = rate(companion, 300)
            assert shaking.gone() + logging_in.gone() <= 1_900
        assert sum(asked) > 100 and sum(refused) > 10
    sys.stdout.write(f"rounds per second: {calm:.0f} in calm, {stormy:.0f} with all of them\n")
    assert stormy > calm / 10, "others keep their rate, within what one machine has for all"


def rate(companion: Companion, rounds: int) -> float:
    begun, first = time.monotonic(), len(companion.latencies_s)
    go_on_for(companion, rounds)
    return (len(companion.latencies_s) - first) / (time.monotonic() - begun)
