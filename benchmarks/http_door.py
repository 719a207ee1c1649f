"""What does a request over HTTP cost, beside a handler written by hand on aiohttp and aiokafka?

`python -m benchmarks.http_door [--seconds 5] [--rounds 3] [--streams 1000]`: one Headrace broker,
the two servers as processes beside it, measured in turn: requests per second with one record, p99,
processor time of the server per request; answers of 100 records read; NDJSON in bulk. Then streams
of the door alone: so many readers at once, each gets every record; memory of the door.
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

from headrace.client.connection import connection
from headrace.client.producer import Producer
from headrace.client.topics import Topics
from tests.interop.brokers import HeadraceNode, free_port

from .processes import memory, processor_seconds

CONNECTIONS = 32
READERS = 4
STORED = 400_000
BULK_LINES = 50_000
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


async def produce(port: int, pid: int, seconds: float) -> Sample:
    """One record a request, from all connections at once."""
    callers = [await Caller(port).open() for _ in range(CONNECTIONS)]
    times: list[float] = []
    kind = "application/vnd.kafka.json.v2+json"

    async def flow(caller: Caller, until: float, counted: bool) -> None:
        while (started := time.perf_counter()) < until:
            await caller.ask("POST", f"/topics/{TOPIC}", ONE, kind)
            if counted:
                times.append(time.perf_counter() - started)

    for length, counted in ((seconds / 4, False), (seconds, True)):
        used, began = processor_seconds(pid), time.perf_counter()
        until = began + length
        await asyncio.gather(*(flow(each, until, counted) for each in callers))
    spent, used = time.perf_counter() - began, processor_seconds(pid) - used
    for each in callers:
        each.close()
    return {
        "produce requests/s": len(times) / spent,
        "produce p99 ms": quantiles(times, n=100)[98] * 1000,
        "produce server us/request": used / len(times) * 1e6,
    }


async def consume(port: int, pid: int, paths: list[str]) -> Sample:
    """A hundred records an answer, each reader through all that is stored."""
    times: list[float] = []
    records = 0

    async def flow(caller: Caller, path: str) -> None:
        nonlocal records
        left = STORED // READERS
        while left > 0:
            started = time.perf_counter()
            found = json.loads(await caller.ask("GET", path))
            times.append(time.perf_counter() - started)
            left -= len(found)
            records += len(found)

    callers = [await Caller(port).open() for _ in paths]
    used, began = processor_seconds(pid), time.perf_counter()
    await asyncio.gather(*(flow(c, p) for c, p in zip(callers, paths, strict=True)))
    spent, used = time.perf_counter() - began, processor_seconds(pid) - used
    for each in callers:
        each.close()
    return {
        "consume requests/s": len(times) / spent,
        "consume p99 ms": quantiles(times, n=100)[98] * 1000,
        "consume records/s": records / spent,
        "consume server us/record": used / records * 1e6,
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
        "bulk server us/record": used / (2 * BULK_LINES) * 1e6,
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


async def measure(bootstrap: str, seconds: float, rounds: int, count: int) -> None:
    found: dict[str, dict[str, list[float]]] = {"headrace": {}, "plain": {}}
    for round_ in range(rounds):
        for name in ("headrace", "plain"):
            port = free_port()
            command = (
                ["headrace", "http", "-b", bootstrap, "--listen", f"127.0.0.1:{port}"]
                if name == "headrace"
                else ["benchmarks.http_plain", bootstrap, str(port)]
            )
            with served(command) as process:
                await ready(port, name)
                sample = await produce(port, process.pid, seconds)
                if name == "headrace":
                    paths = await instances(port, round_)
                else:
                    paths = [
                        f"/consumers/{n}/records?topic=stored&max_records=100"
                        for n in range(READERS)
                    ]
                sample |= await consume(port, process.pid, paths)
                sample |= await bulk(port, process.pid)
                if name == "headrace" and round_ == rounds - 1:
                    sample |= await streams(port, process.pid, count, bootstrap)
                    sample["door MB"] = memory(process.pid).resident_mb
            for what, value in sample.items():
                found[name].setdefault(what, []).append(value)
    for what, values in found["headrace"].items():
        ours, theirs = median(values), found["plain"].get(what)
        if theirs is None:
            sys.stdout.write(f"{what:28} {ours:12,.1f}\n")
            continue
        ratio = ours / median(theirs)
        sys.stdout.write(f"{what:28} {ours:12,.1f} {median(theirs):12,.1f} {ratio:8.2f}\n")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=5.0)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--streams", type=int, default=1000)
    given = asked.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, HeadraceNode(Path(folder)) as node:
        topics = Topics(connection(bootstrap=node.bootstrap))
        for name in (TOPIC, "stored", "streamed"):
            topics.create(name, partitions=1)
        with Producer(node.bootstrap) as producer:
            for number in range(STORED // READERS):
                producer.send_one_way("stored", b"x" * 100, key=str(number))
        sys.stdout.write(f"{'':28} {'headrace':>12} {'plain':>12} {'ratio':>8}\n")
        asyncio.run(measure(node.bootstrap, given.seconds, given.rounds, given.streams))


if __name__ == "__main__":
    main()
