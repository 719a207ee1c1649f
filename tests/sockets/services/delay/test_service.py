"""The delay service in process, on the broker for tests, with a wall clock that the tests move."""

import shutil
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings, addresses
from headrace.client.delay.delayed_topics import DelayedTopics
from headrace.client.wire import Wire
from headrace.services.delay.service import DelayService
from headrace.services.delay.timeline.timeline import DelayLimits
from headrace.testing import Broker
from headrace.wire.contract import headers as names
from headrace.wire.protocol.messages import produce
from headrace.wire.protocol.record_batch import Record, RecordHeader, build, seal
from headrace.wire.protocol.uuids import from_text
from tests.patience import until
from tests.sockets.services.delay.committed_reader import QUIET, WITHIN_S, Reader

pytestmark = pytest.mark.integration


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


def make(broker, topic="orders", partitions=1, **settings):
    at = ClientSettings({"bootstrap.servers": broker.bootstrap})
    Topics(at).create(topic, partitions=partitions, settings=settings)
    DelayedTopics(at).enable(topic)


@contextmanager
def serving(broker, folder, **given):
    def clock():
        return time.time_ns() // 1_000_000 + broker.clock.moved_by_ms

    service = DelayService(broker.bootstrap, folder=folder, clock=clock, **given)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        assert service.wait_until_started(WITHIN_S)
        yield service
    finally:
        service.stop()
        thread.join(WITHIN_S)
        assert not thread.is_alive()


@lru_cache(1)
def producer_for(bootstrap):
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **QUIET})


def send(broker, value, topic="orders", key=None, partition=0, **headers):
    """Headers by their names without `headrace-`; gives the offset."""
    told = []
    producer = producer_for(broker.bootstrap)
    given = [(f"headrace-{k.replace('_', '-')}", str(v).encode()) for k, v in headers.items()]
    producer.produce(
        f"{topic}.delay", value, key, partition=partition, headers=given,
        on_delivery=lambda error, message: told.append((error, message.offset())),
    )  # fmt: skip
    producer.flush(WITHIN_S)
    [(error, offset)] = told
    assert error is None
    return offset


def log_start(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    [found] = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values()
    return found.result(WITHIN_S).offset


def test_half_an_hour_passes_when_the_test_says_so(broker, tmp_path):
    make(broker)
    with serving(broker, tmp_path) as service:
        send(broker, b"close it", key=b"42", delay="30m", id="order-42")
        send(broker, b"at once")
        reader = Reader(broker)
        assert reader.values(1) == [b"at once"]
        until(lambda: service.status().partitions[0].position == 2)
        broker.move_clock(timedelta(minutes=29))
        until(lambda: service.counters.delivered == 1)
        broker.move_clock(timedelta(minutes=1))
        message = reader.next()
        headers = dict(message.headers())
        assert (message.key(), message.value()) == (b"42", b"close it")
        assert headers[names.MESSAGE_ID] == b"order-42@" + headers[names.DUE_AT]
        assert headers[names.SOURCE] == b"orders.delay/0/0"
        assert message.timestamp()[1] >= int(headers[names.DUE_AT])


def test_a_clock_that_steps_back_holds_deliveries_and_loses_none(broker, tmp_path):
    make(broker)
    with serving(broker, tmp_path) as service:
        reader = Reader(broker)
        broker.move_clock(timedelta(hours=1))
        send(broker, b"in the future", delay="10ms")
        assert reader.values(1) == [b"in the future"]
        until(lambda: service.counters.delivered == 1)  # a moment after it is seen
        broker.move_clock(timedelta(hours=-1))
        send(broker, b"waits", delay="5s")
        until(lambda: service.status().partitions[0].position == 2)
        broker.move_clock(timedelta(seconds=10))
        assert service.counters.delivered == 1  # the clock has not caught up
        broker.move_clock(timedelta(hours=1))
        assert reader.values(1) == [b"waits"]


def test_what_is_far_away_frees_the_intake_and_survives_the_loss_of_the_store(broker, tmp_path):
    make(broker)
    with serving(broker, tmp_path / "store") as service:
        reader = Reader(broker)
        send(broker, b"in two years", key=b"k", delay=2 * 365 * 86_400_000)
        for number in range(20):
            send(broker, b"soon %d" % number, delay=1)
        assert len(reader.values(20)) == 20
        broker.move_clock(timedelta(hours=2))
        send(broker, b"later", delay=1)  # time passes with the records of the intake
        assert reader.values(1) == [b"later"]
        broker.move_clock(timedelta(hours=2))
        until(lambda: log_start(broker, "orders.delay") > 1)
        assert service.status().problem is None
    shutil.rmtree(tmp_path / "store")
    with serving(broker, tmp_path / "store"):
        broker.move_clock(timedelta(days=2 * 365))
        message = reader.next()
        assert (message.key(), message.value()) == (b"k", b"in two years")
        assert dict(message.headers())[names.SOURCE] == b"orders.delay/0/0"
    far = Reader(broker, "headrace.delay.far")
    assert far.next().value() == b"in two years"
    assert far.next().value() is None  # it left when it was delivered


def test_a_restart_goes_on_where_it_was(broker, tmp_path):
    make(broker)
    reader = Reader(broker)
    with serving(broker, tmp_path):
        send(broker, b"before", delay=1)
        send(broker, b"after", delay="1h")
        assert reader.values(1) == [b"before"]
    with serving(broker, tmp_path) as service:
        broker.move_clock(timedelta(hours=1))
        assert reader.values(1) == [b"after"]
        until(lambda: service.counters.transactions > 0)
        until(lambda: service.counters.delivered == 1)


def test_records_of_an_aborted_transaction_are_never_delivered(broker, tmp_path):
    make(broker)
    with serving(broker, tmp_path):
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": "shop", **QUIET}
        )
        producer.init_transactions(WITHIN_S)
        for value, keep in ((b"no", False), (b"yes", True)):
            producer.begin_transaction()
            producer.produce("orders.delay", value, partition=0, headers={"headrace-delay": "1"})
            producer.flush(WITHIN_S)
            (producer.commit_transaction if keep else producer.abort_transaction)(WITHIN_S)
        send(broker, b"and more", delay=1)
        assert Reader(broker).values(2) == [b"yes", b"and more"]


