"""What does a request over HTTP cost, beside a handler written by hand on aiohttp and aiokafka?

`python -m benchmarks.http_door [--seconds 1] [--slices 10] [--streams 1000]`: one Headrace broker
and both servers run all the time; slices of load go to the one and the other in turn, so what else
the machine does meets both. Requests with one record: rate, p99, processor time of the server;
answers of 100 records; NDJSON in bulk: medians over the slices. Then streams of the door alone: so
many readers at once, each gets every record; memory of the door.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from headrace.client.producer.producer import Producer
from tests.interop.brokers import HeadraceNode, free_port

from .http_callers import Fleet, request
from .processes import memory, processor_seconds

CONNECTIONS = 32
READERS = 4
READS = 100  # answers to each reader, in a slice
STORED = 50_000
BULK_LINES = 20_000
TOPIC = "measured"
V2 = "application/vnd.kafka.v2+json"
ONE = json.dumps({"records": [{"key": "7", "value": {"total": 3, "text": "x" * 60}}]}).encode()
BULK = b"\n".join(
    json.dumps({"key": str(n), "value": "x" * 80}).encode() for n in range(BULK_LINES)
)


class Caller:
    """One connection that asks one request after the other; reads no more than it must."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> Caller:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=1 << 26
        )
        return self

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = V2) -> bytes:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost:{self._port}\r\n"
            f"Content-Type: {kind}\r\nAccept: application/vnd.kafka.binary.v2+json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if b" 204 " in answer[:16]:
            return b""
        at = answer.lower().index(b"content-length:") + 15
        length = int(answer[at : answer.index(b"\r", at)])
        found = await self._reader.readexactly(length)
        assert answer.startswith(b"HTTP/1.1 200"), (answer, found[:200])
        return found

    def close(self) -> None:
        self._writer.close()


