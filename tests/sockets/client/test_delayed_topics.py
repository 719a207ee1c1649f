"""Topics that take delayed messages, on a real broker: the registry, and producers that ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from headrace.client import (
    Admin,
    AsyncProducer,
    ClientError,
    NoSuchTopic,
    NotDelayed,
    Producer,
)
from headrace.client.admin.acls import Acl
from headrace.client.connection import ClientSettings, connection
from headrace.client.delay.registry import registrations
from headrace.client.lookup.record_reader import RecordReader
from headrace.client.records import Record
from headrace.testing import Broker
from tests.sockets.fills import FILLS
from tests.sockets.server.a_secured_server import PLAIN_USERS, SecuredServer


@pytest.fixture(scope="module")
def at() -> Iterator[ClientSettings]:
    with Broker() as broker:
        yield connection(bootstrap=broker.bootstrap)


def read(at: ClientSettings, topic: str) -> list[Record]:
    reader = RecordReader(at, topic)
    try:
        return list(reader.records())
    finally:
        reader.close()


def test_nothing_is_registered_at_first() -> None:
    with Broker() as broker:
        assert registrations(connection(bootstrap=broker.bootstrap)) == []


def test_to_enable_a_topic_makes_its_companion_like_it(at: ClientSettings) -> None:
    admin = Admin(at)
    admin.topics.create("orders", partitions=3, settings={"max.message.bytes": "5000"})
    pair = admin.delayed.enable("orders")
    assert (pair.target, pair.companion) == ("orders", "orders.delay")
    assert "orders" in [pair.target for pair in admin.delayed.all()]
    companion, rejected, outcomes = admin.topics.describe(
        ["orders.delay", "orders.delay.rejected", "orders.delay.outcomes"]
    )
    assert [len(t.partitions) for t in (companion, rejected, outcomes)] == [3, 3, 3]
    assert companion.own_settings() == {
        "cleanup.policy": "delete",
        "max.message.bytes": "5000",
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "-1",
        "retention.ms": "-1",
    }


def test_to_enable_twice_is_well_and_repairs(at: ClientSettings) -> None:
    admin = Admin(at)
    admin.topics.create("twice", partitions=1)
    admin.topics.create("twice.delay", partitions=1)  # by hand, or by being written to
    first = admin.delayed.enable("twice")
    admin.topics.grow("twice", partitions=2)
    assert admin.delayed.enable("twice") == first
    [companion] = admin.topics.describe(["twice.delay"])
    assert len(companion.partitions) == 2
    assert companion.own_settings()["message.timestamp.type"] == "LogAppendTime"


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("nowhere", "no topic nowhere.*topics create nowhere --delayed"),
        ("orders.delay", "belongs to the delayed messages of another topic"),
        ("__consumer_offsets", "internal"),
        ("x" * 240, "240 characters"),
    ],
)
def test_what_cannot_be_enabled_is_told(at: ClientSettings, topic: str, why: str) -> None:
    with pytest.raises(ClientError, match=why):
        Admin(at).delayed.enable(topic)


def test_a_companion_with_more_partitions_than_its_target_is_told(at: ClientSettings) -> None:
    admin = Admin(at)
    admin.topics.create("narrow", partitions=1)
    admin.topics.create("narrow.delay", partitions=2)
    with pytest.raises(ClientError, match="narrow.delay has 2 partitions and narrow has 1"):
        admin.delayed.enable("narrow")
    assert "narrow" not in [pair.target for pair in admin.delayed.all()]


def test_a_disabled_topic_takes_nothing_and_keeps_what_it_has(at: ClientSettings) -> None:
    admin = Admin(at)
    admin.topics.create("gone", partitions=1)
    admin.delayed.enable("gone")
    admin.delayed.disable("gone")
    with Producer(at) as producer, pytest.raises(NotDelayed, match="headrace delay enable gone"):
        producer.send("gone", b"v", delay="1s")
    with pytest.raises(NotDelayed):
        admin.delayed.disable("gone")
    assert "gone.delay" in [topic.name for topic in admin.topics.all()]


def test_a_record_that_cannot_be_read_changes_no_registration(at: ClientSettings) -> None:
    """As in the service: who may write to the registry must not call off others' topics unseen."""
    admin = Admin(at)
    admin.topics.create("poisoned", partitions=1)
    admin.delayed.enable("poisoned")
    with Producer(at, settings=FILLS) as producer:
        for poison in (b"[" * 100, b'{"companion": "other.delay", "enabled_at_ms": 1}'):
            producer.send_sync("headrace.delay.topics", poison, key=b"poisoned")
        producer.send_sync("poisoned", b"v", delay="1h")
    assert "poisoned" in [pair.target for pair in admin.delayed.all()]


