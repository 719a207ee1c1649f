"""What goes wrong around the service stays where it is: one topic waits, the others flow."""

import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.delay.delayed_topics import DelayedTopics
from headrace.client.faults import Fault, not_authorized
from headrace.client.once.outcome import RefusedRecord
from headrace.services.delay import abandoned_rows
from headrace.services.delay.admin.admin_http import Search
from headrace.services.delay.deliverer import Deliverer, sentence
from headrace.services.delay.obstacles import barred_topics
from headrace.services.delay.queries import WAITING, DelayQueries
from headrace.services.delay.service import LONGEST_WAIT_MS, DelayService
from headrace.services.delay.timeline.progress import IntakeProgress, to_metadata
from headrace.services.delay.timeline.timeline import DelayLimits
from headrace.testing import Broker
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_topics import FAR, GROUP
from tests.patience import until
from tests.sockets.services.delay.committed_reader import QUIET, WITHIN_S, Reader
from tests.sockets.services.delay.test_service import log_start, make, send, serving

pytestmark = pytest.mark.integration


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


def topics_of(broker):
    return Topics(ClientSettings({"bootstrap.servers": broker.bootstrap}))


def problems(service):
    return {each.companion: each.problem for each in service.status().partitions if each.problem}


# ---- the far topic


def test_a_garbled_record_in_the_far_topic_does_not_stop_a_rebuild(broker, tmp_path):
    make(broker)
    with serving(broker, tmp_path / "store"):
        reader = Reader(broker)
        for number in range(3):
            send(broker, b"in a year %d" % number, delay=365 * 86_400_000 + number)
        send(broker, b"now")
        assert reader.values(1) == [b"now"]
        broker.move_clock(timedelta(hours=2))
        send(broker, b"later")
        assert reader.values(1) == [b"later"]
        broker.move_clock(timedelta(hours=2))
        until(lambda: log_start(broker, "orders.delay") > 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    producer.produce(FAR, b"scribble", b"orders.delay/0/1")
    producer.produce(FAR, b"scribble", b"\xff\xfe")
    producer.produce(FAR, b"scribble", b"orders.delay/0/-1")
    assert producer.flush(WITHIN_S) == 0
    with serving(broker, tmp_path / "another") as service:
        rejected = Reader(broker, "orders.delay.rejected").next()
        assert rejected.value() == b"scribble"
        assert b"orders.delay/0/1" in dict(rejected.headers())[names.REJECTED_REASON]
        broker.move_clock(timedelta(days=365))
        assert reader.values(2) == [b"in a year 0", b"in a year 2"]
        until(lambda: service.counters.rejected == 1)
    with serving(broker, tmp_path / "a third") as service:
        send(broker, b"the end")
        assert reader.values(1) == [b"the end"]
        assert service.counters.rejected == 0, "it was told once"


# ---- topics that come and go


def make_anew(broker, name, **settings):
    topics = topics_of(broker)
    topics.delete(name)
    until(lambda: name not in topics_of(broker).cluster.topics)
    topics.create(name, partitions=1, settings=settings)


def deliver_six(broker, reader):
    """All of them below what was done of the old topic, by place and by time."""
    for number in range(6):
        send(broker, b"new %d" % number, deliver_at=1_000 + number)
    assert reader.values(6) == [b"new %d" % number for number in range(6)]


def test_a_companion_made_anew_is_read_from_its_beginning(broker, tmp_path):
    make(broker)
    reader = Reader(broker)
    with serving(broker, tmp_path) as service:
        for number in range(5):
            send(broker, b"old %d" % number)
        assert len(reader.values(5)) == 5
        until(lambda: service.counters.delivered == 5)
        make_anew(broker, "orders.delay", **{"message.timestamp.type": "LogAppendTime"})
        [anew] = topics_of(broker).describe(["orders.delay"])
        until(lambda: [each.topic_id for each in service._owned.values()] == [anew.id])
        deliver_six(broker, reader)


def test_a_companion_made_anew_is_not_judged_by_the_old_watermark(broker, tmp_path):
    """Clusters forget the offsets of a deleted topic after a while, not at once."""
    make(broker)
    metadata = to_metadata(IntakeProgress(3, (2**60, 2)), "somebody", "the id of the old one")
    commit(broker, TopicPartition("orders.delay", 0, 3, metadata))
    reader = Reader(broker)
    for number in range(3):
        send(broker, b"first %d" % number, deliver_at=1_000 + number)
    with serving(broker, tmp_path):
        assert reader.values(3) == [b"first %d" % number for number in range(3)]
        deliver_six(broker, reader)


def commit(broker, place):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, **QUIET})
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    finally:
        consumer.close()


