"""What strangers found: each of these ended, blocked, doubled or confused the door once."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client.admin.admin import Admin
from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from headrace.client.errors import LoginRefused
from headrace.client.producer.producer import Producer
from headrace.services.http.limits import HttpLimits
from headrace.services.http.streams.recent_records import RecentRecords
from headrace.services.http.writes import key_slot
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.fills import FILLS
from tests.sockets.services.http.served import PATIENCE_S, Served
from tests.sockets.services.http.test_streams import reading

JSON2 = "application/vnd.kafka.json.v2+json"
V2 = "application/vnd.kafka.v2+json"
INSTANCE = "/consumers/g/instances/i"
CLOUD_EVENT = {"specversion": "1.0", "id": "1", "source": "/", "type": "x"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}) as running:
        topics = Topics(connection(bootstrap=running.bootstrap))
        for name in ("t", "large", "ahead", "behind", "gone", "keys"):
            topics.create(name, partitions=1)
        yield running


@pytest.fixture(scope="module")
def served(broker: Broker) -> Iterator[Served]:
    with Served(broker.bootstrap, limits=HttpLimits(stall_s=0.5, body_s=5)) as door:
        assert door.ask("POST", "/consumers/g", {"name": "i"}, kind=V2).status == 200
        yield door


# ---- names and numbers


@pytest.mark.parametrize("name", ["\\ud800", "a\\u0000b", "x" * 2000, ""])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/subscription", '{"topics": ["NAME"]}'),
        ("/subscription", '{"topic_pattern": "^NAME"}'),
        ("/assignments", '{"partitions": [{"topic": "NAME", "partition": 0}]}'),
        ("/positions", '{"offsets": [{"topic": "NAME", "partition": 0, "offset": 0}]}'),
        ("/positions/end", '{"partitions": [{"topic": "NAME", "partition": 0}]}'),
        ("/offsets", '{"offsets": [{"topic": "NAME", "partition": 0, "offset": 0}]}'),
    ],
)
def test_a_name_that_is_no_text_does_not_end_the_door(
    served: Served, path: str, body: str, name: str
) -> None:
    is_every_topic = "pattern" in body and not name
    answer = served.ask("POST", INSTANCE + path, body.replace("NAME", name).encode(), kind=V2)
    assert answer.status == (204 if is_every_topic else 422), answer


@pytest.mark.parametrize("part", ["a%00b", "%ed%a0%80", "%ff"])
def test_paths_name_texts_only(served: Served, part: str) -> None:
    for method, path in (
        ("POST", f"/consumers/{part}"),
        ("GET", f"/topics/{part}"),
        ("GET", f"/topics/{part}/stream"),
    ):
        assert served.ask(method, path, kind=V2).status == 400
    raw = f"POST /consumers/\udcff HTTP/1.1\r\nHost: {served.base[7:]}\r\nConnection: close\r\n\r\n"
    assert served.raw(raw.encode("utf-8", "surrogateescape")).split()[1] == b"400"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 2**63 - 1}]}),
        ("/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 2**64}]}),
    ],
)
def test_numbers_beyond_kafkas_are_refused(served: Served, path: str, body: object) -> None:
    assert served.ask("POST", INSTANCE + path, body, kind=V2).status == 422


def test_other_numbers(served: Served) -> None:
    for given in ("--5", "-", "1e3", "\u0663".encode().hex(), "+5"):
        assert served.ask("GET", f"{INSTANCE}/records?timeout={given}").status == 422
    for given in ("--1", 2**31 - 1):
        refused = served.ask("POST", "/consumers/g", {"fetch.min.bytes": given}, kind=V2)
        assert refused.status == 422
    cluster = served.ask("GET", "/v3/clusters").json()["data"][0]["cluster_id"]
    for wish in (
        {"topic_name": "n", "partitions_count": 10**9},
        {"topic_name": "n", "partitions_count": 2**40},
        {"topic_name": "n", "replication_factor": 2**20},
        {"topic_name": "\ud800"},
        {"topic_name": "n", "configs": [{"name": "\ud800", "value": "\ud800"}]},
    ):
        made = served.ask("POST", f"/v3/clusters/{cluster}/topics", wish, kind="application/json")
        assert made.status == 422, wish
    big = served.ask("POST", "/topics/t", b'{"records": [{"value": 1e400}]}', kind=JSON2)
    assert big.status == 422
    cancel = served.ask("DELETE", f"/topics/t/delayed/x?partition={10**20}")
    assert cancel.status == 404


@pytest.mark.parametrize(
    "event",
    [
        {**CLOUD_EVENT, "data_base64": "???"},
        {**CLOUD_EVENT, "data": 1, "data_base64": "YQ=="},
        {**CLOUD_EVENT, "data": {"a": [1e5, None]}, "id": "\ud800"},
    ],
)
def test_events_that_are_none(served: Served, event: object) -> None:
    kind = "application/cloudevents+json"
    assert served.ask("POST", "/topics/t", event, kind=kind).status == 422


def test_an_attribute_that_is_no_text(served: Served) -> None:
    headers = {f"ce-{name}": value for name, value in CLOUD_EVENT.items()} | {"ce-id": "%ff"}
    assert served.ask("POST", "/topics/t", b"x", kind="text/plain", headers=headers).status == 422


def test_what_lies_in_a_topic_is_shown_as_it_is_or_not_as_json(
    served: Served, broker: Broker
) -> None:
    held = [
        *(b"NaN", b"[Infinity]", b"1e999", b'"\\ud800"', b'{\r\n "a" :\n 1.0}'),
        *(b"9007199254740993", b'{"specversion": "1.0", "data": 1e999}', b"-", b"\xff"),
    ]
    Topics(connection(bootstrap=broker.bootstrap)).create("held", partitions=1)
    with Producer(broker.bootstrap, settings=FILLS) as producer:
        for value in held:
            headers = {"content-type": b"application/cloudevents+json"}
            producer.send("held", value, headers=headers)
    for form in ("auto", "binary", "cloudevents"):
        with reading(served, f"/topics/held/stream?from=beginning&format={form}") as events:
            for _ in held:
                next(events)
        answer = served.ask("GET", f"/topics/held/partitions/0/records?format={form}")
        found = json.loads(answer.body, parse_constant=pytest.fail)
        assert len(found) == len(held)
    body = served.ask("GET", "/topics/held/partitions/0/records?format=auto").body
    for part in (b'"value":"NaN"', b'"value":1e999', b'"value":"\\ud800"', b"9007199254740993"):
        assert part in body


# ---- HTTP


@pytest.mark.integration
def test_who_asks_whether_to_send_the_body_is_told(served: Served) -> None:
    body = b'{"records": [{"value": 1}]}'
    head = (
        f"POST /topics/TOPIC HTTP/1.1\r\nHost: {served.base[7:]}\r\nContent-Type: {JSON2}\r\n"
        f"Expect: WISH\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(served.address, timeout=PATIENCE_S) as sock:
        sock.sendall(head.replace("WISH", "100-continue").replace("TOPIC", "t").encode())
        file = sock.makefile("rb")
        assert file.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert file.readline() == b"\r\n"
        sock.sendall(body)
        assert file.readline().split()[1] == b"200"
    for wish, path, status in (
        ("100-continue", "t/nothing", b"404"),
        ("200-maybe", "t", b"417"),
    ):
        with socket.create_connection(served.address, timeout=PATIENCE_S) as sock:
            sock.sendall(head.replace("WISH", wish).replace("TOPIC", path).encode())
            assert sock.makefile("rb").readline().split()[1] == status


def test_what_is_no_http_hears_so_in_our_words(served: Served) -> None:
    before = served.door.counters.requests["unknown", 400]
    answer = served.raw(b"GET /topics HTTP/1.1\r\nAuthorization : secret\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert json.loads(body)["error_code"] == 400
    assert b"secret" not in answer
    assert served.door.counters.requests["unknown", 400] == before + 1


def test_a_document_of_very_many_parts_is_refused_before_it_is_read(served: Served) -> None:
    parts = b'{"records": [' + b"[]," * 1_500_000 + b"[]]}"
    refused = served.ask("POST", "/topics/t", parts, kind=JSON2)
    assert refused.status == 413 and "NDJSON" in refused.json()["message"]
    assert served.ask("POST", "/topics/t", {"records": [{"value": ","  * 1000}]},
                      kind=JSON2).status == 200  # fmt: skip


@pytest.mark.integration
def test_lines_that_trickle_are_cut(broker: Broker) -> None:
    limits = HttpLimits(body_s=1, body_rate=1_000_000)
    with Served(broker.bootstrap, limits=limits) as door:
        sock = socket.create_connection(door.address, timeout=PATIENCE_S)
        with sock:
            sock.sendall(
                f"POST /topics/t HTTP/1.1\r\nHost: {door.base[7:]}\r\n"
                "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            )
            sock.setblocking(False)
            received = b""
            deadline = time.monotonic() + PATIENCE_S
            while b"408" not in received:  # a piece every moment, and never much
                assert time.monotonic() < deadline
                try:
                    sock.sendall(b"1\r\n \r\n")
                    received += sock.recv(1000)
                except BlockingIOError:
                    time.sleep(0.05)
                except OSError:
                    break
            assert b"HTTP/1.1 408" in received


@pytest.mark.integration
def test_readers_who_do_not_read_are_cut_and_held_against_a_bound(broker: Broker) -> None:
    body = b"\n".join(json.dumps({"value": "x" * 1000}).encode() for _ in range(8000))
    with Served(broker.bootstrap, limits=HttpLimits(stall_s=1, unread_bytes=1_000_000)) as door:
        assert door.ask("POST", "/topics/large", body, kind="application/x-ndjson").status == 200
        ask = (
            f"GET /topics/large/partitions/0/records?max_records=8000 HTTP/1.1\r\n"
            f"Host: {door.base[7:]}\r\n\r\n"
        )
        with socket.create_connection(door.address, timeout=PATIENCE_S) as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.sendall(ask.encode())
            until(lambda: door.door.unread_bytes > 1_000_000)
            assert door.ask("GET", "/topics/large/partitions").status == 429
            assert door.ask("GET", "/health").status == 200
            until(lambda: door.door.counters.stalled == 1)
        until(lambda: door.door.unread_bytes == 0)
        assert door.ask("GET", "/topics/large/partitions").status == 200


# ---- streams


class Halted:
    """Holds what a topic's feed reads until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._held: list[tuple[RecentRecords, Any]] = []
        self._is_halted = False
        self._add = RecentRecords.add
        outer = self

        def add(self: RecentRecords, records: Any) -> None:
            if outer._is_halted:
                outer._held.append((self, list(records)))
            else:
                outer._add(self, records)

        monkeypatch.setattr(RecentRecords, "add", add)

    @property
    def count(self) -> int:
        return sum(len(records) for _, records in self._held)

    def halt(self) -> None:
        self._is_halted = True

    def let_go(self, served: Served, topic: str) -> None:
        feed = served.door.logins.own.feeds[topic]

        def release() -> None:
            self._is_halted = False
            for recent, records in self._held:
                self._add(recent, records)
            feed.wake()

        served._loop.call_soon_threadsafe(release)