def test_a_sender_who_may_not_see_the_registry_hears_what_is_missing(tmp_path: Path) -> None:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    login = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "wonder",
    }
    with SecuredServer(tmp_path, "PLAINTEXT", "SASL_PLAINTEXT", **settings) as server:
        admin = Admin(f"127.0.0.1:{server.port('PLAINTEXT')}")
        admin.topics.create("orders", partitions=1)
        admin.delayed.enable("orders")
        alice = connection(bootstrap=f"127.0.0.1:{server.port('SASL_PLAINTEXT')}", overrides=login)
        entry = partial(Acl, "topic", pattern="literal", principal="User:alice", host="*")
        admin.acls.add([entry("orders.delay", operation="write", permission="allow")])
        with Producer(alice, settings=FILLS) as sender:
            with pytest.raises(ClientError, match=r"may not see headrace\.delay\.topics"):
                sender.send("orders", b"v", delay="1h")
            admin.acls.add([entry("headrace.delay.topics", operation="read", permission="allow")])
            sender.send_sync("orders", b"v", delay="1h")
            with pytest.raises(NoSuchTopic, match="or this user may not see it"):
                sender.send("others", b"v", delay="1h")


def test_a_topic_that_nobody_enabled_is_not_made_by_sending_to_it(at: ClientSettings) -> None:
    with Producer(at, settings=FILLS) as producer:
        with pytest.raises(NoSuchTopic, match="headrace topics create never --delayed"):
            producer.send("never", b"v", delay="1s")
        with pytest.raises(NoSuchTopic):
            producer.cancel("never", "a", key=b"k")
    assert not [topic for topic in Admin(at).topics.all() if topic.name.startswith("never")]


def test_a_delayed_record_and_its_cancel_lie_in_the_partition_of_their_key(
    at: ClientSettings,
) -> None:
    admin = Admin(at)
    admin.topics.create("shop", partitions=4)
    admin.delayed.enable("shop")
    with Producer(at, settings=FILLS) as producer:
        plain = producer.send_sync("shop", "now", key="anna")
        late = producer.send_sync(
            "shop", "later", key="anna", delay=timedelta(minutes=30), id="order-42"
        )
        producer.send_one_way("shop", "forgotten", key="anna", delay="1d")
        wish = producer.cancel("shop", "order-42", key="anna").result()
    assert {plain.partition} == {late.partition, wish.partition}
    first, second, third = read(at, "shop.delay")
    assert first.timestamp_type == "append"
    assert first.headers == [("headrace-delay", b"1800000"), ("headrace-id", b"order-42")]
    assert (second.value, second.headers) == (b"forgotten", [("headrace-delay", b"1d")])
    assert (third.value, third.headers) == (None, [("headrace-cancel", b"order-42")])
    assert [record.value for record in read(at, "shop")] == [b"now"]


def test_the_producer_for_asyncio_does_the_same(at: ClientSettings) -> None:
    admin = Admin(at)
    admin.topics.create("async", partitions=4)
    admin.delayed.enable("async")

    async def send() -> None:
        async with AsyncProducer(at) as producer:
            await producer.send_and_wait("async", "a", key="k", delay="30m", id="i")
            await producer.send_one_way("async", "b", key="k", deliver_at=5)
            await (await producer.cancel("async", "i", key="k"))
            with pytest.raises(NoSuchTopic):
                await producer.send("never", "v", delay="1s")

    asyncio.run(send())
    assert [record.headers for record in read(at, "async.delay")] == [
        [("headrace-delay", b"30m"), ("headrace-id", b"i")],
        [("headrace-deliver-at", b"5")],
        [("headrace-cancel", b"i")],
    ]
