"""What does an idle connection cost?

5,000 connections are opened one after another, each asks ApiVersions once and then rests. Memory
is the growth of VmRSS over a broker that has already served a hundred; kernel memory of sockets is
not in it. A JVM's heap grows in its own steps, so its figure varies from run to run.
"""

from __future__ import annotations

import socket
import time

from . import wire
from .benchmark import Benchmark, Run
from .brokers import API_VERSIONS_V0
from .processes import raise_open_file_limit
from .results import Row, Samples

SETTLE_S = 2.0


def measure(run: Run) -> Samples:
    count = run.count(5_000, 500)
    assert raise_open_file_limit() > count + 200, "the limit of open files is too low"
    held: list[socket.socket] = []
    with run.target.start() as broker:
        try:
            held += [introduced(broker.port) for _ in range(100)]
            time.sleep(SETTLE_S)
            before = broker.memory().resident_mb
            begin = time.perf_counter()
            held += [introduced(broker.port) for _ in range(count)]
            opened = time.perf_counter() - begin
            time.sleep(SETTLE_S)
            grown = broker.memory().resident_mb - before
            cpu = broker.processor_seconds()
            resting_s = run.amount(5.0, 2.0)
            time.sleep(resting_s)
            cpu = broker.processor_seconds() - cpu
        finally:
            for connection in held:
                connection.close()
    return {
        "memory": [grown * 1e6 / count / 1024],
        "open": [1e6 * opened / count],
        "cpu": [100 * cpu / resting_s],
    }


def introduced(port: int) -> socket.socket:
    """A connection that has been answered once."""
    connection = wire.connect(port)
    connection.sendall(API_VERSIONS_V0)
    wire.receive_frame(connection)
    return connection


BENCHMARK = Benchmark(
    "Idle connections",
    (
        Row("memory", "memory per idle connection", "KiB"),
        Row("open", "connect and first reply", "us"),
        Row("cpu", "CPU with 5,000 idle connections", "% of a core"),
    ),
    measure,
    rounds=2,
)
