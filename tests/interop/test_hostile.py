"""Bad and greedy clients: others keep working, memory is bounded, each refusal is logged once."""

from __future__ import annotations

import contextlib
import gzip
import random
import re
import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest

from headrace.wire.protocol.messages import fetch, metadata, produce
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import (
    fetch_request,
    fetch_topic,
    from_offset,
    produce_request,
)
from tests.conformance.stories.group_offsets import with_coordinator as group_coordinator
from tests.conformance.stories.no_coordinator import of_groups, of_transactions
from tests.conformance.stories.transactions import with_coordinator as transaction_coordinator
from tests.conformance.wire import (
    Connection,
    ConnectionClosed,
    NoAnswer,
    encode_body,
    encode_header,
)
from tests.interop.brokers import TARGET, Node, make_node
from tests.interop.companion import Companion
from tests.interop.crowds import API_VERSIONS

SEED = 11
MB = 1 << 20


@pytest.fixture
def node(target: str, tmp_path: Path) -> Iterator[Node]:
    """A broker of its own for each attack, so that memory and log are those of the attack."""
    with make_node(target, tmp_path) as node:
        yield node


@pytest.fixture
def topic(node: Node) -> Topic:
    stage = Stage(node)
    made = stage.topic("attacked", partitions=2)
    stage.drop()
    return made


@contextlib.contextmanager
def others_keep_working(
    node: Node, topic: Topic, *, memory_mb: int, slowest_s: float = 2.0
) -> Iterator[Companion]:
    """Around an attack: a companion, and bounds on what the attack may cost."""
    with Companion(node, topic) as companion:
        wait_for_rounds(companion, 20)
        node.forget_peak()
        before = node.memory_bytes()
        rounds = len(companion.latencies_s)
        yield companion
        wait_for_rounds(companion, rounds + 20)
    grown = (node.peak_memory_bytes() - before) / MB
    assert companion.trouble is None, companion.trouble
    assert companion.slowest_s < slowest_s, f"a round trip took {companion.slowest_s:.2f} s"
    if node.name == "headrace":
        assert grown < memory_mb, f"memory grew by {grown:.0f} MB"


def wait_for_rounds(companion: Companion, count: int, within_s: float = 400) -> None:
    deadline = time.monotonic() + within_s
    while len(companion.latencies_s) < count and companion.trouble is None:
        assert time.monotonic() < deadline, "the companion stands still"
        time.sleep(0.01)


