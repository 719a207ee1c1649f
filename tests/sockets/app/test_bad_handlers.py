"""Handlers that misbehave: they are found out, named, and harm nobody else."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from headrace import App, Message, Retry
from headrace.app.attempts import watchdog
from headrace.app.retry import TryLater

pytestmark = pytest.mark.usefixtures("quick_producers")


def test_a_handler_that_blocks_the_loop_is_named(
    cluster: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "BLOCKED_S", 0.1)
    monkeypatch.setattr(watchdog, "BEAT_S", 0.02)
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")

    @app.on("orders")
    async def careless(value: str) -> None:
        deadline = time.monotonic() + 180
        while "blocked the loop" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)  # noqa: ASYNC251 - what the test is about

    with caplog.at_level(logging.WARNING), app.running():
        app.send("orders", "x")
        cluster.until(lambda: app.subscriptions[0].stats.handled == 1)
    assert "careless" in caplog.text


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_a_child_that_a_handler_forks_does_not_become_a_worker(cluster: Any, kind: str) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    seen: list[int] = []
    children: list[int] = []

    def fork(value: str) -> None:
        child = os.fork()
        if child:  # the child comes back out of the handler as well, and must end there
            children.append(child)
            seen.append(int(value))

    async def fork_async(value: str) -> None:
        await asyncio.sleep(0)
        fork(value)

    app.on("orders")(fork if kind == "function" else fork_async)
    with app.running():
        for number in range(3):
            app.send("orders", str(number))
        cluster.until(lambda: len(seen) == 3)
        for child in children:
            assert os.waitpid(child, 0) == (child, 0)
    assert cluster.committed("g")["orders", 0] == 3
    assert cluster.records("orders.g.dead") == []


def test_what_is_away_for_a_while_does_not_use_up_attempts(cluster: Any, caplog: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")
    attempts: list[int] = []

    @app.on("orders", retry=Retry(attempts=2, first="1ms"))
    async def handle(value: str, message: Message) -> None:
        attempts.append(message.attempt)
        if len(attempts) < 6:
            raise TryLater("the database is away", after="5ms")

    with app.running():
        app.send("orders", "x")
        cluster.until(lambda: app.subscriptions[0].stats.handled == 1)
    assert attempts == [1] * 6
    [said] = [line.getMessage() for line in caplog.records if "waits" in line.getMessage()]
    assert said.endswith("nothing is lost and no attempt is counted: the database is away")


def test_an_exception_that_cannot_be_printed_is_parked_all_the_same(cluster: Any) -> None:
    class Sly(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")

    @app.on("orders", retry=Retry(attempts=1))
    def handle(value: str) -> None:
        raise Sly

    with app.running():
        app.send("orders", "x")
        stats = app.subscriptions[0].stats
        cluster.until(lambda: stats.parked == 1 and not stats.in_flight)
    [dead] = cluster.records("orders.g.dead")
    assert b"Sly" in (dead.header("headrace-dead-error") or b"")


def test_a_result_that_cannot_be_published_is_a_failure_of_the_handler(cluster: Any) -> None:
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g")

    @app.on("orders", retry=Retry(attempts=1))
    async def handle(value: str) -> object:
        return {"x": object()} if value == "unknown" else {"x": 1}  # and nobody says where to

    with app.running():
        app.send("orders", "known")
        app.send("orders", "unknown")
        stats = app.subscriptions[0].stats
        cluster.until(lambda: stats.parked == 2 and not stats.in_flight)
    messages = [r.header("headrace-dead-message") or b"" for r in cluster.records("orders.g.dead")]
    assert all(b"publish" in message for message in messages)


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["blocks", "catches"])
def test_a_handler_that_does_not_end_is_given_up_at_the_stop(
    cluster: Any, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.app.worker.worker.CANCEL_WAIT_S", 0.1)
    cluster.topic("orders")
    app = App(cluster.bootstrap, group="g", drain="10ms")
    begun, over = threading.Event(), threading.Event()

    @app.on("orders")
    async def stubborn(value: str) -> None:
        begun.set()
        if kind == "blocks":
            over.wait(180)
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    app.start()
    worker = app.worker
    assert worker is not None
    app.send("orders", "x").result()
    assert begun.wait(60)
    app.stop()
    over.set()
    assert app._sender is None  # it went to the end
    assert "stubborn does not end" in caplog.text
    worker._loop_thread.join(60)
    del app, worker, stubborn
    gc.collect()
    assert "was destroyed but it is pending" not in caplog.text
