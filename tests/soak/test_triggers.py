"""Triggers for long: an endpoint that goes down and comes back, functions over their limits, kills.

EVENTS events (20,000 if nobody says otherwise) call an HTTP endpoint and a function. The endpoint
is away three times, answers some calls with an error and names some records as failed; the function
hangs or eats memory for some records, always. `headrace triggers run` is killed every now and then.
In the end each event has been taken by both, or lies in the function's dead letters because it
could not be.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from headrace.client import Admin, Producer
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from tests.interop.brokers import TARGET, free_port, make_node
from tests.soak.report import write_row
from tests.whole_lines import whole_lines

EVENTS = int(os.environ.get("EVENTS", "20000"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))
PROGRAM = str(Path(sys.executable).with_name("headrace"))
AWAY_S = 12.0
POISON = 6  # of each kind

FUNCTIONS = """
import json, os, time

def book(events):
    taken = []
    for event in events:
        record = json.loads(event.data)
        if record["kind"] == "hangs":
            time.sleep(600)
        if record["kind"] == "greedy":
            bytearray(1 << 34)
        taken.append(f"{record['number']}\\n")
    with open(os.environ["BOOKED"], "ab", buffering=0) as file:
        file.write("".join(taken).encode())
"""

FILE = """
group = "soak"

[trigger.hook]
topic = "events"
url = "http://127.0.0.1:{port}/hook"
allow_hosts = ["127.0.0.1"]
batch = {{ records = 50, wait = "200ms" }}
retry = {{ attempts = 8, first = "100ms", longest = "1s" }}
concurrency = 4
rate = 20
timeout = "5s"

[trigger.book]
topic = "events"
function = "booking:book"
batch = {{ records = 50, wait = "200ms" }}
retry = {{ attempts = 2, first = "100ms", longest = "1s" }}
concurrency = 2
timeout = "2s"
memory_bytes = 2147483648
"""


class Endpoint:
    """An HTTP server on a loop of its own; `down` closes its door, `up` opens it again."""

    def __init__(self, chance: random.Random) -> None:
        self.port = free_port()
        self.taken: set[int] = set()
        self.calls = self.refused = self.named = 0
        self._chance = chance
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner: web.AppRunner | None = None

    async def _handle(self, request: web.Request) -> web.Response:
        self.calls += 1
        body = await request.read()
        if self._chance.random() < 0.02:
            self.refused += 1
            return web.Response(status=503)
        events = json.loads(body)
        batch = events if isinstance(events, list) else [{"id": "", "data": events}]
        failed = [event["id"] for event in batch if len(batch) > 1 and self._chance.random() < 0.01]
        self.named += len(failed)
        self.taken.update(e["data"]["number"] for e in batch if e["id"] not in failed)
        return web.json_response({"failed": failed})

    async def _up(self) -> None:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_post("/hook", self._handle)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def _down(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def up(self) -> None:
        asyncio.run_coroutine_threadsafe(self._up(), self._loop).result(30)

    def down(self) -> None:
        asyncio.run_coroutine_threadsafe(self._down(), self._loop).result(30)

    def close(self) -> None:
        self.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Triggers:
    """`headrace triggers run` as a process."""

    def __init__(self, bootstrap: str, folder: Path, booked: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._environment = {**os.environ, "BOOKED": str(booked)}
        self._log = folder / "triggers.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "triggers", "run", "triggers.toml", "-b", self._bootstrap],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(90)
        self.process = None
        assert code == 0, self.log_text()[-4000:]

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")


@contextlib.contextmanager
def endpoint(chance: random.Random) -> Iterator[Endpoint]:
    server = Endpoint(chance)
    try:
        yield server
    finally:
        server.close()


def feed(bootstrap: str, chance: random.Random) -> set[int]:
    """The numbers of those that the function can never take."""
    kinds = ["hangs", "greedy"] * POISON
    poison = dict(zip(chance.sample(range(EVENTS), len(kinds)), kinds, strict=True))
    with Producer(bootstrap) as producer:
        for number in range(EVENTS):
            record = {"number": number, "kind": poison.get(number, "plain")}
            producer.send("events", json.dumps(record), key=f"k{number % 500}")
    return set(poison)


def letters(bootstrap: str, trigger: str) -> set[int]:
    topic = f"events.soak_2E{trigger}.dead"
    reader = RecordReader(ClientSettings({"bootstrap.servers": bootstrap}), topic)
    try:
        return {json.loads(record.value or b"")["number"] for record in reader.records()}
    finally:
        reader.close()


def booked_in(path: Path) -> set[int]:
    return {int(line) for line in whole_lines(path)}


def until(true: Callable[[], object], triggers: Triggers, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, triggers.log_text()[-6000:]
        time.sleep(0.5)


@pytest.mark.timeout(1800)
def test_nothing_is_lost_whatever_goes_away(tmp_path: Path) -> None:
    began = time.monotonic()
    chance = random.Random(SEED)
    booked = tmp_path / "booked"
    booked.touch()
    (tmp_path / "booking.py").write_text(FUNCTIONS)
    kills = 0
    with make_node(TARGET, tmp_path / "node") as node, endpoint(random.Random(SEED)) as hook:
        Admin(node.bootstrap).topics.create("events", partitions=6)
        poison = feed(node.bootstrap, chance)
        (tmp_path / "triggers.toml").write_text(FILE.format(port=hook.port))
        triggers = Triggers(node.bootstrap, tmp_path, booked)
        hook.up()
        triggers.start()
        try:
            for share in (0.2, 0.45, 0.7):  # of the work; each time something else is at it
                until(lambda at=share: len(hook.taken) > EVENTS * at, triggers, 300)  # type: ignore[misc]
                hook.down()
                time.sleep(AWAY_S)
                triggers.kill()
                kills += 1
                triggers.start()
                hook.up()
            until(lambda: len(hook.taken) == EVENTS, triggers, 600)
            until(lambda: booked_in(booked) | poison == set(range(EVENTS)), triggers, 600)
            until(lambda: letters(node.bootstrap, "book") == poison, triggers, 300)
            triggers.stop()
        finally:
            triggers.kill()
        assert letters(node.bootstrap, "hook") == set(), "an endpoint that is away parks nothing"
        assert not booked_in(booked) & poison
    lines = booked.read_text().split()
    write_row(
        f"triggers on {node.name}, {EVENTS:,} events (seed {SEED}) to an HTTP endpoint, which was "
        f"away 3 times for {AWAY_S:.0f} s, answered {hook.refused} of {hook.calls:,} calls with "
        f"503 and named {hook.named} records as failed, and to a function that hangs or eats "
        f"memory for {len(poison)} of them; `headrace triggers run` killed {kills} times",
        f"every event was taken by the endpoint, none of its parked; the function took "
        f"{len(set(lines)):,} ({len(lines) - len(set(lines)):,} of them again after a kill or "
        f"beside a failed one) and {len(poison)} were parked; none lost; "
        f"{time.monotonic() - began:.0f} s in all",
    )
