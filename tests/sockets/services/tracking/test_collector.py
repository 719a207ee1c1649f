"""The collector over HTTP in front of a real broker: what it takes, refuses, and leaves behind."""

import asyncio
import json
import socket
import time
from contextlib import asynccontextmanager

import confluent_kafka
import pytest
from aiohttp import ClientSession

from headrace.client.connection import ClientSettings
from headrace.services.tracking.collector import Collector, CollectorLimits
from headrace.services.tracking.poster import NotTaken, Poster
from headrace.services.tracking.rate import Rate
from headrace.services.tracking.topics import make_topics
from headrace.services.tracking.web import Door, Sites, status_pages
from headrace.testing import Broker
from headrace.wire.contract.tracking import KINDS

SHOP = "https://shop.example"


@pytest.fixture
def connection(headrace_broker: Broker):
    at = ClientSettings({"bootstrap.servers": headrace_broker.bootstrap})
    assert make_topics(at, partitions=2) == [kind.topic for kind in KINDS.values()]
    assert make_topics(at, partitions=2) == []
    return at


def view(number=0):
    return {"kind": "page-view", "visitor": f"v{number}", "page": f"/{number}"}


@asynccontextmanager
async def open_collector(at, limits=None, origins=(), *, grace_s=60.0):
    collector = Collector(at, limits or CollectorLimits())
    sites = Sites()
    port = await sites.open_to_the_world(Door(collector, origins), "127.0.0.1", 0)
    shown = await sites.open(status_pages(collector), "127.0.0.1", 0)
    try:
        async with ClientSession() as browser:
            yield collector, browser, f"http://127.0.0.1:{port}/track", f"http://127.0.0.1:{shown}"
    finally:
        await sites.close()
        await collector.close(grace_s)


async def post(browser, url, body, **headers):
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | headers
    async with browser.post(url, data=sent, headers=headers) as answer:
        return answer.status, await answer.json(), answer.headers


