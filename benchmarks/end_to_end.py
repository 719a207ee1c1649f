"""How long does a record take from the producer to a waiting consumer at a moderate rate?

Open loop: one record per request at 1,000 per second, sent at times fixed beforehand; a reply that
is late does not hold back the next record, and latency counts from the time the record was due.
One consumer waits with a long poll (min bytes 1). Producer and consumer are one process, so both
times are read from one clock.
Warm-up: 12 s at four times the rate, 4 s at the rate.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable

from headrace.wire.protocol.record_batch import LAST_OFFSET_DELTA_AT, LENGTH_OVERHEAD

from . import wire
from .benchmark import Benchmark, Run
from .results import Better, Goal, Row, Samples

TOPIC = "latency"
VALUE_SIZE = 100
RATE = 1_000  # records per second
FETCH_BYTES = 1 << 20
STALLED_AFTER_S = 10.0


def measure(run: Run) -> Samples:
    with run.target.start() as broker:
        with wire.connect(broker.port) as connection:
            wire.create_topics_with(connection, [TOPIC], partitions=1)
        quickly, calmly = int(run.amount(12, 1)) * 4 * RATE, int(run.amount(4, 1)) * RATE
        flow(broker.port, quickly, first_offset=0, rate=4 * RATE)
        flow(broker.port, calmly, first_offset=quickly)
        records = int(run.amount(10, 3)) * RATE
        latencies = flow(broker.port, records, first_offset=quickly + calmly)
    latencies.sort()
    return {
        "p50": [1000 * latencies[len(latencies) // 2]],
        "p99": [1000 * latencies[len(latencies) * 99 // 100]],
    }


def flow(port: int, records: int, *, first_offset: int, rate: int = RATE) -> list[float]:
    """Send so many records at their times and wait for all; their latencies in seconds.

    `select` and not `epoll`: its timeout has microseconds, Python's epoll rounds to milliseconds.
    """
    frame = wire.produce_frame(TOPIC, 0, wire.batch_of(1, VALUE_SIZE))
    clock = time.perf_counter
    latencies: list[float] = []
    with wire.connect(port) as producer, wire.connect(port) as consumer:
        receive = _replies(consumer)
        next_offset = first_offset
        consumer.sendall(_fetch(next_offset))
        begin, sent = clock() + 0.05, 0
        while len(latencies) < records:
            due = begin + sent / rate
            wait = max(0.0, due - clock()) if sent < records else STALLED_AFTER_S
            ready = select.select([producer, consumer], [], [], wait)[0]
            if not ready and sent == records:
                raise TimeoutError("records did not arrive")
            if consumer in ready and (reply := receive()) is not None:
                arrived = clock()
                last = _last_offset(wire.fetched_records(reply), next_offset)
                for offset in range(next_offset, last + 1):
                    latencies.append(arrived - begin - (offset - first_offset) / rate)
                next_offset = last + 1
                consumer.sendall(_fetch(next_offset))
            if producer in ready and not producer.recv(65536):
                raise ConnectionError("the broker closed the producer's connection")
            if sent < records and clock() >= due:
                producer.sendall(frame)
                sent += 1
    return latencies


def _fetch(offset: int) -> bytes:
    return wire.fetch_frame(TOPIC, 0, offset, max_bytes=FETCH_BYTES)


def _replies(consumer: socket.socket) -> Callable[[], memoryview | None]:
    """Reads what is there; the reply once it is whole. One fetch is in flight, so never two."""
    buffer = memoryview(bytearray(FETCH_BYTES + 4096))
    at = 0

    def receive() -> memoryview | None:
        nonlocal at
        at += consumer.recv_into(buffer[at:])
        if at < 4 or at < (end := 4 + struct.unpack_from(">i", buffer)[0]):
            return None
        at = 0
        return buffer[4:end]

    return receive


def _last_offset(records: memoryview, expected: int) -> int:
    """The last offset in a run of whole batches that must begin where it was asked for."""
    at, next_offset = 0, expected
    while at < len(records):
        base, length = struct.unpack_from(">qi", records, at)
        assert base == next_offset, f"expected offset {next_offset}, got {base}"
        next_offset = base + 1 + struct.unpack_from(">i", records, at + LAST_OFFSET_DELTA_AT)[0]
        at += LENGTH_OVERHEAD + length
    return next_offset - 1


BENCHMARK = Benchmark(
    "End to end",
    (
        Row("p50", "produce to consume, p50", "ms", Goal(Better.LESS, ratio=0.6)),
        Row("p99", "produce to consume, p99", "ms", Goal(Better.LESS, ratio=0.3)),
    ),
    measure,
)