@contextmanager
def served(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", *command])
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


async def ready(port: int, path: str) -> None:
    for _ in range(200):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return
    raise TimeoutError(path)


Sample = dict[str, float]


def percentile(times: list[float]) -> float:
    return quantiles(times, n=100)[98] * 1000


def produce(server: Server, seconds: float) -> Sample:
    """One record a request, from all connections at once."""
    used, began = processor_seconds(server.pid), time.perf_counter()
    until = began + seconds
    times = server.writers.run(lambda _: time.perf_counter() < until)
    spent, used = time.perf_counter() - began, processor_seconds(server.pid) - used
    return {
        "produce requests/s": len(times) / spent,
        "produce p99 ms": percentile(times),
        "produce server s/1,000 requests": used / len(times) * 1000,
    }


def consume(server: Server, readers: Fleet) -> Sample:
    """A hundred records an answer, each reader so many answers."""
    left = READERS * READS
    records = 0

    def goes_on(body: bytes) -> bool:
        nonlocal left, records
        left -= 1
        records += body.count(b'"offset"')
        return left >= READERS

    used, began = processor_seconds(server.pid), time.perf_counter()
    times = readers.run(goes_on)
    spent, used = time.perf_counter() - began, processor_seconds(server.pid) - used
    return {
        "consume requests/s": len(times) / spent,
        "consume p99 ms": percentile(times),
        "consume records/s": records / spent,
        "consume records/answer": records / len(times),
        "consume server s/1,000 requests": used / len(times) * 1000,
    }


async def bulk(port: int, pid: int) -> Sample:
    caller = await Caller(port).open()
    used, began = processor_seconds(pid), time.perf_counter()
    for _ in range(2):
        await caller.ask("POST", f"/topics/{TOPIC}", BULK, "application/x-ndjson")
    spent, used = time.perf_counter() - began, processor_seconds(pid) - used
    caller.close()
    return {
        "bulk records/s": 2 * BULK_LINES / spent,
        "bulk server s/1,000,000 records": used / (2 * BULK_LINES) * 1e6,
    }


async def instances(port: int, round_: int) -> list[str]:
    caller = await Caller(port).open()
    paths = []
    for number in range(READERS):
        name = f"r{round_}-{number}"
        new = {"name": name, "format": "binary", "auto.commit.enable": "false"}
        new["auto.offset.reset"] = "earliest"
        await caller.ask("POST", "/consumers/g", json.dumps(new).encode())
        place = {"partitions": [{"topic": "stored", "partition": 0}]}
        at = f"/consumers/g/instances/{name}"
        await caller.ask("POST", f"{at}/assignments", json.dumps(place).encode())
        paths.append(f"{at}/records?max_records=100")
    caller.close()
    return paths


async def streams(port: int, pid: int, count: int, bootstrap: str) -> Sample:
    before = memory(pid).resident_mb
    records = 100
    opened = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ask = f"GET /topics/streamed/stream HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
        writer.write(ask.encode())
        opened.append((reader, writer))
    for reader, _ in opened:
        await reader.readuntil(b"event: begun")
    idle = memory(pid).resident_mb

    async def all_of(reader: asyncio.StreamReader) -> None:
        seen = 0
        while seen < records:
            seen += (await reader.read(1 << 16)).count(b'\ndata: {"topic"')

    used, began = processor_seconds(pid), time.perf_counter()
    waiting = asyncio.gather(*(all_of(reader) for reader, _ in opened))
    with Producer(bootstrap) as producer:
        for number in range(records):
            producer.send("streamed", b"x" * 100)
            if number % 10 == 9:
                await asyncio.sleep(0.05)
    await waiting
    spent, used = time.perf_counter() - began, processor_seconds(pid) - used
    for _, writer in opened:
        writer.close()
    return {
        "streams events/s": count * records / spent,
        "streams server us/event": used / (count * records) * 1e6,
        "streams kB each": (idle - before) * 1000 / count,
        "streams peak MB": memory(pid).peak_mb,
    }


class Server:
    """The door or the handler, running, with its connections."""

    def __init__(self, name: str, port: int, pid: int) -> None:
        self.name, self.port, self.pid = name, port, pid
        kind = "application/vnd.kafka.json.v2+json"
        one = request(port, "POST", f"/topics/{TOPIC}", ONE, kind, V2)
        self.writers = Fleet(port, [one] * CONNECTIONS)

    async def readers(self, generation: int) -> Fleet:
        if self.name == "headrace":
            paths = await instances(self.port, generation)
        else:
            paths = [
                f"/consumers/{generation}-{n}/records?topic=stored&max_records=100"
                for n in range(READERS)
            ]
        binary = "application/vnd.kafka.binary.v2+json"
        asked = [request(self.port, "GET", path, b"", V2, binary) for path in paths]
        return Fleet(self.port, asked)


@contextmanager
def started(name: str, bootstrap: str) -> Iterator[Server]:
    port = free_port()
    command = (
        ["headrace", "http", "-b", bootstrap, "--listen", f"127.0.0.1:{port}"]
        if name == "headrace"
        else ["benchmarks.http_plain", bootstrap, str(port)]
    )
    with served(command) as process:
        asyncio.run(ready(port, name))
        server = Server(name, port, process.pid)
        try:
            yield server
        finally:
            server.writers.close()


def in_turn(servers: list[Server], slices: int) -> Iterator[tuple[int, Server]]:
    """Each goes first in every second slice."""
    for number in range(slices):
        for server in servers if number % 2 else servers[::-1]:
            yield number, server


def measure(bootstrap: str, seconds: float, slices: int, count: int) -> None:
    found: dict[str, dict[str, list[float]]] = {"headrace": {}, "plain": {}}

    def note(server: Server, sample: Sample) -> None:
        sys.stderr.write(f"{server.name}: {sample}\n")
        for what, value in sample.items():
            found[server.name].setdefault(what, []).append(value)

    with started("headrace", bootstrap) as ours, started("plain", bootstrap) as theirs:
        servers = [ours, theirs]
        for server in servers:
            produce(server, seconds)  # warm
        for _, server in in_turn(servers, slices):
            note(server, produce(server, seconds))
        for number, server in in_turn(servers, slices):
            fleet = asyncio.run(server.readers(number))
            consume(server, fleet)  # the first answers wait for the first fetch
            note(server, consume(server, fleet))
            fleet.close()
        for _, server in in_turn(servers, 3):
            note(server, asyncio.run(bulk(server.port, server.pid)))
    with started("headrace", bootstrap) as fresh:
        note(fresh, asyncio.run(streams(fresh.port, fresh.pid, count, bootstrap)))
        note(fresh, {"door MB": memory(fresh.pid).resident_mb})
    tell(found)


def tell(found: dict[str, dict[str, list[float]]]) -> None:
    sys.stdout.write(f"{'':34} {'headrace':>12} {'plain':>12} {'ratio':>8}\n")
    for what, values in found["headrace"].items():
        ours, theirs = median(values), found["plain"].get(what)
        if theirs is None:
            sys.stdout.write(f"{what:34} {ours:12,.3f}\n")
            continue
        # Of neighbours in time, then the median: what the machine did meanwhile cancels out.
        ratio = median(a / b for a, b in zip(values, theirs, strict=True) if b)
        sys.stdout.write(f"{what:34} {ours:12,.3f} {median(theirs):12,.3f} {ratio:8.2f}\n")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=1.0)
    asked.add_argument("--slices", type=int, default=10)
    asked.add_argument("--streams", type=int, default=1000)
    given = asked.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, HeadraceNode(Path(folder)) as node:
        topics = Topics(connection(bootstrap=node.bootstrap))
        for name in (TOPIC, "stored", "streamed"):
            topics.create(name, partitions=1)
        with Producer(node.bootstrap) as producer:
            for number in range(STORED):
                producer.send_one_way("stored", b"x" * 100, key=str(number))
        measure(node.bootstrap, given.seconds, given.slices, given.streams)


if __name__ == "__main__":
    main()
