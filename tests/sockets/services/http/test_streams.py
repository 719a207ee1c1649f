"""Server-sent events: from where one asks, going on with Last-Event-ID, filtered, never silent."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.client.admin.admin import Admin
from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from headrace.client.errors import ClientError
from headrace.client.producer.producer import Producer
from headrace.client.records import TopicPartition
from headrace.services.http.limits import HttpLimits
from headrace.testing import Broker
from tests.sockets.fills import FILLS
from tests.sockets.services.http.served import Served

PATIENCE_S = 180


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture(scope="module")
def served(broker: Broker) -> Iterator[Served]:
    # Memory for a few records only, so that readers fall behind it.
    with Served(broker.bootstrap, limits=HttpLimits(feed_bytes=20_000, streams=20)) as door:
        yield door


class Events:
    """A reader by the standard library, event by event."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.last_id = ""

    def __next__(self) -> tuple[str, Any]:
        name, data = "message", ""
        while True:
            line = self._response.readline()
            if not line:
                raise StopIteration
            text = line.decode().rstrip("\n")
            field, _, value = text.partition(": ")
            if field == "event":
                name = value
            elif field == "id":
                self.last_id = value
            elif field == "data":
                data += value
            elif not text and data:
                return name, json.loads(data)

    def values(self, count: int) -> list[Any]:
        return [next(self)[1]["value"] for _ in range(count)]


@contextmanager
def reading(served: Served, path: str, last_id: str | None = None) -> Iterator[Events]:
    caller = http.client.HTTPConnection(*served.address, timeout=PATIENCE_S)
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    caller.request("GET", path, headers=headers)
    response = caller.getresponse()
    assert response.status == 200, response.read()
    assert response.headers["Content-Type"].startswith("text/event-stream")
    events = Events(response)
    assert next(events)[0] == "begun"
    try:
        yield events
    finally:
        response.close()
        caller.close()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    Topics(connection(bootstrap=broker.bootstrap)).create(name, partitions=2)
    return str(name)


def send(broker: Broker, topic: str, values: range, **more: Any) -> None:
    with Producer(broker.bootstrap, settings=FILLS) as producer:
        for value in values:
            producer.send(topic, str(value), key=str(value % 3), **more)


def test_from_the_end_by_default_and_from_the_beginning_on_demand(
    served: Served, broker: Broker, topic: str
) -> None:
    send(broker, topic, range(5))
    with reading(served, f"/topics/{topic}/stream") as live:
        with reading(served, f"/topics/{topic}/stream?from=beginning") as all_of_it:
            assert sorted(all_of_it.values(5)) == list(range(5))
            send(broker, topic, range(5, 10))
            assert sorted(all_of_it.values(5)) == list(range(5, 10))
        assert sorted(live.values(5)) == list(range(5, 10))


def test_a_reader_that_comes_again_misses_nothing_and_gets_nothing_twice(
    served: Served, broker: Broker, topic: str
) -> None:
    send(broker, topic, range(200))
    seen: list[int] = []
    last_id = None
    for _ in range(10):
        path = f"/topics/{topic}/stream?from=beginning"
        with reading(served, path, last_id) as events:
            seen += events.values(20)
            last_id = events.last_id
    assert sorted(seen) == list(range(200))


def test_a_reader_far_behind_what_memory_holds_reads_from_the_cluster(
    served: Served, broker: Broker, topic: str
) -> None:
    with reading(served, f"/topics/{topic}/stream") as events:
        begun = events.last_id
        send(broker, topic, range(1000))
        assert sorted(events.values(1000)) == list(range(1000))
    feed = served.door.logins.own.feeds[topic]
    assert feed.recent is not None and feed.recent.size_bytes <= 20_000
    with reading(served, f"/topics/{topic}/stream", begun) as again:
        assert sorted(again.values(1000)) == list(range(1000))


def test_filters_by_key_header_and_partition(served: Served, broker: Broker, topic: str) -> None:
    send(broker, topic, range(9))
    send(broker, topic, range(100, 103), headers={"kind": "vip"})
    base = f"/topics/{topic}/stream?from=beginning"
    with reading(served, f"{base}&key=1") as events:
        assert events.values(3) == [1, 4, 7]
    with reading(served, f"{base}&header=kind:vip") as events:
        assert sorted(events.values(3)) == [100, 101, 102]
    with reading(served, f"{base}&header=kind&key=2") as events:
        assert events.values(1) == [101]
    for bad in ("partition=9", "partition=x", "from=tomorrow", "format=xml", "nonsense=1"):
        assert served.ask("GET", f"/topics/{topic}/stream?{bad}").status in (400, 404, 422)


def test_from_a_moment(served: Served, broker: Broker, topic: str) -> None:
    send(broker, topic, range(3), timestamp_ms=1_000_000)
    send(broker, topic, range(3, 6), timestamp_ms=2_000_000)
    with reading(served, f"/topics/{topic}/stream?from=1970-01-01T00:30:00Z") as events:
        assert sorted(events.values(3)) == [3, 4, 5]


def test_only_committed_records_are_streamed(served: Served, broker: Broker, topic: str) -> None:
    with reading(served, f"/topics/{topic}/stream") as events:
        with Producer(broker.bootstrap, transactional_id=topic) as producer:
            try:
                with producer.transaction():
                    producer.send(topic, "1").result(PATIENCE_S)
                    raise ValueError("so it is aborted")
            except ValueError:
                pass
            with producer.transaction():
                producer.send(topic, "2")
        assert events.values(1) == [2]


def test_what_retention_has_taken_is_told_of(served: Served, broker: Broker, topic: str) -> None:
    with reading(served, f"/topics/{topic}/stream") as events:
        begun = events.last_id
    send(broker, topic, range(400))
    ends = {
        p: e
        for p, (_, e) in Topics(connection(bootstrap=broker.bootstrap))
        .spans([topic])[topic]
        .items()
    }
    Admin(broker.bootstrap).delete_records(
        {TopicPartition(topic, p): end - 1 for p, end in ends.items()}
    )
    with reading(served, f"/topics/{topic}/stream", begun) as events:
        gaps = [next(events) for _ in ends]
        assert {name for name, _ in gaps} == {"gap"}
        assert {said["partition"]: said["to_offset"] for _, said in gaps} == {
            p: end - 1 for p, end in ends.items()
        }
        assert len(events.values(len(ends))) == len(ends)


def test_a_topic_made_anew_is_told_from_the_old_one(
    served: Served, broker: Broker, topic: str
) -> None:
    send(broker, topic, range(10))
    with reading(served, f"/topics/{topic}/stream?from=beginning") as events:
        events.values(10)
        old = events.last_id
        topics = Topics(connection(bootstrap=broker.bootstrap))
        topics.delete(topic)
        topics.create(topic, partitions=2)
        send(broker, topic, range(50, 52))
        served.door.logins.own.feeds[topic].failure = ClientError("as found within 30 s")
    with reading(served, f"/topics/{topic}/stream", old) as events:
        name, said = next(events)
        assert name == "gap" and "created again" in said["message"]
        assert sorted(events.values(2)) == [50, 51]


def test_streams_are_bounded_and_end_with_the_door(broker: Broker, topic: str) -> None:
    limits = HttpLimits(streams=1, grace_s=5)
    with (
        Served(broker.bootstrap, limits=limits) as door,
        reading(door, f"/topics/{topic}/stream") as events,
    ):
        full = door.ask("GET", f"/topics/{topic}/stream")
        assert full.status == 429 and full.headers["Retry-After"]
        door.stop()
        with pytest.raises(StopIteration):
            next(events)
