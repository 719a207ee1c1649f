"""What do a thousand topics cost: their Metadata, and a consumer that waits on all of them?

1,000 topics of one partition. Metadata: one request for all topics at a time. Waiting: one fetch
session (KIP-227) over all partitions, then incremental fetches in which nothing has changed.
Warm-up: a third of the requests.
"""

from __future__ import annotations

import socket
import time
from statistics import median

from headrace.wire.protocol.messages import fetch, metadata

from . import wire
from .benchmark import Benchmark, Run
from .brokers import Broker
from .load import measured
from .results import Row, Samples

TOPICS = [f"topic-{number:04}" for number in range(1000)]


def measure(run: Run) -> Samples:
    with run.target.start() as broker, wire.connect(broker.port) as connection:
        begin = time.perf_counter()
        wire.create_topics_with(connection, TOPICS, partitions=1)
        created = time.perf_counter() - begin
        asked = run.count(1500, 150)
        metadata_ms, metadata_cpu = measure_metadata(broker, connection, asked)
        idle_us, idle_cpu = measure_idle_session(broker, connection, run.count(12_000, 1_500))
    return {
        "create": [created],
        "metadata": [metadata_ms],
        "metadata cpu": [metadata_cpu],
        "idle": [idle_us],
        "idle cpu": [idle_cpu],
    }


def measure_metadata(
    broker: Broker, connection: socket.socket, requests: int
) -> tuple[float, float]:
    """Median latency in ms, and CPU in ms per request."""
    everything = metadata.MetadataRequest(topics=None)
    frame = wire.request_frame(metadata, wire.METADATA_VERSION, everything)
    answer = wire.ask(connection, metadata, wire.METADATA_VERSION, everything)
    assert len(answer.topics) >= len(TOPICS), f"{len(answer.topics)} topics"
    latencies: list[float] = []

    def load(count: int) -> None:
        for _ in range(count):
            begin = time.perf_counter()
            connection.sendall(frame)
            wire.receive_frame(connection)
            latencies.append(time.perf_counter() - begin)

    load(requests // 3)
    latencies.clear()
    usage = measured(broker, lambda: load(requests))
    return 1e3 * median(latencies), 1e3 * usage.broker_s / requests


def measure_idle_session(
    broker: Broker, connection: socket.socket, requests: int
) -> tuple[float, float]:
    """Median latency in us, and CPU in us per incremental fetch."""
    session_id = open_session(connection)
    latencies: list[float] = []
    epoch = 1

    def load(count: int) -> None:
        nonlocal epoch
        for _ in range(count):
            request = fetch.FetchRequest(
                max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch
            )
            frame = wire.request_frame(fetch, wire.FETCH_VERSION, request)
            begin = time.perf_counter()
            connection.sendall(frame)
            reply = wire.receive_frame(connection)
            latencies.append(time.perf_counter() - begin)
            response = wire.response_of(fetch, wire.FETCH_VERSION, reply)
            wire.succeed(response.error_code, "incremental fetch")
            assert not response.responses, "nothing has changed"
            epoch += 1

    load(requests // 3)
    latencies.clear()
    usage = measured(broker, lambda: load(requests))
    return 1e6 * median(latencies), 1e6 * usage.broker_s / requests


def open_session(connection: socket.socket) -> int:
    topics = [
        fetch.FetchTopic(topic=name, partitions=[fetch.FetchPartition(partition_max_bytes=1 << 20)])
        for name in TOPICS
    ]
    request = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=0, session_id=0, session_epoch=0, topics=topics
    )
    response = wire.ask(connection, fetch, wire.FETCH_VERSION, request)
    wire.succeed(response.error_code, "first fetch of a session")
    session_id: int = response.session_id
    assert session_id, "the broker made no session"
    return session_id


BENCHMARK = Benchmark(
    "A thousand topics",
    (
        Row("create", "create 1,000 topics in one request", "s"),
        Row("metadata", "Metadata of 1,000 topics, p50", "ms"),
        Row("metadata cpu", "Metadata of 1,000 topics, broker CPU", "ms"),
        Row("idle", "incremental fetch, 1,000 idle partitions, p50", "us"),
        Row("idle cpu", "incremental fetch, 1,000 idle partitions, broker CPU", "us"),
    ),
    measure,
    rounds=2,
)
