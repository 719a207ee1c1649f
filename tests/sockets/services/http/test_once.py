"""Idempotency keys at one door and at two: each request is written once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from headrace.testing import Broker
from tests.sockets.services.http.served import Answer, Served

pytestmark = pytest.mark.integration

JSON2 = "application/vnd.kafka.json.v2+json"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}) as running:
        topics = Topics(connection(bootstrap=running.bootstrap))
        for name in ("one", "two", "three"):
            topics.create(name, partitions=1)
        yield running


@pytest.fixture(scope="module")
def doors(broker: Broker) -> Iterator[tuple[Served, Served]]:
    with Served(broker.bootstrap) as first, Served(broker.bootstrap) as second:
        yield first, second


def post(served: Served, topic: str, key: str, value: Any) -> Answer:
    body = {"records": [{"value": value}]}
    return served.ask(
        "POST", f"/topics/{topic}", body, kind=JSON2, headers={"Idempotency-Key": key}
    )


def committed(bootstrap: str, topic: str) -> list[Any]:
    """As a reader of committed records sees it."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    reader, found = Consumer(settings), []
    reader.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            message = reader.poll(60)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found.append(json.loads(message.value()))
    finally:
        reader.close()


def test_a_repeated_request_gets_the_first_answer(
    broker: Broker, doors: tuple[Served, Served]
) -> None:
    first, second = doors
    made = post(first, "one", "a", 1)
    assert made.status == 200 and "Idempotency-Replayed" not in made.headers
    for door in (first, second, first):
        again = post(door, "one", "a", 1)
        assert again.body == made.body and again.headers["Idempotency-Replayed"] == "true"
    other = post(second, "one", "a", 2)
    assert other.status == 422 and "another request" in other.json()["message"]
    assert committed(broker.bootstrap, "one") == [1]


def test_a_refused_request_uses_no_key_and_writes_nothing_of_itself(
    broker: Broker, doors: tuple[Served, Served]
) -> None:
    door, _ = doors
    half = {"records": [{"value": 1}, {"value": 2, "partition": 9}]}
    refused = door.ask("POST", "/topics/two", half, kind=JSON2, headers={"Idempotency-Key": "half"})
    errors = [each["error_code"] for each in refused.json()["offsets"]]
    assert errors == [1, 1]
    assert post(door, "nowhere", "b", 1).status == 404
    assert post(door, "two", "half", 3).status == 200
    assert committed(broker.bootstrap, "two") == [3]


def test_two_doors_with_the_same_requests_at_once_write_each_once(
    broker: Broker, doors: tuple[Served, Served]
) -> None:
    answers = asyncio.run(_flood([door.base for door in doors], 60))
    assert {status for status, _ in answers} == {200}
    assert len({text for _, text in answers}) == 60
    assert sorted(committed(broker.bootstrap, "three")) == list(range(60))


async def _flood(bases: list[str], count: int) -> list[tuple[int, str]]:
    async with aiohttp.ClientSession() as session:

        async def send(base: str, number: int) -> tuple[int, str]:
            headers = {"Content-Type": JSON2, "Idempotency-Key": f"flood-{number}"}
            body = json.dumps({"records": [{"value": number}]})
            async with session.post(f"{base}/topics/three", data=body, headers=headers) as answer:
                return answer.status, await answer.text()

        return await asyncio.gather(*(send(b, n) for n in range(count) for b in bases))
