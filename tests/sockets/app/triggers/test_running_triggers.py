"""Triggers on a real broker: a file's functions and endpoints, and the decorator."""

import asyncio
import json
import threading
import time
import tomllib
from typing import Any

import confluent_kafka
import pytest
from aiohttp import web

from headrace.app import App
from headrace.app.triggers.running_triggers import run
from headrace.app.triggers.settings import parse
from headrace.client.connection import connection
from headrace.testing import Broker
from tests.patience import until

pytestmark = pytest.mark.usefixtures("quick_producers")

FUNCTIONS = """
import os

def book(events):
    with open(os.environ["BOOKED"], "a") as file:
        for event in events:
            file.write(event.data.decode() + "\\n")
    return [event.id for event in events if b"bad" in event.data]
"""


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


def produce(broker, topic, *values):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=f"k{number}")
    assert producer.flush(60) == 0


def dead_letters(broker, topic):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads-" + topic,
            "auto.offset.reset": "earliest",
        }
    )
    until(lambda: topic in consumer.list_topics(timeout=60).topics)  # the triggers make it
    consumer.subscribe([topic])
    record = None
    deadline = time.monotonic() + 180
    while record is None and time.monotonic() < deadline:
        record = consumer.poll(1)
        if record is not None and record.error():
            record = None
    consumer.close()
    return record


def running(broker, text):
    """The triggers of a file on a loop of their own; a function that ends them."""
    file = parse(tomllib.loads(text), {})
    begun = threading.Event()
    loop: Any = None
    task: Any = None

    async def serve():
        nonlocal loop, task
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(run(file, connection(bootstrap=broker.bootstrap)))
        begun.set()
        await asyncio.gather(task, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert begun.wait(60)

    def end():
        loop.call_soon_threadsafe(task.cancel)
        thread.join(60)
        assert not thread.is_alive()

    return end


def test_a_function_is_called_and_what_it_names_is_parked(broker, tmp_path, monkeypatch):
    (tmp_path / "booking.py").write_text(FUNCTIONS)
    booked = tmp_path / "booked"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BOOKED", str(booked))
    produce(broker, "refunds", b'{"n": 1}', b'{"n": "bad"}', b'{"n": 3}', b'{"no": 1}')
    end = running(
        broker,
        """
        group = "hooks"
        [trigger.book]
        topic = "refunds"
        filter = "exists(value.n)"
        function = "booking:book"
        batch = { records = 10, wait = "100ms" }
        retry = { attempts = 2, first = "10ms", longest = "10ms" }
        """,
    )
    try:
        letter = dead_letters(broker, "refunds.hooks_2Ebook.dead")
    finally:
        end()
    assert letter.value() == b'{"n": "bad"}'
    lines = booked.read_text().splitlines()
    assert lines.count('{"n": 1}') == lines.count('{"n": 3}') == 1
    assert lines.count('{"n": "bad"}') == 2
    assert '{"no": 1}' not in lines


def test_an_endpoint_is_called_with_batches_of_cloud_events(broker):
    got = []
    produce(broker, "clicks", *(b'{"n": %d}' % n for n in range(5)))

    async def handle(request):
        got.extend(await request.json())
        return web.json_response({})

    async def endpoint(ready, over):
        application = web.Application()
        application.router.add_post("/hook", handle)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.append(runner.addresses[0][1])
        await asyncio.to_thread(over.wait)
        await runner.cleanup()

    ready, over = [], threading.Event()
    server = threading.Thread(target=lambda: asyncio.run(endpoint(ready, over)))
    server.start()
    until(lambda: ready)
    end = running(
        broker,
        f"""
        [trigger.clicks]
        pattern = "cli.*"
        url = "http://127.0.0.1:{ready[0]}/hook"
        allow_hosts = ["127.0.0.1"]
        batch = {{ records = 5, wait = "5s" }}
        """,
    )
    try:
        until(lambda: len(got) == 5)
    finally:
        end()
        over.set()
        server.join(60)
    assert sorted(event["data"]["n"] for event in got) == [0, 1, 2, 3, 4]
    assert {event["source"].rpartition("/")[0] for event in got} == {"/clicks"}


def test_the_decorator(broker):
    app = App(broker.bootstrap, group="decorated")
    seen = []

    @app.trigger("events", filter="value.kind == 'paid'", batch=10, wait="10ms")
    def paid(events):
        seen.extend(json.loads(event.data)["n"] for event in events)

    produce(broker, "events", b'{"kind": "paid", "n": 1}', b'{"kind": "sent", "n": 2}')
    with app.running():
        produce(broker, "events", b'{"kind": "paid", "n": 3}')
        until(lambda: len(seen) == 2)
    assert sorted(seen) == [1, 3]
