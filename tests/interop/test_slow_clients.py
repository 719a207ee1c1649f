"""Clients that take their time, and clients that come back at once: others keep their rate."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.protocol.messages import metadata
from tests.conformance.stage import Stage, Topic
from tests.conformance.wire import Connection, encode_header
from tests.interop.brokers import TARGET, HeadraceNode, Node, free_port, make_node
from tests.interop.test_hostile import connect, others_keep_working, raise_open_files
from tests.unit.server.a_secured_server import Certificates

MB = 1 << 20


@contextlib.contextmanager
def node_with_topic(target: str, folder: Path, **settings: str) -> Iterator[tuple[Node, Topic]]:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    with make_node(target, folder, names) as node:
        stage = Stage(node)
        topic = stage.topic("attacked", partitions=2)
        stage.drop()
        yield node, topic


def test_one_byte_at_a_time(target: str, tmp_path: Path) -> None:
    """A thousand requests that arrive byte by byte, and are answered in the end."""
    request = encode_header(18, 0, 1, flexible=False)
    frame = struct.pack(">i", len(request)) + request
    with node_with_topic(target, tmp_path) as (node, topic):
        raise_open_files(3_000)
        with others_keep_working(node, topic, memory_mb=60), contextlib.ExitStack() as held:
            slow = [held.enter_context(connect(node)) for _ in range(1_000)]
            for at in range(len(frame)):
                for connection in slow:
                    connection.sendall(frame[at : at + 1])
                time.sleep(0.1)
            for connection in slow:
                assert len(connection.recv(4)) == 4


def test_half_open_connections_end_by_themselves(target: str, tmp_path: Path) -> None:
    """Who says nothing, or begins and does not go on, is not kept for ever."""
    with (
        node_with_topic(target, tmp_path, connections_max_idle_ms="2000") as (node, topic),
        others_keep_working(node, topic, memory_mb=40),
        contextlib.ExitStack() as held,
    ):
        silent = [held.enter_context(connect(node)) for _ in range(200)]
        for connection in silent[100:]:
            connection.sendall(struct.pack(">i", 100)[:3])
        ended = 0
        deadline = time.monotonic() + 30
        while ended < len(silent) and time.monotonic() < deadline:
            ended = sum(is_at_end(connection) for connection in silent)
            time.sleep(0.1)
        assert ended == len(silent)


def is_at_end(connection: socket.socket) -> bool:
    waiting = select.poll()  # descriptors may be above those that select.select takes
    waiting.register(connection, select.POLLIN)
    if not waiting.poll(0):
        return False
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionResetError:
        return True


class TwoDoors(HeadraceNode):
    """One listener in the clear, for the companion, and one with TLS, for who never finishes."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        super().__init__(folder, settings)
        self.tls_port = free_port()
        self.settings["listeners"] = f"PLAINTEXT://{self.bootstrap},SSL://127.0.0.1:{self.tls_port}"

    def command(self) -> list[str]:
        program, start, data, folder, _, _, *rest = super().command()
        return [program, start, data, folder, *rest]  # where to listen is among the settings


@pytest.mark.skipif(TARGET == "apache", reason="a node of ours with two listeners")
def test_handshakes_that_never_end(tmp_path: Path) -> None:
    """Of those who have not shown who they are 2,000 are kept; the oldest has to go."""
    raise_open_files(6_000)
    certificates = Certificates(tmp_path)
    hello = bytes.fromhex("1603010200010001fc0303")  # and 500 bytes that never come
    with TwoDoors(tmp_path / "node", certificates.settings()) as node:
        stage = Stage(node)
        topic = stage.topic("attacked", partitions=2)
        stage.drop()
        with others_keep_working(node, topic, memory_mb=200), contextlib.ExitStack() as held:
            halfway = []
            for number in range(2_500):
                each = socket.create_connection(("127.0.0.1", node.tls_port), timeout=10)
                held.enter_context(each)
                halfway.append(each)
                if number % 2:
                    each.sendall(hello)
            deadline = time.monotonic() + 20
            gone = 0
            while gone < 500 and time.monotonic() < deadline:
                time.sleep(0.1)
                gone = sum(is_at_end(connection) for connection in halfway)
            assert 490 <= gone <= 520, gone
            context = certificates.context()
            with (
                socket.create_connection(("127.0.0.1", node.tls_port), timeout=20) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as client,
            ):
                assert client.version() == "TLSv1.3", "who goes on is let in"


@pytest.mark.skipif(TARGET == "apache", reason="a test of ours; Apache Kafka needs more memory")
def test_10_000_connections(target: str, tmp_path: Path) -> None:
    """All are let in, the last one is served, and the companion goes on.

    A node gives half of its descriptors to connections: with a limit of 20,000 that is all of them.
    """
    raise_open_files(12_000)
    limits = {"max_connections_per_ip": "20000", "max_connections": "20000"}
    with (
        node_with_topic(target, tmp_path, **limits) as (node, topic),
        others_keep_working(node, topic, memory_mb=200, slowest_s=5.0),
        contextlib.ExitStack() as held,
    ):
        for _ in range(9_990):
            held.enter_context(connect(node))
        last = Connection(node.port)
        held.callback(last.close)
        last.ask(metadata, 12, metadata.MetadataRequest([], False))


def test_a_storm_of_reconnects(target: str, tmp_path: Path) -> None:
    """Four threads that connect, ask and leave as quickly as they can."""
    request = encode_header(18, 0, 1, flexible=False)
    frame = struct.pack(">i", len(request)) + request
    stop = threading.Event()
    counted: list[int] = []

    def storm(port: int) -> None:
        count = 0
        while not stop.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), 10) as c,
            ):
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                c.sendall(frame)
                c.recv(4)
                count += 1
        counted.append(count)

    with (
        node_with_topic(target, tmp_path) as (node, topic),
        others_keep_working(node, topic, memory_mb=60) as companion,
    ):
        threads = [threading.Thread(target=storm, args=(node.port,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun = len(companion.latencies_s)
        deadline = time.monotonic() + 30
        while len(companion.latencies_s) < begun + 300 and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join(20)
        assert len(companion.latencies_s) >= begun + 300, "the companion stood still"
    assert sum(counted) > 100
