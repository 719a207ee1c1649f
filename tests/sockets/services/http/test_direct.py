"""Requests that are served without a task: the same answers, in order, and a door that waits."""

from __future__ import annotations

import itertools
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from random import Random

import pytest

from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from headrace.services.http import direct_requests
from headrace.services.http.limits import HttpLimits
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.services.http.served import PATIENCE_S, Served

JSON2 = "application/vnd.kafka.json.v2+json"
BINARY2 = "application/vnd.kafka.binary.v2+json"
V2 = "application/vnd.kafka.v2+json"
# A program may say so; the door then takes the general way.
GENERAL = {"Sec-Fetch-Site": "none"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}) as running:
        topics = Topics(connection(bootstrap=running.bootstrap))
        for name in ("same", "order", "read", "gone", "grace"):
            topics.create(name, partitions=1)
        yield running


@pytest.fixture(scope="module")
def served(broker: Broker) -> Iterator[Served]:
    with Served(broker.bootstrap) as door:
        yield door


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The endpoints of requests that went the direct way."""
    seen: list[str] = []
    begin = direct_requests._Direct._begin

    def noted(self: direct_requests._Direct) -> None:
        seen.append(self._endpoint)
        begin(self)

    monkeypatch.setattr(direct_requests._Direct, "_begin", noted)
    return seen


class Line:
    """One connection, kept: the first request on it may come before aiohttp waits for one."""

    def __init__(self, served: Served) -> None:
        self._host = f"localhost:{served.address[1]}"
        self._sock = socket.create_connection(served.address, timeout=PATIENCE_S)
        self.file = self._sock.makefile("rb")
        self.send(b"GET /health HTTP/1.1")
        assert self.answer()[0] == 200

    def send(self, first: bytes, body: bytes = b"", **headers: str) -> None:
        self._sock.sendall(self.frame(first, body, **headers))

    def raw(self, data: bytes) -> None:
        self._sock.sendall(data)

    def frame(self, first: bytes, body: bytes = b"", **headers: str) -> bytes:
        lines = [first.decode(), f"Host: {self._host}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self.file.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self.file.readline().strip().decode():
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        return status, headers, self.file.read(int(headers.get("content-length", 0)))

    def close(self) -> None:
        self.file.close()
        self._sock.close()


@pytest.fixture
def line(served: Served) -> Iterator[Line]:
    made = Line(served)
    yield made
    made.close()


@pytest.mark.parametrize(
    "body",
    [
        {"records": [{"key": "k", "value": {"a": 1}}]},
        {"records": [{"value": None}]},
        {"records": [{"value": 1, "headers": {"h": "v"}, "timestamp": 5}]},
        {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 7}]},
        {"records": [{"value": 1, "partition": 7}]},
        {"records": [{"value": 1, "delay": "1h"}]},
        {"records": []},
        {"records": [{"dealy": 1}]},
        [],
    ],
)
def test_both_ways_say_the_same(line: Line, taken: list[str], body: object) -> None:
    said = []
    for more in ({}, {"Sec_Fetch_Site": "none"}):
        line.send(
            b"POST /topics/same HTTP/1.1", json.dumps(body).encode(), Content_Type=JSON2, **more
        )
        status, headers, answer = line.answer()
        document = json.loads(answer)
        for each in document.get("offsets", ()):
            each.pop("offset")  # the second one lies behind the first
        del headers["date"], headers["content-length"]
        said.append((status, headers, document))
    assert said[0] == said[1]
    assert taken == ["produce"]


@pytest.mark.integration
@pytest.mark.parametrize("topic", ["nowhere", "same%0d%0a", "a b"])
def test_a_topic_that_is_not_there(line: Line, taken: list[str], topic: str) -> None:
    body = b'{"records": [{"value": 1}]}'
    line.send(f"POST /topics/{topic} HTTP/1.1".encode(), body, Content_Type=JSON2)
    status, headers, answer = line.answer()
    assert status in (400, 404, 500) and "message" in json.loads(answer), answer


def test_requests_sent_at_once_are_answered_in_their_order(line: Line, taken: list[str]) -> None:
    ask = b"POST /topics/order HTTP/1.1"
    asked = [
        line.frame(ask, b'{"records": [{"value": %d}]}' % n, Content_Type=JSON2) for n in range(20)
    ]
    line.raw(asked[0])
    line.raw(b"".join(asked[1:10]) + line.frame(b"GET /topics/order/partitions HTTP/1.1"))
    line.raw(b"".join(asked[10:]))
    offsets = []
    for number in range(21):
        status, _, answer = line.answer()
        assert status == 200
        document = json.loads(answer)
        if number == 10:
            assert document[0]["partition"] == 0
        else:
            offsets.append(document["offsets"][0]["offset"])
    assert offsets == list(range(20))
    assert taken[0] == "produce"


def test_a_connection_comes_back_to_the_direct_way(line: Line, taken: list[str]) -> None:
    """After requests that aiohttp answered, in any pieces, with others sent behind them."""
    ask, body = b"POST /topics/same HTTP/1.1", b'{"records": [{"value": 1}]}'
    direct = line.frame(ask, body, Content_Type=JSON2)
    general = line.frame(ask, body, Content_Type=JSON2, Sec_Fetch_Site="none")
    for at in (10, len(general) - 5, len(general)):
        taken.clear()
        line.raw(general[:at])
        line.raw(general[at:] + direct + general + direct)
        assert [line.answer()[0] for _ in range(4)] == [200] * 4
        assert taken == ["produce"] * 2


def test_a_chunked_body_leaves_the_connection_to_aiohttp(line: Line, taken: list[str]) -> None:
    ask, body = b"POST /topics/same HTTP/1.1", b'{"records": [{"value": 1}]}'
    chunked = line.frame(ask, Content_Type=JSON2, Transfer_Encoding="chunked")
    chunked += b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    line.raw(chunked + line.frame(ask, body, Content_Type=JSON2))
    assert [line.answer()[0] for _ in range(2)] == [200] * 2
    line.send(ask, body, Content_Type=JSON2)
    assert line.answer()[0] == 200
    assert taken == []


def test_a_body_is_never_read_as_a_request(line: Line, taken: list[str]) -> None:
    inner = line.frame(b"POST /topics/same HTTP/1.1", b'{"records": []}', Content_Type=JSON2)
    whole = line.frame(b"POST /topics/same HTTP/1.1", inner, Content_Type=JSON2)
    for at in (len(whole) - len(inner), len(whole)):
        line.raw(whole[:at])
        line.raw(whole[at:])
        status, _, answer = line.answer()
        assert status == 400 and "JSON" in json.loads(answer)["message"]
    line.send(b"GET /health HTTP/1.1")
    assert line.answer()[0] == 200


def test_a_body_that_comes_after_its_answer_is_not_read_as_a_request(
    line: Line, taken: list[str]
) -> None:
    inner = line.frame(b"POST /topics/same HTTP/1.1", b'{"records": []}', Content_Type=JSON2)
    whole = line.frame(b"POST /health HTTP/1.1", inner)
    line.raw(whole[: -len(inner)])
    assert line.answer()[0] == 405
    line.raw(inner)
    line.send(b"GET /nothing HTTP/1.1")
    assert line.answer()[0] == 404
    assert taken == []


@pytest.mark.parametrize("seed", range(6))
def test_requests_cut_anywhere_have_the_same_answers(served: Served, seed: int) -> None:
    """Direct ones, refused ones, ones for aiohttp, and bodies that look like requests."""
    chance, line = Random(seed), Line(served)
    ask, body = b"POST /topics/same HTTP/1.1", b'{"records": [{"value": 1}]}'
    inner = line.frame(ask, body, Content_Type=JSON2)
    kinds = [
        (inner, 200),
        (line.frame(ask, body, Content_Type=JSON2, Sec_Fetch_Site="none"), 200),
        (line.frame(ask, inner, Content_Type=JSON2), 400),
        (line.frame(ask, inner, Content_Type=JSON2, Sec_Fetch_Site="none"), 400),
        (line.frame(b"GET /health HTTP/1.1"), 200),
        (line.frame(b"GET /nothing HTTP/1.1"), 404),
        (line.frame(b"POST /health HTTP/1.1", inner), 405),
    ]
    asked = chance.choices(kinds, k=60)
    data = b"".join(each for each, _ in asked)
    cuts = sorted(chance.sample(range(len(data)), 90))
    for start, end in itertools.pairwise([0, *cuts, len(data)]):
        line.raw(data[start:end])
    assert [line.answer()[0] for _ in asked] == [status for _, status in asked]
    line.close()


def test_many_requests_sent_at_once_wait_for_their_answers(line: Line) -> None:
    asked = line.frame(
        b"POST /topics/order HTTP/1.1", b'{"records": [{"value": 1}]}', Content_Type=JSON2
    )
    sender = threading.Thread(target=line.raw, args=(asked * 3000,))
    sender.start()
    offsets = [json.loads(line.answer()[2])["offsets"][0]["offset"] for _ in range(3000)]
    sender.join()
    assert offsets == sorted(offsets)


def test_a_body_in_pieces_takes_the_general_way(line: Line, taken: list[str]) -> None:
    whole = line.frame(
        b"POST /topics/same HTTP/1.1", b'{"records": [{"value": 1}]}', Content_Type=JSON2
    )
    for at in range(0, len(whole), 40):
        line.raw(whole[at : at + 40])
    assert line.answer()[0] == 200


def test_records_in_hand_are_given_at_once_and_once(
    served: Served, line: Line, taken: list[str]
) -> None:
    lines = b"\n".join(b'{"key": "%d", "value": "v%d"}' % (n, n) for n in range(1000))
    assert served.ask("POST", "/topics/read", lines, kind="application/x-ndjson").status == 200
    new = {"name": "one", "format": "binary", "auto.offset.reset": "earliest"}
    assert served.ask("POST", "/consumers/g", new, kind=V2).status == 200
    place = {"partitions": [{"topic": "read", "partition": 0}]}
    at = "/consumers/g/instances/one"
    assert served.ask("POST", f"{at}/assignments", place, kind=V2).status == 204
    offsets: list[int] = []
    while len(offsets) < 1000:
        line.send(f"GET {at}/records?max_records=70&timeout=5000 HTTP/1.1".encode(), Accept=BINARY2)
        status, headers, answer = line.answer()
        assert (status, headers["content-type"]) == (200, BINARY2)
        offsets += [each["offset"] for each in json.loads(answer)]
    assert offsets == list(range(1000))
    assert taken.count("records") > 5
    assert served.ask("DELETE", at).status == 204


def test_callers_who_do_not_wait_are_counted_and_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "headrace.http.access"):
        line = Line(served)
        at = "/consumers/never/instances/there"
        assert served.ask("POST", "/consumers/never", {"name": "there"}, kind=V2).status == 200
        served.ask("POST", f"{at}/subscription", {"topics": ["gone"]}, kind=V2)
        line.send(f"GET {at}/records?timeout=30000 HTTP/1.1".encode())
        deadline = time.monotonic() + PATIENCE_S
        while served.door.budget.requests < 1:
            assert time.monotonic() < deadline
        line.close()
        while served.door.counters.requests["records", 499] < 1:
            assert time.monotonic() < deadline
        while f"GET {at}/records 499" not in caplog.text:  # it is logged after it is counted
            assert time.monotonic() < deadline, caplog.text


def test_a_door_that_closes_answers_what_is_under_way(broker: Broker) -> None:
    with Served(broker.bootstrap, limits=HttpLimits(grace_s=20)) as door:
        first = Line(door)
        first.send(
            b"POST /topics/grace HTTP/1.1", b'{"records": [{"value": 1}]}', Content_Type=JSON2
        )
        assert first.answer()[0] == 200
        lines = [Line(door) for _ in range(20)]
        for each in lines:
            each.send(
                b"POST /topics/grace HTTP/1.1", b'{"records": [{"value": 1}]}', Content_Type=JSON2
            )
        until(lambda: door.door.counters.requests["produce", 200] >= 2)
        door.stop()
        # Each either has its answer or was not begun; none is cut in the middle.
        for each in lines:
            head = each.file.readline()
            assert head in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Service Unavailable\r\n")
            each.close()
        first.close()


@pytest.mark.integration
def test_idle_connections_are_closed_after_direct_requests_too(broker: Broker) -> None:
    with Served(broker.bootstrap, limits=HttpLimits(idle_s=0.5)) as door:
        line = Line(door)
        for _ in range(3):
            line.send(
                b"POST /topics/same HTTP/1.1", b'{"records": [{"value": 1}]}', Content_Type=JSON2
            )
            assert line.answer()[0] == 200
        assert line.file.readline() == b""