def send(broker: Broker, topic: str, values: range) -> None:
    with Producer(broker.bootstrap, settings=FILLS) as producer:
        for value in values:
            producer.send(topic, str(value))


def test_a_reader_ahead_of_the_feed_gets_nothing_twice(
    served: Served, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    halted = Halted(monkeypatch)
    send(broker, "ahead", range(5))
    with reading(served, "/topics/ahead/stream"):  # the feed begins at 5
        halted.halt()
        send(broker, "ahead", range(5, 10))
        until(lambda: halted.count == 5)
        with reading(served, "/topics/ahead/stream?from=beginning") as events:
            assert events.values(10) == list(range(10))  # from the cluster
            last = events.last_id
            halted.let_go(served, "ahead")
            send(broker, "ahead", range(10, 12))
            assert events.values(2) == [10, 11]
        with reading(served, "/topics/ahead/stream", last) as events:
            assert events.values(2) == [10, 11]


def test_a_reader_who_comes_again_ahead_of_the_feed_is_not_refused(
    served: Served, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser that is refused never comes again."""
    halted = Halted(monkeypatch)
    send(broker, "behind", range(3))
    with reading(served, "/topics/behind/stream"):
        halted.halt()
        send(broker, "behind", range(3, 6))
        until(lambda: halted.count == 3)
        with reading(served, "/topics/behind/stream?from=beginning") as events:
            events.values(6)
            last = events.last_id
        with reading(served, "/topics/behind/stream", last) as events:
            halted.let_go(served, "behind")
            send(broker, "behind", range(6, 8))
            assert events.values(2) == [6, 7]
        beyond = last.replace(".0-6", ".0-600")
        refused = served.ask("GET", "/topics/behind/stream", headers={"Last-Event-ID": beyond})
        assert refused.status == 422


def test_a_stream_that_fails_while_it_catches_up_says_so_in_an_event(
    served: Served, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, "gone", range(3))
    from headrace.client.errors import NoSuchTopic
    from headrace.services.http.streams.stream_catch_up import CatchUp

    async def read(self: CatchUp, cursor: dict[int, int]) -> Any:
        raise NoSuchTopic("It was deleted.")

    monkeypatch.setattr(CatchUp, "read", read)
    with reading(served, "/topics/gone/stream?from=beginning") as events:
        name, said = next(events)
        assert name == "failed" and said["error_code"] == 40401
        with pytest.raises(StopIteration):
            next(events)


def test_streams_of_a_user_who_is_let_go_end(served: Served, broker: Broker) -> None:
    with reading(served, "/topics/t/stream") as events:
        feed = served.door.logins.own.feeds["t"]
        asyncio.run_coroutine_threadsafe(feed.close(), served._loop).result(PATIENCE_S)
        name, said = next(events)
        assert name == "failed" and said["error_code"] == 40101
    assert isinstance(feed.failure, LoginRefused)


# ---- instances and keys


def test_an_instance_whose_deleter_has_gone_is_closed_all_the_same(
    served: Served, broker: Broker
) -> None:
    new = {"name": "brief", "auto.offset.reset": "earliest"}
    assert served.ask("POST", "/consumers/left", new, kind=V2).status == 200
    at = "/consumers/left/instances/brief"
    assert served.ask("POST", f"{at}/subscription", {"topics": ["t"]}, kind=V2).status == 204
    lines = []
    host = f"Host: {served.base[7:]}\r\n"
    for ask in (f"GET {at}/records?timeout=60000&max_records=1", f"DELETE {at}"):
        sock = socket.create_connection(served.address, timeout=PATIENCE_S)
        sock.sendall(f"{ask} HTTP/1.1\r\n{host}\r\n".encode())
        lines.append(sock)
        if ask.startswith("GET"):
            assert sock.recv(10)
            sock.sendall(f"GET {at}/records?timeout=60000 HTTP/1.1\r\n{host}\r\n".encode())
    until(lambda: served.ask("GET", f"{at}/subscription").status == 404)
    for sock in lines:
        sock.close()
    groups = Admin(broker.bootstrap).groups
    until(lambda: not groups.describe(["left"])[0].members)


def test_a_fault_of_a_slot_answers_those_who_wait(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: key_slot.KeySlot, group: Any) -> Any:
        raise ValueError("a fault")

    body = {"records": [{"value": 1}]}
    once = {"Idempotency-Key": "slot"}
    monkeypatch.setattr(key_slot.KeySlot, "_serve", broken)
    assert served.ask("POST", "/topics/keys", body, kind=JSON2, headers=once).status == 500
    monkeypatch.undo()
    assert served.ask("POST", "/topics/keys", body, kind=JSON2, headers=once).status == 200


@pytest.mark.integration
def test_nonsense_among_the_keys_harms_nobody_else(served: Served, broker: Broker) -> None:
    from headrace.services.http.writes.idempotency_window import digest_of, slot_of

    body = {"records": [{"value": 1}]}
    digest = digest_of("forged")
    served.ask("POST", "/topics/keys", body, kind=JSON2, headers={"Idempotency-Key": "other"})
    with Producer(broker.bootstrap, settings=FILLS) as producer:
        place = slot_of(digest, 16)
        producer.send("headrace-http-keys", b"nonsense", key=digest, partition=place)
    with Served(broker.bootstrap) as fresh:
        forged = fresh.ask(
            "POST", "/topics/keys", body, kind=JSON2, headers={"Idempotency-Key": "forged"}
        )
        assert forged.status == 422 and "another key" in forged.json()["message"]
