"""Handlers that misbehave in a real worker process: it lives on, and says who it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.client import Admin, Producer
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from tests import patience
from tests.interop.brokers import HeadraceNode
from tests.whole_lines import whole_lines

PROGRAM = str(Path(sys.executable).with_name("headrace"))

MODULE = '''
import asyncio
import os
import sys
import time

from headrace import App, Message, Retry

app = App(os.environ["BOOTSTRAP"], group="shop", settings={"session.timeout.ms": 12_000})
notes = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
retry = Retry(attempts=2, first="20ms", longest="20ms", time_limit="3s")


class Strange(BaseException):
    """Neither an Exception nor anything that Python knows."""


def act(value: str) -> None:
    match value:
        case "exit":
            sys.exit(3)
        case "strange":
            raise Strange
        case "interrupt":
            raise KeyboardInterrupt
        case "cancel":
            raise asyncio.CancelledError
        case "fork":
            child = os.fork()
            if not child:
                return  # it comes out of the handler as well, and must end there
            os.waitpid(child, 0)
    os.write(notes, f"{value} {os.getpid()}\\n".encode())


@app.on("functions", retry=retry)
def function(value: str, message: Message) -> None:
    while value == "hang":
        time.sleep(0.01)
    act(value)


@app.on("coroutines", retry=retry)
async def coroutine(value: str, message: Message) -> None:
    if value == "hang":
        await asyncio.sleep(600)
    if value == "block" and message.attempt == 1:
        time.sleep(4)
    act(value)


@app.on("jobs")
def job(value: str) -> None:
    time.sleep(14)  # longer than a session
    act(value)
'''

ERRORS = {
    "exit": "builtins.SystemExit",
    "strange": "shop.Strange",
    "interrupt": "builtins.KeyboardInterrupt",
    "cancel": "asyncio.exceptions.CancelledError",
    "hang": "headrace.app.retry.AttemptTimedOut",
}
NOT_UTF8 = b"\xff\xfe"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceNode]:
    with HeadraceNode(tmp_path / "node") as node:
        for topic in ("functions", "coroutines", "jobs"):
            Admin(node.bootstrap).topics.create(topic, partitions=1)
        yield node


def until(true: Callable[[], object], log: Path, within_s: float = 400) -> None:
    patience.until(true, lambda: log.read_text(errors="replace")[-6000:], within_s=within_s)


def dead_letters(bootstrap: str, topic: str) -> dict[bytes, str]:
    reader = RecordReader(ClientSettings({"bootstrap.servers": bootstrap}), f"{topic}.shop.dead")
    try:
        return {
            record.value or b"": (record.header("headrace-dead-error") or b"").decode()
            for record in reader.records()
        }
    finally:
        reader.close()


def test_the_worker_outlives_them_all_and_says_who_blocked_the_loop(
    node: HeadraceNode, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(MODULE)
    notes, log = tmp_path / "notes", tmp_path / "worker.log"
    notes.touch()
    given = {
        "functions": [*ERRORS, "fork", "good"],
        "coroutines": [*ERRORS, "fork", "block", "good"],
    }
    with Producer(node.bootstrap) as producer:
        producer.send("jobs", "job")
        for topic, values in given.items():
            producer.send(topic, NOT_UTF8)
            for value in values:
                producer.send(topic, value)
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [PROGRAM, "app", "run", "shop:app", "--json"],
            cwd=tmp_path,
            env={**os.environ, "BOOTSTRAP": node.bootstrap, "NOTES": str(notes)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        until(lambda: len(whole_lines(notes)) >= 6, log)
        for topic in given:
            until(lambda at=topic: len(dead_letters(node.bootstrap, at)) == 6, log)  # type: ignore[misc]
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(400) == 0, log.read_text(errors="replace")[-6000:]
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    done = [line.split()[0] for line in whole_lines(notes)]
    assert sorted(done) == ["block", "fork", "fork", "good", "good", "job"]  # none twice
    assert {line.split()[1] for line in whole_lines(notes)} == {str(worker.pid)}
    for topic in given:
        found = dead_letters(node.bootstrap, topic)
        assert found.pop(NOT_UTF8) == "headrace.app.decoding.Undecodable"
        assert {value.decode(): error for value, error in found.items()} == ERRORS
    said = log.read_text(errors="replace")
    assert "a handler has blocked the loop" in said and "coroutine, in coroutine at" in said
    assert said.count("took over") <= 3 and "lost" not in said, "a handler led to a rebalance"
