"""`headrace transactions` on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

from headrace.client.admin.transactional_ids import TransactionalIds
from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire
from headrace.testing import Broker
from headrace.wire.protocol.messages import produce
from tests.conformance.batches import TRANSACTIONAL, R, build
from tests.sockets.cli.conftest import CommandLine

LAST_THAT_ADDS_NO_PARTITION = 11  # from version 12 on, the broker adds them to the transaction


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One that does not ask coordinators, as Kafka before 3.6: there transactions could hang."""
    with Broker(settings={"transaction.partition.verification.enable": "false"}) as running:
        yield running


def begin(
    broker: Broker, transactional_id: str, topic: str, partition: int = 0
) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=partition)
    assert producer.flush(60) == 0
    return producer


def leave_hanging(broker: Broker, transactional_id: str, topic: str, partition: int = 0) -> None:
    """A record of a transaction that its coordinator was never told of."""
    connection = ClientSettings({"bootstrap.servers": broker.bootstrap})
    known = TransactionalIds(connection).describe(transactional_id)
    batch = build(
        R(b"hangs"),
        attributes=TRANSACTIONAL,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        base_sequence=0,
    )
    written = produce.TopicProduceData(
        topic, partition_data=[produce.PartitionProduceData(partition, batch)]
    )
    request = produce.ProduceRequest(transactional_id, -1, 10_000, [written])
    host, port = broker.bootstrap.split(":")
    with Wire(connection, (host, int(port))) as wire:
        answer = wire._ask(produce, LAST_THAT_ADDS_NO_PARTITION, request)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_an_open_transaction_is_found_and_aborted(broker: Broker, headrace: CommandLine) -> None:
    headrace("topics", "create", "payments")
    producer = begin(broker, "pays", "payments")
    [listed] = headrace.json("transactions", "list", "--open")
    assert (listed["transactional_id"], listed["state"]) == ("pays", "Ongoing")
    assert headrace.json("transactions", "list", "--longer-than", "3600") == []
    said = headrace("transactions", "describe", "pays")
    assert "payments" in said and "and is open for " in said
    [described] = headrace.json("transactions", "describe", "pays", "pays")
    assert described["partitions"] == [["payments", 0]]

    assert not headrace.json("transactions", "abort", "pays")["aborted"]
    assert headrace.json("transactions", "list", "--open")
    headrace("transactions", "abort", "pays", "--execute")
    assert headrace.json("transactions", "list", "--open") == []
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(10)
    assert "no open transaction" in headrace.failure("transactions", "abort", "pays")
    assert "open for" not in headrace("transactions", "describe", "pays")


@pytest.mark.integration
def test_one_that_hangs_is_found_and_ended_where_it_hangs(
    broker: Broker, headrace: CommandLine
) -> None:
    headrace("topics", "create", "hangs", "--partitions", "2")
    headrace("produce", "hangs", "--partition", "1", stdin="before\n")
    producer = begin(broker, "hanging", "hangs")
    producer.commit_transaction(20)
    leave_hanging(broker, "hanging", "hangs", 1)
    headrace("produce", "hangs", "--partition", "1", stdin="after\n")

    [found] = headrace.json("transactions", "list", "--hanging")
    assert (found["topic"], found["partition"], found["start_offset"]) == ("hangs", 1, 1)
    assert headrace.json("transactions", "list", "--hanging", "--topic", "hangs") == [found]
    assert headrace("transactions", "list", "--hanging").splitlines()[1].split()[:3] == [
        "hangs",
        "1",
        "1",
    ]
    assert committed_values(broker, "hangs", 1) == [b"before"]

    where = ("transactions", "abort", "--topic", "hangs", "--partition", "1")
    assert headrace.json(*where)["transactions"] == [found]
    assert "No such transaction" in headrace.failure(*where, "--start-offset", "7")
    assert headrace.json("transactions", "list", "--hanging") == [found], "a dry run"
    headrace(*where, "--start-offset", "1", "--execute")
    assert "No such transaction" in headrace.failure(*where)
    assert headrace.json("transactions", "list", "--hanging") == []
    assert committed_values(broker, "hangs", 1) == [b"before", b"after"]


@pytest.mark.integration
def test_one_that_will_be_ended_is_not_torn(broker: Broker, headrace: CommandLine) -> None:
    headrace("topics", "create", "whole")
    producer = begin(broker, "alive", "whole")
    assert headrace.json("transactions", "list", "--hanging", "--topic", "whole") == []
    where = ("transactions", "abort", "--topic", "whole", "--partition", "0")
    for more in ([], ["--execute"], ["--start-offset", "0", "--execute"]):
        said = headrace.failure(*where, *more)
        assert said == (
            "The transaction at offset 0 of whole-0 does not hang: it is that of alive, and its "
            "coordinator will end it. Abort it whole with `headrace transactions abort alive`."
        )
    producer.commit_transaction(20)
    assert committed_values(broker, "whole", 0) == [b"x"]


def committed_values(broker: Broker, topic: str, partition: int) -> list[bytes]:
    """What readers of committed records see, up to where they are held back."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "sees",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "neither a record nor the end came"
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                return values
            values.append(message.value())
    finally:
        consumer.close()


def test_what_cannot_be_is_a_sentence(headrace: CommandLine) -> None:
    assert "No producer has used" in headrace.failure("transactions", "describe", "nobody")
    assert "No producer has used" in headrace.failure("transactions", "abort", "nobody")
    nowhere = ("--topic", "never-was", "--partition", "0")
    assert "no partition" in headrace.failure("transactions", "abort", *nowhere)
    said = headrace.failure("transactions", "list", "--hanging", "--topic", "never-was")
    assert said == "There is no topic never-was."


@pytest.mark.parametrize(
    "words",
    [
        ["abort"],
        ["abort", "--topic", "t"],
        ["abort", "--partition", "0"],
        ["abort", "pays", "--topic", "t", "--partition", "0"],
        ["abort", "pays", "--start-offset", "3"],
        ["list", "--hanging", "--open"],
        ["list", "--topic", "t"],
        ["list", "--longer-than", "-1"],
        ["describe"],
    ],
)
def test_wrong_use_is_told_as_such(headrace: CommandLine, words: list[str]) -> None:
    assert headrace.exit_code("transactions", *words) == 2
