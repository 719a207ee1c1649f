"""Sending, on a real broker: what is taken arrives, and what is refused says why."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

import pytest

from headrace.client import (
    BufferFull,
    ClientError,
    Consumer,
    DeliveryFailed,
    Misuse,
    NoSuchTopic,
    Outgoing,
    Producer,
    ProducerInterceptor,
    Sent,
    SerializationFailed,
    TopicPartition,
    to_json,
    to_text,
)
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.producer.no_loss import defaults_for
from headrace.testing import Broker
from tests.patience import until
from tests.sockets.fills import FILLS
from tests.sockets.nobody import nobody


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        topics = Topics(ClientSettings({"bootstrap.servers": running.bootstrap}))
        for name in ("orders", "threads", "keys", "turns"):
            topics.create(name, partitions=4)
        topics.create("one", partitions=1)
        yield running


def records_of(broker: Broker, topic: str, count: int) -> list[Any]:
    """So many records of a topic, from its beginning."""
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign(consumer.partitions_of(topic))
        found: list[Any] = []
        while len(found) < count:
            found += consumer.batch(count - len(found), timeout_s=60)
        return found


@pytest.mark.integration
def test_a_future_tells_where_the_record_lies(broker: Broker) -> None:
    with Producer(broker.bootstrap) as producer:
        future = producer.send("one", b"first", key=b"k", headers={"trace": "7"})
        sent = future.result(60)
        assert (sent.topic, sent.partition) == ("one", 0)
        assert producer.send_sync("one", "second").offset == sent.offset + 1
        assert sent.timestamp_ms > 1_600_000_000_000
        assert future.done()
        assert not future.cancel()
    first = next(r for r in records_of(broker, "one", sent.offset + 2) if r.offset == sent.offset)
    assert (first.key, first.value, first.headers) == (b"k", b"first", [("trace", b"7")])


@pytest.mark.integration
def test_partition_time_and_null_are_kept(broker: Broker) -> None:
    with Producer(broker.bootstrap) as producer:
        sent = producer.send_sync("orders", None, key="gone", partition=3, timestamp_ms=1234567)
    assert sent.partition == 3
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign({TopicPartition("orders", 3): sent.offset})
        record = consumer.poll(60)
    assert record is not None
    assert (record.key, record.value, record.timestamp_ms) == (b"gone", None, 1234567)


def test_callbacks_hear_once_and_their_failures_disturb_nobody(broker: Broker) -> None:
    heard: list[tuple[Sent | None, ClientError | None]] = []

    def fails(sent: Sent | None, error: ClientError | None) -> None:
        heard.append((sent, error))
        raise ValueError("a bug in a callback")

    with Producer(broker.bootstrap) as producer:
        producer.send("one", b"a", callback=fails).result(60)
        producer.send("one", b"b", callback=fails).result(60)
    assert [error for _, error in heard] == [None, None]
    assert all(isinstance(sent, Sent) for sent, _ in heard)


def test_many_threads_share_a_producer(broker: Broker) -> None:
    with Producer(broker.bootstrap) as producer:
        futures: list[Any] = []

        def send(name: int) -> None:
            for number in range(200):
                futures.append(producer.send("threads", f"{name}-{number}"))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done, not_done = wait(futures, timeout=60)
        assert not not_done
    places = {(f.result().partition, f.result().offset) for f in done}
    assert len(places) == 800
    assert len({r.value for r in records_of(broker, "threads", 800)}) == 800


@pytest.mark.integration
def test_one_way_counts_what_was_lost() -> None:
    producer: Producer = Producer(nobody(), settings={"message.timeout.ms": 50, "log_level": 0})
    producer.send_one_way("orders", b"lost")
    producer.close()
    assert producer.one_way_failures == 1


@pytest.mark.integration
def test_interceptors_then_serializers_then_the_partitioner(broker: Broker) -> None:
    steps: list[str] = []
    told: list[tuple[str, int | None]] = []

    class Stamps(ProducerInterceptor):
        def on_send(self, record: Outgoing[Any, Any]) -> Outgoing[Any, Any]:
            steps.append("interceptor")
            record.value = record.value | {"stamped": True}
            record.headers.append(("by", b"stamps"))
            return record

        def on_delivered(
            self, record: Outgoing[Any, Any], sent: Sent | None, error: ClientError | None
        ) -> None:
            told.append((record.topic, None if sent is None else sent.partition))
            raise ValueError("nobody minds")

    def serialize(value: dict[str, Any]) -> bytes:
        steps.append("serializer")
        return to_json(value)

    def always_two(topic: str, key: bytes | None, partitions: int) -> int:
        steps.append(f"partitioner of {key!r} in {partitions}")
        return 2

    with Producer(
        broker.bootstrap,
        key_serializer=to_text,
        value_serializer=serialize,
        partitioner=always_two,
        interceptors=[Stamps()],
    ) as producer:
        sent = producer.send_sync("orders", {"n": 1}, key="k")
        producer.send_one_way("orders", {"n": 2}, key="k", partition=0)
    assert sent.partition == 2
    assert steps[:3] == ["interceptor", "serializer", "partitioner of b'k' in 4"]
    assert steps[3:] == ["interceptor", "serializer"], "a named partition needs no partitioner"
    assert told == [("orders", 2), ("orders", 0)]
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign({TopicPartition("orders", 2): sent.offset})
        record = consumer.poll(60)
    assert record is not None
    assert record.value == b'{"n":1,"stamped":true}'
    assert record.header("by") == b"stamps"


def test_an_interceptor_may_refuse(broker: Broker) -> None:
    class Refuses(ProducerInterceptor):
        def on_send(self, record: Outgoing[Any, Any]) -> Outgoing[Any, Any]:
            raise PermissionError("not this one")

    with Producer(broker.bootstrap, interceptors=[Refuses()]) as producer:
        with pytest.raises(PermissionError, match="not this one"):
            producer.send("one", b"x")
        assert len(producer) == 0


@pytest.mark.integration
def test_keys_go_where_the_java_client_puts_them(broker: Broker) -> None:
    """Partitions as Java's murmur2 gives them: the C partitioner and ours agree."""
    from headrace.client import murmur2

    with (
        Producer(broker.bootstrap) as native,
        Producer(broker.bootstrap, partitioner=murmur2) as python,
    ):
        for key in ("", "a", "order-42", "schlüssel"):
            by_native = native.send_sync("keys", b"", key=key).partition
            assert python.send_sync("keys", b"", key=key).partition == by_native