def test_rows_of_a_disabled_topic_leave_the_store_and_are_read_again(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(abandoned_rows, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(abandoned_rows, "UNWANTED_FOR_S", 0.2)
    make(broker)
    make(broker, "others")
    delayed = DelayedTopics(ClientSettings({"bootstrap.servers": broker.bootstrap}))
    with serving(broker, tmp_path, limits=DelayLimits(overlay_age_ms=20)) as service:
        send(broker, b"waits", delay="1h")
        until(lambda: service.store.count_pending("orders.delay") == 1)
        until(lambda: ("others.delay", 0) in service.store.places())
        delayed.disable("orders")
        until(lambda: service.store.places() == [("others.delay", 0)])
        delayed.enable("orders")
        until(lambda: service.store.count_pending("orders.delay") == 1)
        broker.move_clock(timedelta(hours=1))
        assert Reader(broker).values(1) == [b"waits"]


# ---- commits of others


def test_a_commit_of_somebody_else_is_told_and_not_looked_at_all_the_time(broker, tmp_path):
    make(broker)
    make(broker, "others")
    commit(broker, TopicPartition("orders.delay", 0, 5, "of somebody else"))
    with serving(broker, tmp_path) as service:
        until(lambda: "did not make" in problems(service).get("orders.delay", ""))
        send(broker, b"flows", topic="others")
        assert Reader(broker, "others").values(1) == [b"flows"]
        # The other partition has nothing to do either, once what was taken is settled.
        until(lambda: service._due_in_ms(service.clock()) >= LONGEST_WAIT_MS)


# ---- targets that take nothing


@contextmanager
def locked(monkeypatch, topic, *, is_named):
    """As a cluster answers whoever may not write there: at the producer, when it commits."""
    tried = []
    write_ = Deliverer.write
    unlocked = threading.Event()
    no = Fault(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no", txn_requires_abort=True))

    def write(self, records, mark):
        def write_and_fail(calls):
            send = Mock(side_effect=calls.send)
            records(Mock(send=send))
            if unlocked.is_set() or topic not in {each.args[0] for each in send.call_args_list}:
                return
            tried.append({each.place.topic for each in mark.offsets()})
            if is_named:
                self._writer._refused(no, Mock(topic=lambda: topic))
            raise no

        return write_(self, write_and_fail, mark)

    monkeypatch.setattr(Deliverer, "write", write)
    yield unlocked, tried


@pytest.mark.parametrize("is_named", [True, False])
def test_no_permission_for_one_target_holds_that_one_alone(broker, tmp_path, monkeypatch, is_named):
    monkeypatch.setattr(barred_topics, "FIRST_WAIT_S", 0.1)
    monkeypatch.setattr(barred_topics, "LONGEST_WAIT_S", 0.2)
    make(broker)
    make(broker, "locked")
    with (
        locked(monkeypatch, "locked", is_named=is_named) as (unlocked, tried),
        serving(broker, tmp_path) as service,
    ):
        due_ms = int(time.time() * 1000) + 1_000
        send(broker, b"patience", topic="locked", deliver_at=due_ms)
        send(broker, b"beside it", deliver_at=due_ms)
        reader = Reader(broker)
        assert reader.values(1) == [b"beside it"]
        until(lambda: "write" in problems(service).get("locked.delay", ""))
        for number in range(20):
            send(broker, b"%d" % number)
        assert reader.values(20) == [b"%d" % number for number in range(20)]
        until(lambda: len(tried) >= 4)
        assert sum("orders.delay" in each for each in tried) <= 1, "a neighbour suffers once"
        until(lambda: [each.state for each in service.status().partitions].count(WAITING) == 1)
        unlocked.set()
        assert Reader(broker, "locked").values(1) == [b"patience"]
        until(lambda: not problems(service))


def test_a_clock_far_ahead_of_the_brokers_rejects_nothing(broker, tmp_path, monkeypatch):
    """Brokers refuse records from the future. That is a fault of the clock, not of the message."""
    monkeypatch.setattr(barred_topics, "FIRST_WAIT_S", 0.1)
    monkeypatch.setattr(barred_topics, "LONGEST_WAIT_S", 0.2)
    make(broker)
    ahead_ms = 2 * 3_600_000

    def clock():
        return time.time_ns() // 1_000_000 + ahead_ms

    service = DelayService(broker.bootstrap, folder=tmp_path, clock=clock)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        assert service.wait_until_started(WITHIN_S)
        send(broker, b"patience", delay="1s")
        until(lambda: "clocks" in problems(service).get("orders.delay", ""))
        ahead_ms = 0
        message = Reader(broker).next()
        assert message.value() == b"patience"
        assert message.timestamp()[1] >= int(dict(message.headers())[names.DUE_AT])
        assert service.counters.rejected == 0
    finally:
        service.stop()
        thread.join(WITHIN_S)


def test_what_a_topic_says_becomes_a_sentence():
    class AMessage:
        def topic(self):
            return "orders"

        partition = key = value = topic

    message: Any = AMessage()
    refused = RefusedRecord(not_authorized(), message)
    assert sentence(refused) == "the service may not write to orders: give it the permission"


# ---- what people see


def test_what_was_just_sent_is_listed_at_once(broker, tmp_path):
    make(broker)
    never = DelayLimits(overlay_age_ms=3_600_000)
    with serving(broker, tmp_path, limits=never) as service:
        queries = DelayQueries(service.store, service.status, service.store_taken)
        send(broker, b"waits", delay="1h")
        until(lambda: service.counters.taken == 1)
        assert service.store.count_pending() == 0, "it would be listed in an hour"
        assert len(queries.pending(Search())["rows"]) == 1


def test_a_companion_that_nobody_registered_is_not_served(broker, tmp_path):
    make(broker)
    for name in ("secret", "secret.delay"):
        topics_of(broker).create(name, partitions=1)
    with serving(broker, tmp_path):
        send(broker, b"for nobody", topic="secret", delay=1)
        send(broker, b"for all", delay=1)
        assert Reader(broker).values(1) == [b"for all"]
        with pytest.raises(AssertionError):
            Reader(broker, "secret").next(within_s=0.5)
