"""Doors and their broker killed under load: senders repeat with the same key until they hear 200.

Two doors as processes before one node. Each sender has keys of its own and asks either door; what
was answered with 200 must be in the topic exactly once, at the offset that the answer named, and
nothing else may be there.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.interop.brokers import Node, free_port

JSON2 = "application/vnd.kafka.json.v2+json"
TOPIC = "paid"
SENDERS = 16
# A door that dies ends its connections at once. Who gives up earlier than a busy machine answers,
# and asks the other door, makes both doors do the work of one.
ANSWER_WITHIN_S = 60
PATIENCE_S = 400


class DoorProcess:
    """`headrace http`, killed and started again on the same port."""

    def __init__(self, bootstrap: str) -> None:
        self.port = free_port()
        self._bootstrap = bootstrap
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = Path(sys.executable).with_name("headrace")
        listen = f"127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [str(program), "http", "-b", self._bootstrap, "--listen", listen, "--grace", "5"],
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE_S)
            self._process = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(slots=True)
class Told:
    """What senders were told."""

    offsets: dict[str, int] = field(default_factory=dict)  # by key, which is also the value
    attempts: int = 0
    replayed: int = 0


async def _send(
    session: aiohttp.ClientSession, doors: list[DoorProcess], key: str, told: Told
) -> None:
    body = json.dumps({"records": [{"key": key, "value": key}]})
    headers = {"Content-Type": JSON2, "Idempotency-Key": key}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        told.attempts += 1
        assert time.monotonic() < deadline, f"{key} was never answered"
        door = random.choice(doors)
        try:
            async with session.post(
                f"{door.address}/topics/{TOPIC}",
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=ANSWER_WITHIN_S),
            ) as answer:
                said = await answer.json(content_type=None)
                if answer.status == 200:
                    told.offsets[key] = said["offsets"][0]["offset"]
                    told.replayed += "Idempotency-Replayed" in answer.headers
                    return
                assert answer.status in (429, 503), said
        except (aiohttp.ClientError, TimeoutError):
            pass
        await asyncio.sleep(0.05)


async def _flow(doors: list[DoorProcess], told: Told, stop: asyncio.Event) -> None:
    async with aiohttp.ClientSession() as session:

        async def sender(number: int) -> None:
            count = 0
            while not stop.is_set():
                await _send(session, doors, f"{number}-{count}", told)
                count += 1

        await asyncio.gather(*(sender(number) for number in range(SENDERS)))


async def _rounds(node: Node, doors: list[DoorProcess], rounds: int, told: Told) -> None:
    stop = asyncio.Event()
    flow = asyncio.ensure_future(_flow(doors, told, stop))
    try:
        for number in range(rounds):
            before = len(told.offsets)
            while len(told.offsets) < before + 30:
                await asyncio.sleep(0.05)
                if flow.done():
                    break
            if number % 3 == 2:
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
            else:
                door = doors[number % 3]
                await asyncio.to_thread(door.kill)
                door.start()
    finally:
        stop.set()
        await flow


def run_rounds(node: Node, rounds: int) -> Told:
    doors = [DoorProcess(node.bootstrap) for _ in range(2)]
    told = Told()
    try:
        for door in doors:
            door.start()
        asyncio.run(_rounds(node, doors, rounds, told))
    finally:
        for door in doors:
            door.stop()
    return told


def judged(bootstrap: str, told: Told) -> list[tuple[int, str]]:
    """What a reader of committed records sees, once it can see all. A door that was killed may have
    left a transaction open; until the cluster aborts it, after 15 s, nobody reads past it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = committed(bootstrap)
        missing = told.offsets.keys() - {value for _, value in found}
        if not missing or time.monotonic() > deadline:
            return found
        time.sleep(1)


def committed(bootstrap: str) -> list[tuple[int, str]]:
    """Offset and value of each record, as far as all is decided."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[int, str]] = []
    try:
        while True:
            message = reader.poll(60)
            assert message is not None
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                continue
            found.append((message.offset() or 0, json.loads(message.value() or b"")))
    finally:
        reader.close()