def test_a_closed_producer_has_no_threads_and_no_connections(broker: Broker) -> None:
    before = native_threads()
    producer: Producer = Producer(broker.bootstrap, settings=FILLS)
    producer.send("one", b"x").result(60)
    own = native_threads() - before
    assert own
    producer.close()
    until(lambda: not own & native_threads())
    assert len(producer) == 0
    with pytest.raises(Misuse, match="closed"):
        producer.partition_count("one")


def native_threads() -> set[str]:
    """Ids of the threads of this process that Python did not start."""
    ours = {str(thread.native_id) for thread in threading.enumerate()}
    return set(os.listdir("/proc/self/task")) - ours


def test_round_robin_takes_turns(broker: Broker) -> None:
    with Producer(broker.bootstrap, partitioner="round_robin") as producer:
        futures = [producer.send("turns", b"x", key=b"same") for _ in range(8)]
        assert [f.result(60).partition for f in futures] == [0, 1, 2, 3] * 2


def test_an_object_without_a_serializer_is_refused_with_advice(broker: Broker) -> None:
    with Producer(broker.bootstrap) as producer:
        with pytest.raises(SerializationFailed, match="value_serializer such as"):
            producer.send("one", {"n": 1})  # type: ignore[arg-type]
        with pytest.raises(SerializationFailed, match="The key for topic one is of type int"):
            producer.send("one", b"", key=5)  # type: ignore[arg-type]


def test_a_serializer_that_fails_names_the_topic(broker: Broker) -> None:
    with (
        Producer(broker.bootstrap, value_serializer=to_json) as producer,
        pytest.raises(SerializationFailed, match="value for topic one cannot be serialized"),
    ):
        producer.send("one", {1, 2})


@pytest.mark.integration
def test_a_record_too_large_says_what_to_raise(broker: Broker) -> None:
    with Producer(broker.bootstrap, settings={"message.max.bytes": 10_000_000}) as producer:
        future = producer.send("one", b"x" * 2_000_000)
        with pytest.raises(DeliveryFailed, match="max.message.bytes") as caught:
            future.result(60)
    assert caught.value.code == "MSG_SIZE_TOO_LARGE"


def test_a_full_buffer_waits_and_then_says_so() -> None:
    producer: Producer = Producer(
        nobody(),
        max_block_s=0.1,
        settings={"queue.buffering.max.messages": 10, "log_level": 0},
    )
    futures = [producer.send("orders", b"x") for _ in range(10)]
    with pytest.raises(BufferFull, match=r"full for 0\.1 seconds"):
        producer.send("orders", b"x")
    producer.close(timeout_s=0)
    with pytest.raises(DeliveryFailed, match="dropped"):
        futures[0].result(60)


@pytest.mark.integration
def test_a_full_buffer_only_slows_down(broker: Broker) -> None:
    settings = {"queue.buffering.max.messages": 20}
    with Producer(broker.bootstrap, settings=settings) as producer:
        futures = [producer.send("one", str(n)) for n in range(200)]
    assert [f.result(0).offset for f in futures] == list(
        range(futures[0].result().offset, futures[0].result().offset + 200)
    )


@pytest.mark.integration
def test_a_closed_producer_says_so(broker: Broker) -> None:
    producer: Producer = Producer(broker.bootstrap)
    producer.send_sync("one", b"x")
    producer.close()
    producer.close()
    with pytest.raises(Misuse, match="closed"):
        producer.send("one", b"x")


def test_transactions_need_an_id(broker: Broker) -> None:
    with Producer(broker.bootstrap) as producer, pytest.raises(Misuse, match="transactional_id"):
        producer.transaction()


