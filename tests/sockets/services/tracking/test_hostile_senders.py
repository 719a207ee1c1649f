"""Senders that are slow, huge, many or gone, and a cluster that goes away: all of it is bounded.

Each speaks HTTP by hand over a socket of its own, in front of a collector on a real broker.
"""

import asyncio
import gzip
import json
import time
from contextlib import asynccontextmanager, closing, contextmanager

import confluent_kafka
import pytest

from headrace.client.connection import ClientSettings
from headrace.services.tracking.collector import Collector, CollectorLimits
from headrace.services.tracking.topics import make_topics
from headrace.services.tracking.web import Door, Sites
from headrace.testing import Broker
from tests.interop.brokers import free_port

HOME = "127.0.0.1"
WITHIN_S = 180.0


@pytest.fixture
def connection(headrace_broker: Broker):
    at = ClientSettings({"bootstrap.servers": headrace_broker.bootstrap})
    make_topics(at, partitions=1)
    return at


def view(number=0):
    return {"kind": "page-view", "visitor": f"v{number}", "page": f"/{number}"}


@asynccontextmanager
async def open_collector(at, limits=None, *, grace_s=20.0):
    collector = Collector(at, limits or CollectorLimits())
    sites = Sites()
    port = await sites.open_to_the_world(Door(collector), HOME, 0)
    try:
        yield collector, port
    finally:
        await sites.close()
        await collector.close(grace_s)


def request(body, *headers, length=None):
    """A whole request, or one that promises more than it holds."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = ["POST /track HTTP/1.1", "Host: shop", "Content-Type: application/json", *headers]
    if not any("chunked" in line for line in headers):
        lines.append(f"Content-Length: {len(sent) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + sent


class Sender:
    """One connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, port, said=b""):
        sender = cls(*await asyncio.open_connection(HOME, port))
        sender.writer.write(said)
        await sender.writer.drain()
        return sender

    async def answer(self):
        """The status and headers of one answer; its body is read too."""
        async with asyncio.timeout(WITHIN_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            await self.reader.readexactly(int(headers["Content-Length"]))
        return int(head[0].split()[1]), headers

    async def is_ended(self):
        """Whether the other side closes the connection, however it does."""
        async with asyncio.timeout(WITHIN_S):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    async def close(self):
        self.writer.close()


async def until(true):
    async with asyncio.timeout(WITHIN_S):
        while not true():
            await asyncio.sleep(0.005)


@pytest.mark.integration
def test_a_body_that_comes_slowly_is_waited_for_a_while_only(connection):
    async def story():
        async with open_collector(connection, CollectorLimits(body_s=0.5)) as (collector, port):
            slow = await Sender.to(port, request(b"[", length=100))
            status, headers = await slow.answer()
            assert (status, headers["Connection"]) == (408, "close")
            assert await slow.is_ended()
            assert collector.ledger.taken == 0
            good = await Sender.to(port, request(view()))
            assert (await good.answer())[0] == 202

    asyncio.run(story())


@pytest.mark.integration
def test_a_connection_on_which_no_request_begins_is_closed(connection):
    async def story():
        async with open_collector(connection, CollectorLimits(idle_s=0.5)) as (_, port):
            silent = await Sender.to(port)
            half = await Sender.to(port, b"POST /track HTTP/1.1\r\nHost: sh")
            asked_once = await Sender.to(port, request(view()))
            assert (await asked_once.answer())[0] == 202
            for sender in (silent, half, asked_once):
                assert await sender.is_ended()

    asyncio.run(story())


@pytest.mark.integration
def test_a_body_without_an_end_is_cut_off_at_the_limit(connection):
    async def story():
        async with open_collector(connection, CollectorLimits(body_bytes=2048, body_s=3)) as (
            collector,
            port,
        ):
            endless = await Sender.to(port, request(b"", "Transfer-Encoding: chunked"))
            piece = b"400\r\n" + b" " * 0x400 + b"\r\n"
            for _ in range(4):
                endless.writer.write(piece)
            status, headers = await endless.answer()
            assert (status, headers["Connection"]) == (413, "close")
            assert await endless.is_ended()
            assert collector.ledger.taken == 0

    asyncio.run(story())


def test_what_is_compressed_is_not_opened(connection):
    async def story():
        async with open_collector(connection) as (collector, port):
            bomb = gzip.compress(b" " * 10_000_000)
            sender = await Sender.to(port, request(bomb, "Content-Encoding: gzip"))
            assert (await sender.answer())[0] == 415
            assert collector.counters.requests == {415: 1}

    asyncio.run(story())


@pytest.mark.integration
def test_a_sender_that_goes_away_in_mid_body_leaves_nothing_behind(connection):
    async def story():
        async with open_collector(connection, CollectorLimits(requests=1)) as (collector, port):
            gone = await Sender.to(port, request(b"[", length=100))
            other = await Sender.to(port)
            # The one place is taken until the collector has seen that the first has gone.
            await gone.close()
            while True:
                other.writer.write(request(view()))
                status, headers = await other.answer()
                if status == 202:
                    break
                assert (status, headers["Retry-After"]) == (503, "1")
            assert collector.ledger.taken == 1

    asyncio.run(story())


def test_requests_at_once_are_bounded(connection):
    async def story():
        async with open_collector(connection, CollectorLimits(requests=1)) as (collector, port):
            slow = await Sender.to(port, request(view(), length=len(json.dumps(view())) + 1))
            other = await Sender.to(port)
            while True:  # until the slow one's request is under way
                other.writer.write(request(view(1)))
                status, headers = await other.answer()
                if status == 503:
                    break
                assert status == 202
            assert headers["Retry-After"] == "1"
            slow.writer.write(b" ")
            assert (await slow.answer())[0] == 202
            other.writer.write(request(view(2)))
            assert (await other.answer())[0] == 202

    asyncio.run(story())


def test_connections_at_once_are_bounded(connection):
    async def story():
        async with open_collector(connection, CollectorLimits(connections=3)) as (collector, port):
            crowd = [await Sender.to(port, request(view(n))) for n in range(3)]
            for sender in crowd:
                assert (await sender.answer())[0] == 202  # and stay
            one_more = await Sender.to(port)
            status, headers = await one_more.answer()
            assert (status, headers["Retry-After"]) == (503, "1")
            assert await one_more.is_ended()
            assert collector.counters.requests == {202: 3, 503: 1}
            await crowd[0].close()
            while True:  # there is room as soon as the collector has seen it
                late = await Sender.to(port, request(view(9)))
                if (await late.answer())[0] == 202:
                    return

    asyncio.run(story())


@contextmanager
def a_broker_that_can_go(folder):
    """The broker, and a way to let it go and come back at the same address."""
    port = free_port()
    broker = Broker(data=folder, port=port).start()
    running = [broker]

    def away():
        running.pop().stop()

    def back():
        running.append(Broker(data=folder, port=port).start())

    try:
        yield broker.bootstrap, away, back
    finally:
        for one in running:
            one.stop()


def pages(bootstrap, count):
    settings = {"group.id": "look", "auto.offset.reset": "earliest"}
    found, deadline = [], time.monotonic() + WITHIN_S
    with closing(confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **settings})) as look:
        look.subscribe(["page-views"])
        while len(found) < count and time.monotonic() < deadline:
            message = look.poll(0.2)
            if message is not None and message.error() is None:
                found.append(json.loads(message.value())["page"])
    return found