def test_a_record_that_the_target_refuses_is_rejected_and_its_neighbours_arrive(broker, tmp_path):
    make(broker, **{"max.message.bytes": "1500"})
    at = ClientSettings({"bootstrap.servers": broker.bootstrap})
    Topics(at).change_settings("orders.delay", to={"max.message.bytes": "100000"})
    with serving(broker, tmp_path) as service:
        # Nobody looks at the size of headers before the broker does.
        send(broker, b"heavy head", delay=200, weight="x" * 3_000)
        send(broker, b"heavy body" * 400, delay=200)
        for number in range(30):
            send(broker, b"%d" % number, delay=200)
        assert Reader(broker).values(30) == [b"%d" % number for number in range(30)]
        rejected = Reader(broker, "orders.delay.rejected")
        found = [rejected.next(), rejected.next()]
        assert {message.value()[:10] for message in found} == {b"heavy head", b"heavy body"}
        assert all(dict(message.headers())[names.REJECTED_REASON] for message in found)
        assert service.counters.aborted <= 1


@pytest.mark.parametrize("delay", [b"nonsense", b"1ms"])
def test_what_nobody_has_room_for_is_rejected_all_the_same(broker, tmp_path, delay):
    make(broker)
    sender = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "message.max.bytes": 9_000_000,
            "compression.type": "gzip",  # the companion's limit counts what is compressed
            **QUIET,
        }
    )
    with serving(broker, tmp_path) as service:
        sender.produce("orders.delay", bytes(5_000_000), headers=[(names.DELAY, delay)])
        assert sender.flush(WITHIN_S) == 0
        send(broker, b"a neighbour", delay=1)
        assert Reader(broker).values(1) == [b"a neighbour"]
        message = Reader(broker, "orders.delay.rejected").next()
        assert len(message.value()) == 5_000_000
        assert dict(message.headers())[names.REJECTED_REASON]
        assert service.counters.aborted <= 2


def test_a_header_whose_name_is_no_text_stops_nobody(broker, tmp_path):
    make(broker)
    at = ClientSettings({"bootstrap.servers": broker.bootstrap})
    [companion] = Topics(at).describe(["orders.delay"])
    batch = bytearray(build([Record(None, b"odd", [RecordHeader("zz", b"1")], timestamp=0)]))
    batch = batch.replace(b"zz", b"\xff\xfe")
    seal(batch)
    part = produce.PartitionProduceData(0, bytes(batch))
    data = [produce.TopicProduceData("orders.delay", from_text(companion.id), [part])]
    [address] = addresses(at.bootstrap)
    with Wire(at, address) as wire:
        answer = wire.ask(produce, produce.ProduceRequest(None, -1, 10_000, data))
    assert answer.responses[0].partition_responses[0].error_code == 0
    with serving(broker, tmp_path):
        send(broker, b"a neighbour", delay=1)
        assert Reader(broker).values(1) == [b"a neighbour"]
        message = Reader(broker, "orders.delay.rejected").next()
        assert message.value() == b"odd"
        assert b"not UTF-8" in dict(message.headers())[names.REJECTED_REASON]


def test_only_some_topics_are_served_when_asked_so(broker, tmp_path):
    make(broker)
    make(broker, "others")
    with serving(broker, tmp_path, only=lambda topic: topic == "orders", group="mine"):
        send(broker, b"not here", topic="others", delay=1)
        send(broker, b"here", delay=1)
        assert Reader(broker).values(1) == [b"here"]
        with pytest.raises(AssertionError):
            Reader(broker, "others").next(within_s=0.5)


def test_limits_can_be_small(broker, tmp_path):
    """Every bound is hit, and still everything arrives once and in order."""
    make(broker)
    limits = DelayLimits(transaction_records=3, overlay_records=4)
    with serving(broker, tmp_path, limits=limits):
        for number in range(50):
            send(broker, b"%d" % number, deliver_at=1_000 + number)
        assert Reader(broker).values(50) == [b"%d" % number for number in range(50)]