def test_a_setting_that_librdkafka_does_not_know_is_one_sentence() -> None:
    with pytest.raises(ClientError, match='setting is wrong: No such .*"linger.hours"'):
        Producer("localhost:1", settings={"linger.hours": 1})


def test_what_is_given_wins_over_the_recipe() -> None:
    recipe = defaults_for({})
    assert recipe["acks"] == "all"
    assert recipe["enable.idempotence"] is True
    assert recipe["delivery.timeout.ms"] == 120_000
    weaker = defaults_for({"acks": "1"})
    assert weaker["enable.idempotence"] is False
    assert "acks" not in weaker
    assert defaults_for({"retries": "0"})["acks"] == "all"
    assert "linger.ms" not in defaults_for({"queue.buffering.max.ms": "1"})
    assert "delivery.timeout.ms" not in defaults_for({}, "tx"), "librdkafka bounds it"


def test_only_a_transactional_producer_stays_with_the_brokers_it_knows() -> None:
    name = "metadata.recovery.strategy"
    assert defaults_for({}, "tx")[name] == "none", "librdkafka 2.16 would hang after a restart"
    assert name not in defaults_for({})


def test_acks_1_works_though_the_recipe_is_idempotent(broker: Broker) -> None:
    with Producer(broker.bootstrap, settings={"acks": 1}) as producer:
        assert producer.send_sync("one", b"x").offset >= 0


@pytest.mark.integration
def test_a_record_too_large_for_the_producer_itself_names_its_own_limit(broker: Broker) -> None:
    with Producer(broker.bootstrap) as producer:
        with pytest.raises(DeliveryFailed, match=r"its setting message\.max\.bytes") as caught:
            producer.send("one", b"x" * 1_040_000)
        assert caught.value.code == "MSG_SIZE_TOO_LARGE"
        assert producer.send_sync("one", b"x").offset >= 0


@pytest.mark.parametrize(
    "wrong", [{"partition": 1 << 40}, {"headers": {"n": 5}}, {"key": "\ud800"}]
)
def test_what_cannot_be_sent_is_one_sentence(broker: Broker, wrong: dict[str, Any]) -> None:
    with (
        Producer(broker.bootstrap) as producer,
        pytest.raises(Misuse, match="This cannot be sent"),
    ):
        producer.send("one", b"x", **wrong)


def test_a_topic_that_is_not_there_says_how_to_make_it() -> None:
    with Broker(settings={"auto.create.topics.enable": "false"}) as strict:
        settings = {"topic.metadata.propagation.max.ms": 200}
        with (
            Producer(strict.bootstrap, settings=settings) as producer,
            pytest.raises(NoSuchTopic, match="`headrace topics create missing`"),
        ):
            producer.send_sync("missing", b"x")


@pytest.mark.parametrize("name", ["", "two words"])
def test_a_name_that_no_topic_can_have(broker: Broker, name: str) -> None:
    with (
        Producer(broker.bootstrap) as producer,
        pytest.raises(DeliveryFailed, match="not a valid topic name"),
    ):
        producer.send_sync(name, b"x")


@pytest.mark.integration
def test_a_callback_that_waits_for_another_record_is_told_so(broker: Broker) -> None:
    heard: list[Exception] = []

    with Producer(broker.bootstrap) as producer:

        def waits(sent: Sent | None, error: ClientError | None) -> None:
            for call in (lambda: producer.send_sync("one", b"inner"), producer.flush):
                try:
                    call()
                except Misuse as misuse:
                    heard.append(misuse)

        producer.send("one", b"outer", callback=waits).result(60)
        while len(heard) < 2:
            producer.send_sync("one", b"more")
    assert all("callback" in str(misuse) for misuse in heard)


@pytest.mark.integration
def test_all_that_was_taken_is_settled_when_close_returns(broker: Broker) -> None:
    """While another thread sends and sends; it hears that the producer is closed."""
    for _ in range(5):
        producer: Producer = Producer(broker.bootstrap)
        futures: list[Any] = []
        refused: list[Misuse] = []
        began = threading.Event()

        def send(
            producer: Producer = producer,
            futures: list[Any] = futures,
            refused: list[Misuse] = refused,
            began: threading.Event = began,
        ) -> None:
            try:
                while True:
                    futures.append(producer.send("one", b"x"))
                    began.set()
            except Misuse as misuse:
                refused.append(misuse)

        sender = threading.Thread(target=send)
        sender.start()
        assert began.wait(60)
        producer.close()
        sender.join(60)
        assert len(refused) == 1
        assert all(future.done() for future in futures)


def test_an_interceptor_that_forgets_the_record_is_named(broker: Broker) -> None:
    class Forgets(ProducerInterceptor):
        def on_send(self, record: Outgoing[Any, Any]) -> Outgoing[Any, Any]:
            return None

    with (
        Producer(broker.bootstrap, interceptors=[Forgets()]) as producer,
        pytest.raises(Misuse, match="Forgets.on_send must return the record"),
    ):
        producer.send("one", b"x")


def test_a_number_that_is_none_is_refused_by_librdkafka_in_a_sentence() -> None:
    with pytest.raises(ClientError, match="setting is wrong"):
        Producer("localhost:1", settings={"max.in.flight": "many"})