@pytest.mark.integration
def test_what_was_accepted_while_the_cluster_was_away_is_written_when_it_is_back(tmp_path):
    with a_broker_that_can_go(tmp_path / "data") as (bootstrap, away, back):
        at = ClientSettings({"bootstrap.servers": bootstrap})
        make_topics(at, partitions=1)
        accepted = []

        async def post(sender, numbers):
            sender.writer.write(request([view(n) for n in numbers]))
            status, headers = await sender.answer()
            if status == 202:
                accepted.extend(f"/{n}" for n in numbers)
            return status, headers.get("Retry-After")

        async def story():
            async with open_collector(at, CollectorLimits(queue=10)) as (collector, port):
                sender = await Sender.to(port)
                assert await post(sender, range(2)) == (202, None)
                await until(lambda: collector.ledger.written == 2)
                await asyncio.to_thread(away)
                assert await post(sender, range(2, 10)) == (202, None)
                assert await post(sender, range(10, 14)) == (503, "2")  # whole, not a part of it
                assert await post(sender, range(14, 16)) == (202, None)
                assert (collector.ledger.waiting, collector.ledger.written) == (10, 2)
                await asyncio.to_thread(back)
                await until(lambda: collector.ledger.written == 12)
                assert await post(sender, range(10, 14)) == (
                    202,
                    None,
                )  # sent again, as it was told
            return collector.ledger

        ledger = asyncio.run(story())
        assert (ledger.written, ledger.lost) == (16, 0)
        assert sorted(pages(bootstrap, 16)) == sorted(accepted)
        assert len(set(accepted)) == 16