def connect(node: Node) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=60)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side ended it, within the socket's timeout."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def is_served(connection: socket.socket) -> bool:
    """Whether a request is answered; or it is closed."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(API_VERSIONS)
        return connection.recv(4) != b""
    return False


def logged_within_bounds(node: Node, ports: list[int]) -> None:
    """Every refusal is in the log: some a second by their address, the others by their number."""
    if node.name != "headrace":
        return
    deadline = time.monotonic() + 400
    named: Counter[str] = Counter()
    unnamed = 0
    while named.total() + unnamed < len(ports) and time.monotonic() < deadline:
        time.sleep(0.05)
        text = "\n".join(node.log_lines())
        named = Counter(re.findall(r"closed the connection of 127\.0\.0\.1:(\d+)", text))
        unnamed = sum(map(int, re.findall(r"closed (\d+) more connections", text)))
    assert named.total() + unnamed == len(ports), f"{named.total()} by address, {unnamed} more"
    assert named.keys() <= set(map(str, ports)) and max(named.values()) == 1, named


def refuse_all(node: Node, attacks: list[bytes]) -> None:
    """Each attack on a connection of its own; all are closed."""
    ports = []
    for attack in attacks:
        with connect(node) as connection:
            ports.append(connection.getsockname()[1])
            with contextlib.suppress(OSError):  # closed while we were still talking
                connection.sendall(attack)
            assert is_closed(connection), f"still open after {attack[:40]!r}"
    logged_within_bounds(node, ports)


def test_random_bytes(node: Node, topic: Topic) -> None:
    chance = random.Random(SEED)
    # The first bytes say a frame of up to 64 KiB, so that what follows is read as a request.
    attacks = [
        struct.pack(">i", size) + chance.randbytes(size)
        for size in (chance.randrange(8, 1 << 16) for _ in range(200))
    ]
    with others_keep_working(node, topic, memory_mb=30):
        refuse_all(node, attacks)


def test_lengths_that_cannot_be(node: Node, topic: Topic) -> None:
    lengths = (-1, -(2**31), 0, 1, 7, 100 * MB + 1, 2**31 - 1)
    with others_keep_working(node, topic, memory_mb=20):
        refuse_all(node, [struct.pack(">i", length) + b"x" * 50 for length in lengths])


def test_wrong_keys_and_versions(node: Node, topic: Topic) -> None:
    frames = [encode_header(key, 0, 1, flexible=False) for key in (-1, 4, 500, 32767)]
    frames += [encode_header(key, 77, 1, flexible=True) for key in (0, 1, 3, 19)]
    with others_keep_working(node, topic, memory_mb=20):
        refuse_all(node, [struct.pack(">i", len(frame)) + frame for frame in frames] * 10)


def test_requests_with_flipped_bits(node: Node, topic: Topic) -> None:
    """Almost right: whatever is answered or not, the broker stays and others are served."""
    chance = random.Random(SEED)
    request = encode_body(fetch, 13, fetch_request(fetch_topic(13, topic, from_offset(0))))
    frame = encode_header(1, 13, 1, flexible=True) + request
    frames = [frame]
    wanted = encode_body(metadata, 12, metadata.MetadataRequest(None, False))
    frames.append(encode_header(3, 12, 1, flexible=True) + wanted)
    data = encode_body(fetch, 4, fetch_request(fetch_topic(4, topic, from_offset(0))))
    frames.append(encode_header(1, 4, 1, flexible=False) + data)
    of_members = [*group_frames(node, topic)]
    with others_keep_working(node, topic, memory_mb=50):
        for turn in range(400):
            mutated = bytearray(chance.choice(of_members if turn % 2 else frames))
            for _ in range(chance.randrange(1, 4)):
                mutated[chance.randrange(8, len(mutated))] ^= 1 << chance.randrange(8)
            with connect(node) as connection:
                connection.settimeout(0.05)
                connection.sendall(struct.pack(">i", len(mutated)) + mutated)
                is_closed(connection)


def group_frames(node: Node, topic: Topic) -> Iterator[bytes]:
    """Every request that groups and transactions know, in every version."""
    stage = Stage(node)
    group_coordinator(stage, "attacked")
    transaction_coordinator(stage, "attacked")
    stage.drop()
    for api, requests in (of_groups(topic) | of_transactions(topic)).items():
        for version in api.VERSIONS:
            head = encode_header(api.API_KEY, version, 1, flexible=version >= api.FLEXIBLE_FROM)
            for request in requests(version).values():
                yield head + encode_body(api, version, request)


@pytest.mark.skipif(TARGET == "apache", reason="it makes room at once, and runs out of heap")
def test_half_frames_that_never_end(node: Node, topic: Topic) -> None:
    """Frames of 90 MB are announced on 200 connections, and nothing comes: nothing is held."""
    head = struct.pack(">i", 90 * MB) + encode_header(0, 9, 1, flexible=True)
    with others_keep_working(node, topic, memory_mb=40), contextlib.ExitStack() as held:
        for _ in range(200):
            connection = held.enter_context(connect(node))
            connection.sendall(head)
        time.sleep(0.5)


def test_half_frames_that_end_in_the_middle(node: Node, topic: Topic) -> None:
    """What came of a frame is given back when its connection ends."""
    head = struct.pack(">i", 50 * MB) + encode_header(0, 9, 1, flexible=True)
    with others_keep_working(node, topic, memory_mb=60):
        for _ in range(20):
            with connect(node) as connection:
                connection.sendall(head + bytes(10 * MB))


@pytest.mark.skipif(TARGET == "apache", reason="there everybody waits until the limit has room")
def test_half_frames_share_one_limit(target: str, tmp_path: Path) -> None:
    """What waits for the rest of its frame is bounded over all connections together."""
    limits = {"queued.max.request.bytes": str(60 * MB), "socket.request.max.bytes": str(50 * MB)}
    with make_node(target, tmp_path, limits) as node:
        stage = Stage(node)
        topic = stage.topic("shared-limit")
        stage.drop()
        head = struct.pack(">i", 50 * MB) + encode_header(0, 9, 1, flexible=True)
        with others_keep_working(node, topic, memory_mb=120), contextlib.ExitStack() as held:
            for _ in range(20):
                connection = held.enter_context(connect(node))
                connection.settimeout(0.2)
                with contextlib.suppress(OSError):  # nobody reads any more, or it was closed
                    connection.sendall(head + bytes(20 * MB))
            time.sleep(0.5)


def test_5000_idle_connections(node: Node, topic: Topic) -> None:
    raise_open_files(6000)
    with others_keep_working(node, topic, memory_mb=100), contextlib.ExitStack() as held:
        for _ in range(5000):
            held.enter_context(connect(node))
        # They are not only accepted: the last one is served.
        last = Connection(node.port)
        held.callback(last.close)
        last.ask(metadata, 12, metadata.MetadataRequest([], False))


def raise_open_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        assert hard >= wanted, f"this test needs {wanted} open files; `ulimit -Hn` says {hard}"
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def test_connections_beyond_the_limit_are_closed(target: str, tmp_path: Path) -> None:
    with make_node(target, tmp_path, {"max.connections.per.ip": "50"}) as node:
        stage = Stage(node)
        topic = stage.topic("limited")
        stage.drop()
        with Companion(node, topic) as companion, contextlib.ExitStack() as held:
            wait_for_rounds(companion, 5)
            connections = [held.enter_context(connect(node)) for _ in range(80)]
            closed = sum(not is_served(connection) for connection in connections)
            assert 28 <= closed <= 33, f"{closed} of 80 were closed at a limit of 50"
        assert companion.trouble is None


def test_readers_that_never_read(node: Node, topic: Topic) -> None:
    """Each asks for 100 MB and reads none of it; the data stays in the file."""
    stage = Stage(node)
    stage.produce(topic, *[build(R(b"x" * 900_000))] * 5, partition=1)
    stage.drop()
    wanted = fetch_topic(13, topic, from_offset(0, partition=1, max_bytes=5 * MB))
    frame = encode_header(1, 13, 1, flexible=True) + encode_body(fetch, 13, fetch_request(wanted))
    with others_keep_working(node, topic, memory_mb=60), contextlib.ExitStack() as held:
        for _ in range(50):
            connection = held.enter_context(connect(node))
            connection.sendall((struct.pack(">i", len(frame)) + frame) * 20)
        time.sleep(1.0)


def test_requests_whose_answers_nobody_reads(node: Node, topic: Topic) -> None:
    """Small requests with large answers, sent without end: the broker stops reading them."""
    stage = Stage(node)
    stage.topic("wide", partitions=500)
    stage.drop()
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="wide")], False)
    frame = encode_header(3, 12, 1, flexible=True) + encode_body(metadata, 12, asked)
    burst = (struct.pack(">i", len(frame)) + frame) * 200
    with (
        others_keep_working(node, topic, memory_mb=150, slowest_s=5.0),
        contextlib.ExitStack() as held,
    ):
        for _ in range(10):
            connection = held.enter_context(connect(node))
            connection.settimeout(0.3)
            with contextlib.suppress(TimeoutError):
                for _ in range(50):
                    connection.sendall(burst)


def test_requests_that_unfold(node: Node, topic: Topic) -> None:
    """A few MB of a request that become many objects."""
    names = [metadata.MetadataRequestTopic(name="n")] * 500_000
    asked = metadata.MetadataRequest(names, False)
    with others_keep_working(node, topic, memory_mb=150, slowest_s=5.0):
        connection = Connection(node.port)
        with contextlib.suppress(ConnectionClosed, NoAnswer):
            connection.ask(metadata, 8, asked)
        connection.close()


def gzip_bomb() -> bytes:
    """One after the other they make 960 MB."""
    return gzip.compress(bytes(16 * MB), 9) * 60


def snappy_bomb() -> bytes:
    """Four gigabytes, it says, in 25 bytes."""
    return b"\xff\xff\xff\xff\x0f" + bytes(20)


def lz4_bomb() -> bytes:
    return bytes(cramjam.lz4.compress(bytes(200 * MB)))


def zstd_bomb() -> bytes:
    return bytes(cramjam.zstd.compress(bytes(900 * MB)))


BOMBS = {"gzip": gzip_bomb, "snappy": snappy_bomb, "lz4": lz4_bomb, "zstd": zstd_bomb}


@pytest.mark.parametrize("codec", BOMBS)
def test_batches_that_unfold(node: Node, topic: Topic, codec: str) -> None:
    """A batch below 1 MB that holds hundreds, or says so, where the broker must look inside."""
    stage = Stage(node)
    other = "gzip" if codec != "gzip" else "lz4"
    settings = {"compression.type": other}, {"cleanup.policy": "compact"}
    topics = [stage.topic(f"unfolds-{n}", config=config) for n, config in enumerate(settings)]
    bomb = build(R(), codec=codec, payload=BOMBS[codec]())
    assert len(bomb) < MB
    with others_keep_working(node, topic, memory_mb=300, slowest_s=5.0):
        for unfolding in topics:
            connection = Connection(node.port)
            with contextlib.suppress(ConnectionClosed, NoAnswer):
                answer = connection.ask(produce, 13, produce_request(13, unfolding, bomb))
                result = answer.responses[0].partition_responses[0]  # type: ignore[attr-defined]
                assert result.error_code != 0
            connection.close()
    stage.drop()


def test_connections_that_come_and_go(node: Node, topic: Topic) -> None:
    with others_keep_working(node, topic, memory_mb=20):
        for _ in range(3000):
            connect(node).close()
