"""What a newcomer gets wrong, and what the client then says or does."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from headrace.client import (
    Admin,
    AsyncConsumer,
    ClientError,
    Consumer,
    DeliveryFailed,
    Misuse,
    Producer,
    TopicPartition,
)
from headrace.testing import Broker
from tests.sockets.nobody import nobody

FORGETFUL = """
from headrace import Consumer, Producer

producer = Producer()
producer.send("notes", "not to be lost")
Producer().send_sync("notes", "another one, so that there is something to read")
consumer = Consumer(topics=["notes"], group="forgetful")
assert consumer.poll(60) is not None
"""


@pytest.mark.integration
def test_nothing_is_lost_and_nobody_is_missed_by_who_forgets_to_close(
    headrace_broker: Broker,
) -> None:
    Admin(headrace_broker.bootstrap).topics.create("notes", partitions=1)
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL],
        env=os.environ | {"HEADRACE_BOOTSTRAP": headrace_broker.bootstrap},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "Traceback" not in done.stderr
    [group] = Admin(headrace_broker.bootstrap).groups.describe(["forgetful"])
    assert group.members == [], "else the next one waits until the session is over"
    with Consumer(headrace_broker.bootstrap) as consumer:
        consumer.assign([TopicPartition("notes", 0)])
        values: set[Any] = {next(consumer).value, next(consumer).value}
    assert b"not to be lost" in values


def test_a_consumer_without_anything_to_read_says_so(headrace_broker: Broker) -> None:
    """As when the first argument was meant to be a topic, as in other clients."""
    with (
        Consumer(headrace_broker.bootstrap, group="g") as consumer,
        pytest.raises(Misuse, match="Nothing to read: give topics="),
    ):
        next(consumer)

    async def story() -> None:
        async with AsyncConsumer(headrace_broker.bootstrap, group="g") as consumer:
            with pytest.raises(Misuse, match="Nothing to read"):
                await consumer.poll(0.1)

    asyncio.run(story())


def test_what_is_not_a_partition_an_offset_or_a_header(headrace_broker: Broker) -> None:
    wrong: Any = "orders"
    with Consumer(headrace_broker.bootstrap, group="g") as consumer:
        for given in (wrong, [wrong]):
            with pytest.raises(Misuse, match=r'TopicPartition\("orders", 0\)'):
                consumer.assign(given)
        with pytest.raises(Misuse, match=r"Commit a record, or offsets by partition"):
            consumer.commit(wrong)
    not_headers: list[Any] = [wrong, [wrong], 5]
    with Producer(headrace_broker.bootstrap) as producer:
        for headers in not_headers:
            with pytest.raises(Misuse, match="Headers are"):
                producer.send("orders", "x", headers=headers)


def test_a_setting_that_librdkafka_does_not_know() -> None:
    with pytest.raises(
        ClientError, match=r'"linger" \(names are librdkafka\'s, as in linger\.ms\)'
    ):
        Producer(settings={"linger": 5})


@pytest.mark.integration
def test_a_record_without_a_key_for_a_compacted_topic(headrace_broker: Broker) -> None:
    compacts = {"cleanup.policy": "compact"}
    Admin(headrace_broker.bootstrap).topics.create("prices", partitions=1, settings=compacts)
    with (
        Producer(headrace_broker.bootstrap) as producer,
        pytest.raises(
            DeliveryFailed, match=r"compacts \(cleanup\.policy\): give each record a key"
        ),
    ):
        producer.send_sync("prices", "42")


@pytest.mark.integration
def test_that_no_broker_answers_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    address = nobody()
    caplog.set_level(logging.WARNING, logger="headrace.client")
    with Consumer(address, topics=["any"], group="any") as consumer:
        while "It keeps trying" not in caplog.text:
            assert consumer.poll(0.2) is None
        for _ in range(5):
            consumer.poll(0.2)
    assert caplog.text.count(f"No Kafka broker answers at {address}. Start one with") == 1
    assert caplog.text.count(f"{address} failed: Connection refused") <= 2  # bootstrap, coordinator
