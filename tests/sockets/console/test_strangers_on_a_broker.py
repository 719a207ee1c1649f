"""What strangers and careless browsers send to a console: it stays there for everybody else."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp import web

from headrace.console import live, main
from headrace.console.security import guard
from headrace.testing import Broker
from tests.console.full_cluster import fill
from tests.console.served import Served, Visitor
from tests.patience import until

LONGEST_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        fill(running.bootstrap)
        yield running


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def console(broker: Broker, state: Path) -> Iterator[Served]:
    with Served(broker.bootstrap, state=state) as served:
        yield served


@pytest.fixture
def visitor(console: Served) -> Visitor:
    return console.visitor()


def raw_post(served: Served, path: str, body: bytes, *more: str) -> bytes:
    """Without a cookie or a token, as a stranger does; the first line of the answer."""
    name = served.address.partition("://")[2]
    host, _, port = name.rpartition(":")
    head = [f"POST {path} HTTP/1.1", f"Host: {name}", f"Content-Length: {len(body)}",
            "Content-Type: application/x-www-form-urlencoded", *more]  # fmt: skip
    with socket.create_connection((host, int(port)), timeout=LONGEST_S) as asked:
        asked.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        return asked.makefile("rb").readline()


def test_a_connection_too_many_is_refused_and_the_others_are_served(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "MOST_CONNECTIONS", 1)
    with Served(broker.bootstrap) as served:
        host, _, port = served.address.partition("://")[2].rpartition(":")
        server = served.site._runner.server
        assert server is not None
        with socket.create_connection((host, int(port)), timeout=LONGEST_S):
            until(lambda: len(server.connections) == 1)
            with socket.create_connection((host, int(port)), timeout=LONGEST_S) as refused:
                first, *rest = refused.makefile("rb").read().splitlines()
            assert first == b"HTTP/1.1 503 Service Unavailable" and b"Retry-After: 1" in rest
        until(lambda: not server.connections)
        assert served.visitor().get("/").status == 200


def test_a_form_of_a_million_fields_is_refused_before_it_is_taken_apart(
    console: Served, visitor: Visitor
) -> None:
    assert b" 413 " in raw_post(console, "/create-topic", b"a&" * 1_000_000)
    many = urlencode([(f"field{n}", "") for n in range(900)])
    answer = visitor.post("/dead-letters/orders.billing.dead", dict.fromkeys(many.split("=&"), ""))
    assert "Choose an action" in answer.said(), "a form of all letters of a page is taken"


def test_a_body_that_never_ends_is_given_up(
    console: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LONGEST_BODY_S", 0.2)
    name = console.address.partition("://")[2]
    host, _, port = name.rpartition(":")
    head = f"POST /create-topic HTTP/1.1\r\nHost: {name}\r\nContent-Length: 99\r\n"
    with socket.create_connection((host, int(port)), timeout=LONGEST_S) as asked:
        kind = "Content-Type: application/x-www-form-urlencoded"
        asked.sendall(f"{head}{kind}\r\n\r\nname=".encode())
        assert b" 408 " in asked.makefile("rb").readline()


def test_strangers_do_not_write_the_audit(console: Served, visitor: Visitor, state: Path) -> None:
    visitor.post("/create-topic", {"name": "kept-in-the-audit"})
    before = (state / "audit.jsonl").read_text()
    for _ in range(20):
        raw_post(console, "/topics/" + "x" * 60_000 + "/delete", b"typed=x")
        raw_post(console, "/create-topic", b"name=x", "Origin: http://evil.example")
    assert (state / "audit.jsonl").read_text() == before and "kept-in-the-audit" in before
    visitor.post("/topics/" + "y" * 60_000 + "/delete", {"typed": "x"})
    [line] = (state / "audit.jsonl").read_text().removeprefix(before).splitlines()
    assert len(line) < 2_000 and json.loads(line)["done"] is False


def test_a_page_of_another_site_cannot_use_the_console_in_the_background(visitor: Visitor) -> None:
    for site in ("cross-site", "same-site"):
        embedded = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors"}
        assert visitor.get("/topics", **embedded).status == 403
        assert visitor.get("/live/rates", **embedded).status == 403
        followed = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "navigate"}
        assert visitor.get("/topics", **followed).status == 200, "a link leads here"
    own = {"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors"}
    assert visitor.get("/topics", **own).status == 200


def test_two_consoles_of_one_machine_do_not_share_a_session(
    console: Served, broker: Broker
) -> None:
    with Served(broker.bootstrap) as other:
        names = [next(iter(served.visitor().get_cookies())) for served in (console, other)]
    assert len(set(names)) == 2


# ---- live pages


def open_stream(served: Served, path: str, cookie: str = "") -> socket.socket:
    name = served.address.partition("://")[2]
    host, _, port = name.rpartition(":")
    asked = socket.create_connection((host, int(port)), timeout=LONGEST_S)
    head = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nAccept: text/event-stream\r\n"
    asked.sendall(f"{head}Cookie: {cookie}\r\n\r\n".encode())
    return asked


def wait_until_streams(served: Served, count: int) -> None:
    until(lambda: len(served.site.console.streams) == count, f"not {count} streams")


@pytest.mark.integration
def test_one_browser_leaves_live_pages_to_others(console: Served, visitor: Visitor) -> None:
    visitor.get("/")
    cookie = "; ".join(f"{name}={text}" for name, text in visitor.cookies.items())
    streams = [open_stream(console, "/live/rates", cookie) for _ in range(live.MOST_OF_ONE)]
    try:
        for stream in streams:
            assert b" 200 " in stream.recv(100)
        refused = visitor.get("/live/rates")
        assert refused.status == 503 and "close some" in refused.text
        assert console.visitor().frames("/live/rates", 1)
    finally:
        for stream in streams:
            stream.close()
    wait_until_streams(console, 0)


@pytest.mark.integration
def test_hundreds_of_connections_leave_the_pages_as_they_are(
    console: Served, visitor: Visitor
) -> None:
    streams = [open_stream(console, "/live/rates") for _ in range(300)]
    try:
        assert visitor.get("/topics").status == 200
        taken = [stream.recv(30).split(b"\r\n")[0] for stream in streams]
        assert sum(b" 200 " in line for line in taken) == live.MOST_STREAMS
        assert sum(b" 503 " in line for line in taken) == len(streams) - live.MOST_STREAMS
    finally:
        for stream in streams:
            stream.close()
    wait_until_streams(console, 0)


def test_a_browser_that_takes_nothing_is_cut_off(
    console: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LONGEST_WRITE_S", 0.2)

    async def large_frames() -> AsyncIterator[tuple[str, Any]]:
        while True:
            yield "messages", "x" * (1 << 20)

    async def handle(request: web.Request) -> web.StreamResponse:
        return await live.stream(console.site.console, request, large_frames())

    async def serve() -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.router.add_get("/", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, runner.addresses[0][1]

    runner, port = console.run(serve())
    with socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S) as asked:
        asked.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.recv(100).startswith(b"HTTP/1.1 200")
        wait_until_streams(console, 0)
    console.run(runner.cleanup())


@pytest.mark.integration
def test_a_change_that_nobody_answered_is_not_called_undone(broker: Broker) -> None:
    with Broker() as short_lived, Served(short_lived.bootstrap) as served:
        visitor = served.visitor()
        token = visitor.get("/create-topic").token()
        assert visitor.get("/topics").status == 200
        short_lived.stop()
        answer = visitor.post("/create-topic", {"name": "perhaps"}, token=token)
        assert answer.status == 503 and "may or may not have been carried out" in answer.said()
        messages = visitor.get("/topics/orders/messages")
        assert messages.status == 503 and "No broker answers" in messages.said()
