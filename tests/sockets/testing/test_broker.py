"""The broker in a test's own process, used by a client nobody here wrote."""

from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import Broker
from tests.interop.brokers import free_port

OFFSETS_PARTITIONS = "offsets.topic.num.partitions"
TIMEOUT_S = 180


def produce(broker, topic, *values):
    """Returns the offsets that were acknowledged."""
    acknowledged = []

    def delivered(error, message):
        assert error is None, error
        acknowledged.append(message.offset())

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    return acknowledged


def read(broker, topic, count, *, offset=0):
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages = []
    while len(messages) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.error() is None
        messages.append(message)
    consumer.close()
    return messages


def test_a_client_produces_and_consumes():
    with Broker() as broker:
        assert produce(broker, "orders", b"a", b"b") == [0, 1]
        assert [message.value() for message in read(broker, "orders", 2)] == [b"a", b"b"]


def test_settings_are_those_of_kafka():
    with Broker(settings={"num.partitions": 4}) as broker:
        produce(broker, "orders", b"a")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert len(admin.list_topics("orders", TIMEOUT_S).topics["orders"].partitions) == 4


def test_the_wall_clock_is_moved_by_the_test():
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic("orders", 1, config={"message.timestamp.type": "LogAppendTime"})
        admin.create_topics([topic])["orders"].result(TIMEOUT_S)
        produce(broker, "orders", b"now")
        broker.move_clock(timedelta(days=2))
        produce(broker, "orders", b"then")
        first, second = read(broker, "orders", 2)
        moved_ms = second.timestamp()[1] - first.timestamp()[1]
        assert moved_ms >= timedelta(days=2) / timedelta(milliseconds=1)


def test_a_restart_keeps_files_and_address():
    with Broker(port=free_port()) as broker:
        produce(broker, "orders", b"before")
        address = broker.bootstrap
        broker.restart()
        assert broker.bootstrap == address
        assert produce(broker, "orders", b"after") == [1]
        assert [m.value() for m in read(broker, "orders", 2)] == [b"before", b"after"]


@pytest.mark.parametrize(("given", "partitions"), [({}, 1), ({OFFSETS_PARTITIONS: 3}, 3)])
def test_offsets_have_one_partition_unless_a_setting_asks_for_more(given, partitions):
    with Broker(settings=given) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        produce(broker, "orders", b"x")
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        found = consumer.list_topics(timeout=TIMEOUT_S).topics["__consumer_offsets"]
        consumer.close()
    assert len(found.partitions) == partitions


def test_temporary_files_go_with_the_broker():
    with Broker() as broker:
        folder = broker.data
        assert folder.exists()
    assert not folder.exists()


def test_a_folder_of_yours_stays(tmp_path):
    with Broker(data=tmp_path / "kept") as broker:
        produce(broker, "orders", b"a")
    with Broker(data=tmp_path / "kept") as broker:
        assert [message.value() for message in read(broker, "orders", 1)] == [b"a"]


def test_two_brokers_side_by_side():
    with Broker() as one, Broker() as other:
        assert one.bootstrap != other.bootstrap
        produce(one, "orders", b"a")
        admin = AdminClient({"bootstrap.servers": other.bootstrap})
        assert "orders" not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_the_address_of_a_broker_that_does_not_run():
    with pytest.raises(RuntimeError, match="with Broker"):
        _ = Broker().bootstrap


def test_the_fixture_is_there_for_everybody(headrace_broker):
    assert produce(headrace_broker, "orders", b"a") == [0]
