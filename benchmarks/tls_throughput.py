"""What does encryption cost: produce and fetch over TLS, in processor time of the broker?

Two producers with a partition each, batches of 256 KiB, acks=all, five requests in flight; then two
consumers that read it in fetches of 1 MiB. TLS 1.3 with AES-256-GCM and a certificate on P-256 at
both. The client encrypts and decrypts too, on the same machine, so the rate says less than the
processor time. Warm-up: a third of the load before.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable

from . import wire
from .benchmark import Benchmark, Run
from .brokers import HOST, Broker
from .load import IN_FLIGHT, measured
from .results import Better, Goal, Row, Samples
from .secured import encrypt

CLIENTS = 2
TOPIC = "encrypted"
RECORDS, VALUE_SIZE = 258, 1_000
FETCH_BYTES = 1 << 20


def measure(run: Run) -> Samples:
    context = encrypt(run.target)
    requests = int(run.amount(600e6, 60e6) / (RECORDS * VALUE_SIZE) / CLIENTS)
    with run.target.start() as broker:
        with wire.connect(broker.port) as connection:
            wire.create_topics_with(connection, [TOPIC], partitions=CLIENTS)
        batch = wire.batch_of(RECORDS, VALUE_SIZE)
        together(lambda n: produce(connected(broker, context), n, batch, requests // 3))
        os.sync()
        usage = measured(
            broker,
            lambda: together(lambda n: produce(connected(broker, context), n, batch, requests)),
        )
        run.watch_noise("produce over TLS", usage)
        megabytes = CLIENTS * requests * len(batch) / 1e6
        samples = {
            "produce cpu": [usage.broker_s / (megabytes / 1000)],
            "produce rate": [megabytes / usage.wall_s],
        }
        with wire.connect(broker.port) as connection:
            ends = [wire.end_offset(connection, TOPIC, n) for n in range(CLIENTS)]
        expected = RECORDS * (requests // 3 + requests)
        assert ends == [expected] * CLIENTS, f"{ends} instead of {expected}"
        os.sync()
        together(lambda n: fetch(connected(broker, context), n, expected // 4, len(batch)))
        usage = measured(
            broker,
            lambda: together(lambda n: fetch(connected(broker, context), n, expected, len(batch))),
        )
        run.watch_noise("fetch over TLS", usage)
        megabytes = CLIENTS * expected / RECORDS * len(batch) / 1e6
        samples["fetch cpu"] = [usage.broker_s / (megabytes / 1000)]
        samples["fetch rate"] = [megabytes / usage.wall_s]
    return samples


def connected(broker: Broker, context: ssl.SSLContext) -> ssl.SSLSocket:
    port = broker.target.listeners["SSL"]
    plain = socket.create_connection((HOST, port), timeout=wire.SOCKET_TIMEOUT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname=HOST)


def together(work: Callable[[int], None]) -> None:
    """One thread for each client; the first failure is ours."""
    failures: list[Exception] = []

    def one(number: int) -> None:
        try:
            work(number)
        except Exception as failure:  # noqa: BLE001 - told below
            failures.append(failure)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def produce(connection: ssl.SSLSocket, partition: int, batch: bytes, requests: int) -> None:
    frame = wire.produce_frame(TOPIC, partition, batch)
    with connection:
        begun = min(IN_FLIGHT, requests)
        for _ in range(begun):
            connection.sendall(frame)
        for _ in range(requests):
            wire.check_produced(wire.receive_frame(connection))
            if begun < requests:
                begun += 1
                connection.sendall(frame)


def fetch(connection: ssl.SSLSocket, partition: int, until: int, batch_size: int) -> None:
    offset = 0
    with connection:
        while offset < until:
            connection.sendall(wire.fetch_frame(TOPIC, partition, offset, max_bytes=FETCH_BYTES))
            records = wire.fetched_records(wire.receive_frame(connection))
            whole = len(records) // batch_size
            assert whole, "a fetch brought no whole batch"
            assert struct.unpack_from(">q", records, 0) == (offset,)
            offset += whole * RECORDS


BENCHMARK = Benchmark(
    "Encryption (TLS 1.3)",
    (
        Row("produce cpu", "produce over TLS, 256 KiB, broker CPU", "s/GB", Goal(Better.LESS, 1.0)),
        Row("produce rate", "produce over TLS, 256 KiB", "MB/s"),
        Row("fetch cpu", "fetch over TLS, 1 MiB, broker CPU", "s/GB", Goal(Better.LESS, 1.0)),
        Row("fetch rate", "fetch over TLS, 1 MiB", "MB/s"),
    ),
    measure,
)