def records(at, topic, count):
    settings = {"group.id": f"look-{topic}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**at.settings, **settings})
    consumer.subscribe([topic])
    found, deadline = [], time.monotonic() + 180
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append((message.key(), json.loads(message.value())))
    consumer.close()
    return found


def test_events_of_every_way_to_send_lie_in_the_topic_of_their_kind(connection):
    async def story():
        async with open_collector(connection) as (collector, browser, url, _):
            one = await post(browser, url, view())
            many = await post(browser, url, [view(1), {**view(2), "kind": "click", "target": "a"}])
            beacon = await post(
                browser, url, [view(3)], **{"Content-Type": "text/plain;charset=UTF-8"}
            )
            assert [answer[:2] for answer in (one, many, beacon)] == [
                (202, {"accepted": 1}),
                (202, {"accepted": 2}),
                (202, {"accepted": 1}),
            ]
        return collector.ledger

    ledger = asyncio.run(story())  # closing has written everything
    assert (ledger.taken, ledger.written, ledger.lost, ledger.bytes) == (4, 4, 0, 0)
    views = sorted(records(connection, "page-views", 3), key=lambda one: one[0])
    assert [(key, value["page"]) for key, value in views] == [
        (b"v0", "/0"),
        (b"v1", "/1"),
        (b"v3", "/3"),
    ]
    assert len({value["id"] for _, value in views}) == 3
    [(key, click)] = records(connection, "clicks", 1)
    assert (key, click["target"]) == (b"v2", "a")


def test_a_bad_event_is_named_and_the_good_ones_beside_it_are_kept(connection):
    async def story():
        async with open_collector(connection) as (collector, browser, url, shown):
            status, said, _ = await post(browser, url, [view(1), {"kind": "search"}, view(2)])
            assert status == 400
            assert said == {
                "accepted": 2,
                "refused": 1,
                "faults": [{"event": 1, "field": "visitor", "why": "is missing"}],
            }
            await post(browser, url, [{**view(1), f"made-up-{n}": 1} for n in range(300)])
            assert (await post(browser, url, b"{not json"))[0] == 400
            kind = {"Content-Type": "application/xml"}
            assert (await post(browser, url, view(), **kind))[0] == 415
            async with browser.get(f"{shown}/metrics") as answer:
                return await answer.text()

    numbers = asyncio.run(story())
    assert 'headrace_track_events_refused_total{field="visitor"} 1\n' in numbers
    assert 'headrace_track_events_refused_total{field="other"} 300\n' in numbers  # no made-up label
    assert 'headrace_track_events_accepted_total{topic="page-views"} 2\n' in numbers
    assert 'headrace_track_requests_total{status="415"} 1\n' in numbers
    assert len(records(connection, "page-views", 2)) == 2


def test_bodies_and_batches_are_bounded(connection):
    async def story():
        limits = CollectorLimits(body_bytes=2048, events=3)
        async with open_collector(connection, limits) as (collector, browser, url, _):
            status, said, headers = await post(browser, url, b" " * 4096)
            assert status == 413
            assert "over 2048 bytes" in said["error"]
            assert headers["Connection"] == "close"
            status, said, _ = await post(browser, url, [view()] * 4)
            assert status == 413
            assert "at most 3" in said["error"]
            assert collector.ledger.taken == 0

    asyncio.run(story())


@pytest.mark.integration
def test_a_rate_is_kept_to_and_says_when_to_come_again(connection):
    async def story():
        limits = CollectorLimits(events=2, rate=0.01)  # two at once, then one in a hundred seconds
        async with open_collector(connection, limits) as (_, browser, url, _):
            assert (await post(browser, url, [view(), view()]))[0] == 202
            status, said, headers = await post(browser, url, view())
            assert status == 429
            assert "0.01 events a second" in said["error"]
            assert 90 <= int(headers["Retry-After"]) <= 100

    asyncio.run(story())


def test_the_bucket_fills_with_time():
    rate = Rate(10.0, burst=5)
    assert rate.take(10, 100.0) == 0
    assert rate.take(5, 100.0) == 0.5
    assert rate.take(5, 100.5) == 0
    assert rate.take(10, 200.0) == 0
    assert Rate(0, burst=1).take(1_000_000, 0.0) == 0


def test_without_a_cluster_the_queue_fills_and_later_requests_are_told_to_wait():
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        at = ClientSettings({"bootstrap.servers": f"127.0.0.1:{nobody.getsockname()[1]}"})

        async def story():
            limits = CollectorLimits(queue=5)
            async with open_collector(at, limits, grace_s=0) as (collector, browser, url, shown):
                assert (await post(browser, url, [view(n) for n in range(4)]))[0] == 202
                status, said, headers = await post(browser, url, [view(5), view(6)])
                assert (status, said["accepted"], headers["Retry-After"]) == (503, 0, "2")
                assert (await post(browser, url, view(7)))[0] == 202  # this one fits
                async with browser.get(f"{shown}/health") as answer:
                    assert answer.status == 503
                    assert await answer.json() == {"ok": False, "waiting": 5, "queue": 5}
            return collector.ledger

        ledger = asyncio.run(story())
        assert (ledger.written, ledger.lost, ledger.waiting) == (0, 5, 0)
        assert ledger.last_failure is not None


def test_only_pages_of_named_origins_may_send(connection):
    async def story():
        async with open_collector(connection, origins=[SHOP]) as (collector, browser, url, _):
            status, _, headers = await post(browser, url, view(), Origin=SHOP)
            assert (status, headers["Access-Control-Allow-Origin"]) == (202, SHOP)
            status, _, headers = await post(browser, url, view(), Origin="https://other.example")
            assert status == 403
            assert "Access-Control-Allow-Origin" not in headers
            assert (await post(browser, url, view()))[0] == 202  # no browser
            async with browser.options(url, headers={"Origin": SHOP}) as answer:
                assert answer.status == 204
                assert answer.headers["Access-Control-Allow-Methods"] == "POST"
                assert answer.headers["Access-Control-Allow-Headers"] == "Content-Type"
            async with browser.options(url, headers={"Origin": "https://other.example"}) as answer:
                assert "Access-Control-Allow-Methods" not in answer.headers
            assert collector.ledger.taken == 2

    asyncio.run(story())


def test_a_poster_waits_as_long_as_it_is_told_and_gives_up_after_a_while(connection):
    async def story():
        limits = CollectorLimits(events=2, rate=0.01)
        async with open_collector(connection, limits) as (_, _, url, _):
            waits = []
            poster = Poster(url.removesuffix("/track"), sleep=waits.append)
            assert await asyncio.to_thread(poster.post, [view(), view()]) == 2
            with pytest.raises(NotTaken, match="busy 10 times"):
                await asyncio.to_thread(poster.post, [view()])
            assert waits == [30.0] * 10  # 100 seconds were asked for; nobody waits so long
            with pytest.raises(NotTaken, match="answered 413"):
                await asyncio.to_thread(poster.post, [view()] * 3)
            poster.close()

    asyncio.run(story())
    with pytest.raises(NotTaken, match="not the address of a collector"):
        Poster("shop.example:80")
