"""`headrace transactions` on a real broker."""

from __future__ import annotations

import confluent_kafka
import pytest

from headrace.testing import Broker
from tests.unit.cli.conftest import CommandLine


def begin(broker: Broker, transactional_id: str, topic: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(20) == 0
    return producer


def test_an_open_transaction_is_found_and_aborted(broker: Broker, headrace: CommandLine) -> None:
    headrace("topics", "create", "payments")
    producer = begin(broker, "pays", "payments")
    [listed] = headrace.json("transactions", "list", "--open")
    assert (listed["transactional_id"], listed["state"]) == ("pays", "Ongoing")
    assert headrace.json("transactions", "list", "--longer-than", "3600") == []
    assert "payments" in headrace("transactions", "describe", "pays")
    [described] = headrace.json("transactions", "describe", "pays")
    assert described["partitions"] == [["payments", 0]]

    assert not headrace.json("transactions", "abort", "pays")["aborted"]
    assert headrace.json("transactions", "list", "--open")
    headrace("transactions", "abort", "pays", "--execute")
    assert headrace.json("transactions", "list", "--open") == []
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(10)
    assert "no open transaction" in headrace.failure("transactions", "abort", "pays")


def test_one_that_hangs_in_a_partition_is_ended_there(
    broker: Broker, headrace: CommandLine
) -> None:
    headrace("topics", "create", "hangs")
    headrace("produce", "hangs", stdin="before\n")
    producer = begin(broker, "hanging", "hangs")
    where = ("transactions", "abort", "--topic", "hangs", "--partition", "0")
    assert headrace.json(*where)["transactions"][0]["start_offset"] == 1
    assert "No such transaction" in headrace.failure(*where, "--start-offset", "7")
    headrace(*where, "--start-offset", "1", "--execute")
    assert "No such transaction" in headrace.failure(*where)
    del producer


def test_what_cannot_be_is_a_sentence(headrace: CommandLine) -> None:
    assert "Nobody has used" in headrace.failure("transactions", "describe", "nobody")
    assert "Name a transactional id" in headrace.failure("transactions", "abort")
    assert "no partition" in headrace.failure("transactions", "abort", "--topic", "never-was")
