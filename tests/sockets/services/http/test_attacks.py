"""Callers who mean no good, or know no better: nobody else is harmed, and each hears a sentence."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator

import pytest

from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from headrace.services.http.limits import HttpLimits
from headrace.services.http.main import NotGuarded, Settings, Site
from headrace.testing import Broker
from tests.sockets.services.http.served import PATIENCE_S, Served

JSON2 = "application/vnd.kafka.json.v2+json"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}) as running:
        Topics(connection(bootstrap=running.bootstrap)).create("t", partitions=1)
        yield running


@pytest.fixture(scope="module")
def served(broker: Broker) -> Iterator[Served]:
    limits = HttpLimits(
        body_bytes=100_000,
        in_flight_bytes=150_000,
        connections=50,
        idle_s=0.5,
        body_s=0.5,
        stall_s=0.5,
    )
    with Served(broker.bootstrap, limits=limits) as door:
        yield door


def post(body: bytes, *headers: str, path: str = "/topics/t") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {JSON2}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.integration
def test_slow_headers_and_slow_bodies_are_cut(served: Served) -> None:
    host = f"Host: localhost:{served.address[1]}"
    with socket.create_connection(served.address, timeout=PATIENCE_S) as slow:
        slow.sendall(b"POST /topics/t HTTP/1.1\r\nHost: loc")
        assert slow.recv(1000) == b""  # closed, though a byte might have come
    half = post(b'{"rec', "Content-Length: 50").replace(b"Host: localhost", host.encode())
    assert served.raw(half).startswith(b"HTTP/1.1 408")
    assert served.door.budget.bytes == 0 == served.door.budget.requests


def test_a_huge_body_is_refused_before_it_is_read(served: Served) -> None:
    refused = served.ask("POST", "/topics/t", b" " * 100_001, kind=JSON2)
    assert refused.status == 413
    chunks = served.ask("POST", "/topics/t", iter([b" " * 60_000] * 3), kind=JSON2)
    assert chunks.status == 413
    many = {"records": [{"value": 1}] * 10_001}
    assert served.ask("POST", "/topics/t", many, kind=JSON2).status in (413,)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"records": []}',
        b'{"records": {}}',
        b'{"records": [1]}',
        b'{"records": [{"value": NaN}]}',
        b'{"records": [{"value": "\\ud800"}]}',
        b'{"records": [{"partition": -1}]}',
        b'{"records": [{"partition": "0"}]}',
        b'{"records": [{"partition": true}]}',
        b'{"records": [{"value": 1, "headers": 7}]}',
        b'{"records": [{"value": 1, "headers": [{"name": ""}]}]}',
        b'{"records": [{"value": 1, "timestamp": "yesterday"}]}',
        b'{"records": [{"value": 1, "timestamp": -5}]}',
        b'{"records": [{"value": 1, "timestamp": 1e400}]}',
        b"[" * 50_000,
        b'{"records":' + b"[" * 50_000,
        b"\xff\xfe",
        b'{"records": [{"value": ' + b"9" * 20_000 + b"}]}",
    ],
)
def test_malformed_bodies_get_a_sentence(served: Served, body: bytes) -> None:
    refused = served.ask("POST", "/topics/t", body, kind=JSON2)
    assert refused.status in (400, 422), refused
    said = refused.json()
    assert said["error_code"] and said["message"].endswith((".", ")"))


def test_headers_cannot_be_smuggled_in_or_out(served: Served) -> None:
    host = f"Host: localhost:{served.address[1]}"
    both = post(b"0\r\n\r\n", "Content-Length: 5", "Transfer-Encoding: chunked")
    answer = served.raw(both.replace(b"Host: localhost", host.encode()))
    assert answer.split(b" ")[1] == b"400"
    for bad in ("/topics/a%0d%0aSet-Cookie:%20x=1", "/consumers/%0d%0aX:%201/instances/x"):
        found = served.ask("GET", bad)
        assert found.status in (404, 405, 400) and "Set-Cookie" not in found.headers
    group = served.ask("POST", "/consumers/g%0d%0aX-Evil:%201", {}, kind=JSON2)
    assert "X-Evil" not in group.headers
    assert served.raw(b"\x16\x03\x01\x00 garbage\r\n\r\n").split(b" ")[1] == b"400"
    assert served.ask("GET", "/health").status == 200


def test_other_names_and_other_origins_are_refused(served: Served) -> None:
    assert served.ask("GET", "/topics", headers={"Host": "rebound.example"}).status == 421
    evil = {"Origin": "https://evil.example"}
    refused = served.ask("POST", "/topics/t", b"x", kind="text/plain", headers=evil)
    assert refused.status == 403 and "Access-Control-Allow-Origin" not in refused.headers
    asked = served.ask("OPTIONS", "/topics/t", headers=evil)
    assert "Access-Control-Allow-Origin" not in asked.headers
    assert served.ask("GET", "/topics", headers={"Sec-Fetch-Site": "cross-site"}).status == 403


def test_more_connections_than_may_be_are_told_so(served: Served) -> None:
    opened = [socket.create_connection(served.address, timeout=PATIENCE_S) for _ in range(60)]
    try:
        answers = []
        for each in opened[50:]:
            answers.append(each.recv(100))
        assert any(answer.startswith(b"HTTP/1.1 429") for answer in answers)
    finally:
        for each in opened:
            each.close()
    deadline = time.monotonic() + PATIENCE_S
    while served.ask("GET", "/health").status != 200:
        assert time.monotonic() < deadline


@pytest.mark.integration
def test_a_reader_that_takes_nothing_is_cut_and_others_go_on(
    served: Served, broker: Broker
) -> None:
    body = b"\n".join(json.dumps({"value": "x" * 1000}).encode() for _ in range(80))
    for _ in range(200):  # 16 MB: more than the sockets between us hold
        assert served.ask("POST", "/topics/t", body, kind="application/x-ndjson").status == 200
    stuck = socket.create_connection(served.address, timeout=PATIENCE_S)
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host = f"localhost:{served.address[1]}"
    stuck.sendall(f"GET /topics/t/stream?from=beginning HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    deadline = time.monotonic() + PATIENCE_S
    while not served.door.counters.stalled:
        assert time.monotonic() < deadline
        assert served.ask("GET", "/health").status == 200
    stuck.close()


def test_what_does_not_fit_waits_outside(served: Served) -> None:
    served.door.budget.bytes += 150_000
    try:
        full = served.ask("POST", "/topics/t", {"records": [{"value": 1}]}, kind=JSON2)
    finally:
        served.door.budget.bytes -= 150_000
    assert full.status == 429 and full.headers["Retry-After"] == "1"


def test_the_log_has_no_secrets(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace.http.access"):
        login = {"Authorization": "Basic c2VjcmV0OnNlY3JldA=="}
        assert served.ask("GET", "/topics/t?key=secret", headers=login).status == 400
        path = "/topics/t%1b[31m"
        served.ask("POST", path, b'{"secret": 1}', kind=JSON2)
    said = caplog.text
    assert "/topics/t " in said and "secret" not in said and "c2Vjcm" not in said
    assert "\x1b" not in said


def test_beyond_this_machine_only_with_tls_and_login(broker: Broker) -> None:
    cluster = connection(bootstrap=broker.bootstrap)
    for settings in (
        Settings(host="0.0.0.0"),
        Settings(host="::", login=True),
        Settings(host="192.0.2.1", certificate="door.pem"),
    ):
        with pytest.raises(NotGuarded, match="--tls-cert and --login"):
            Site(cluster, settings)
