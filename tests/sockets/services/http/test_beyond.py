"""What the other proxies lack: headers, bulk, CloudEvents, packed bodies, delayed messages."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import cramjam
import pytest

from headrace.client.admin.admin import Admin
from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from headrace.services.http.limits import HttpLimits
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.services.http.served import Served

JSON2 = "application/vnd.kafka.json.v2+json"
NDJSON = "application/x-ndjson"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(delay=True, settings={"auto.create.topics.enable": "false"}) as running:
        topics = Topics(connection(bootstrap=running.bootstrap))
        for name in ("letters", "bulk", "events", "packed", "later", "raw"):
            topics.create(name, partitions=1)
        Admin(running.bootstrap).delayed.enable("later")
        yield running


@pytest.fixture(scope="module")
def served(broker: Broker) -> Iterator[Served]:
    limits = HttpLimits(body_bytes=200_000, unpacked_bytes=400_000, record_bytes=50_000)
    with Served(broker.bootstrap, limits=limits) as door:
        yield door


def read(served: Served, topic: str, form: str = "auto") -> list[dict[str, object]]:
    found: list[dict[str, object]] = served.ask(
        "GET", f"/topics/{topic}/partitions/0/records?format={form}"
    ).json()
    return found


@pytest.mark.integration
def test_headers_and_timestamps_go_along(served: Served) -> None:
    record = {
        "key": "k",
        "value": {"total": 3},
        "headers": {"trace": "abc"},
        "timestamp": "2026-01-31T12:00:00Z",
    }
    assert served.ask("POST", "/topics/letters", {"records": [record]}, kind=JSON2).status == 200
    [seen] = read(served, "letters")
    assert seen["value"] == {"total": 3} and seen["key"] == '"k"'
    assert seen["headers"] == [{"name": "trace", "value": "abc"}]
    assert seen["timestamp"] == 1_769_860_800_000


def test_a_mistyped_field_sends_nothing(served: Served) -> None:
    body = {"records": [{"value": 1, "dealy": "10m"}]}
    before = read(served, "letters")
    refused = served.ask("POST", "/topics/letters", body, kind=JSON2)
    assert refused.status == 422 and "dealy" in refused.json()["message"]
    assert read(served, "letters") == before


def test_bulk_tells_what_was_written_and_which_lines_were_not(served: Served) -> None:
    lines = [json.dumps({"key": str(n), "value": f"text {n}"}).encode() for n in range(1000)]
    lines[500] = b"{not json"
    lines[501] = b'{"value": 1, "strange": 2}'
    answer = served.ask("POST", "/topics/bulk", b"\n".join(lines), kind=NDJSON)
    said = answer.json()
    assert answer.status == 207 and (said["written"], said["refused"]) == (998, 2)
    assert [each["line"] for each in said["faults"]] == [501, 502]
    [spread] = said["partitions"]
    assert (spread["first_offset"], spread["last_offset"]) == (0, 997)


def test_what_was_read_can_be_sent_again_in_bulk(served: Served) -> None:
    first = read(served, "bulk")[:3]
    lines = b"\n".join(json.dumps(each).encode() for each in first)
    assert served.ask("POST", "/topics/packed", lines, kind=NDJSON).json()["written"] == 3
    assert [each["key"] for each in read(served, "packed")] == ["0", "1", "2"]


def test_a_line_that_never_ends_is_refused_and_what_came_before_is_told(served: Served) -> None:
    body = b'{"value": 1}\n' + b'{"value": "' + b"x" * 90_000
    answer = served.ask("POST", "/topics/packed", iter([body]), kind=NDJSON)
    assert answer.status == 413 and "1 records before that were written" in answer.json()["message"]


def test_packed_bodies_are_unpacked_within_bounds(served: Served) -> None:
    body = json.dumps({"records": [{"value": "x" * 1000}]}).encode()
    for coding, packed in (
        ("gzip", gzip.compress(body)),
        ("zstd", bytes(cramjam.zstd.compress(body))),
    ):
        answer = served.ask(
            "POST", "/topics/packed", packed, kind=JSON2, headers={"Content-Encoding": coding}
        )
        assert answer.status == 200, answer
    for coding, bomb in (
        ("gzip", gzip.compress(bytes(5_000_000))),
        ("zstd", bytes(cramjam.zstd.compress(bytes(5_000_000)))),
    ):
        answer = served.ask(
            "POST", "/topics/packed", bomb, kind=JSON2, headers={"Content-Encoding": coding}
        )
        assert answer.status == 413, answer
    torn = served.ask(
        "POST", "/topics/packed", b"\x1f\x8b no", kind=JSON2, headers={"Content-Encoding": "gzip"}
    )
    assert torn.status == 400
    strange = served.ask(
        "POST", "/topics/packed", body, kind=JSON2, headers={"Content-Encoding": "br"}
    )
    assert strange.status == 415


def test_cloud_events_in_three_modes_come_out_as_they_went_in(served: Served) -> None:
    attributes = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid"}
    binary = {f"ce-{name}": value for name, value in attributes.items()}
    binary |= {"ce-partitionkey": "7", "ce-subject": "caf%C3%A9"}
    sent = served.ask(
        "POST", "/topics/events", b'{"total": 3}', kind="application/json", headers=binary
    )
    assert sent.status == 200
    event = {**attributes, "id": "2", "data": {"total": 4}}
    structured = "application/cloudevents+json"
    assert served.ask("POST", "/topics/events", event, kind=structured).status == 200
    batch = [{**attributes, "id": "3"}, {**attributes, "id": "4"}]
    kind = "application/cloudevents-batch+json"
    assert served.ask("POST", "/topics/events", batch, kind=kind).status == 200
    found = read(served, "events", "cloudevents")
    assert [each["id"] for each in found] == ["1", "2", "3", "4"]
    assert found[0]["data"] == {"total": 3} and found[0]["subject"] == "café"
    assert found[1] == event
    assert read(served, "events")[0]["key"] == "7"
    lacking = served.ask("POST", "/topics/events", {"id": "5"}, kind=structured)
    assert lacking.status == 422 and "specversion" in lacking.json()["message"]


def test_raw_bytes_are_the_value(served: Served) -> None:
    sent = served.ask("POST", "/topics/raw?key=7", b"hello", kind="text/plain")
    assert sent.status == 200
    [seen] = read(served, "raw")
    assert (seen["key"], seen["value"]) == ("7", "hello")
    form = served.ask("POST", "/topics/raw", b"a=b", kind="application/x-www-form-urlencoded")
    assert form.status == 415 and "curl" in form.json()["message"]


def test_delayed_messages_wait_and_can_be_called_off(served: Served, broker: Broker) -> None:
    sent = served.ask("POST", "/topics/later?key=7&delay=30m&id=a", b"tea", kind="text/plain")
    assert sent.status == 200, sent
    record = {"key": "k", "value": "coffee", "delay": "45m", "id": "b"}
    assert served.ask("POST", "/topics/later", {"records": [record]}, kind=JSON2).status == 200
    off = served.ask("DELETE", "/topics/later/delayed/b?key_json=%22k%22")
    assert off.status == 202 and off.json()["cancelling"] == "b"
    assert Admin(broker.bootstrap).delayed.cancel("later", "c", key=b"z").outcome  # it is read
    broker.advance(hours=1)
    seen = until(lambda: read(served, "later"))
    assert [each["value"] for each in seen] == ["tea"]
    never = served.ask("POST", "/topics/raw?delay=30m", b"tea", kind="text/plain")
    assert never.status == 422 and "headrace delay enable" in never.json()["message"]
    nonsense = served.ask("POST", "/topics/later?key=1&delay=soon", b"tea", kind="text/plain")
    assert nonsense.status == 422


@pytest.mark.integration
def test_a_mistyped_topic_is_refused_and_not_created() -> None:
    record = {"records": [{"value": 1}]}
    with Broker() as broker:
        with Served(broker.bootstrap) as door:
            answer = door.ask("POST", "/topics/lettres", record, kind=JSON2)
            assert answer.status == 404 and answer.json()["error_code"] == 40401
            wrong = door.ask("POST", "/topics/lettres", record, kind="text/html")
            assert wrong.status == 415 and "use application/json, " in wrong.json()["message"]
        assert "lettres" not in Topics(connection(bootstrap=broker.bootstrap)).cluster.topics
        with Served(broker.bootstrap, limits=HttpLimits(create_topics=True)) as door:
            assert door.ask("POST", "/topics/lettres", record, kind=JSON2).status == 200
