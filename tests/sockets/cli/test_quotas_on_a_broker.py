"""`headrace quotas` on a real broker, and what a real client feels of it."""

from __future__ import annotations

import threading

import confluent_kafka

from headrace.testing import Broker
from tests.sockets.cli.conftest import CommandLine


def test_limits_are_set_listed_and_removed(headrace: CommandLine) -> None:
    assert headrace.json("quotas", "list") == []
    headrace(
        "quotas", "set", "--user", "ann", "producer_byte_rate=1048576", "request_percentage=25"
    )
    headrace("quotas", "set", "--user", "ann", "--default", "client-id", "consumer_byte_rate=2048")
    headrace("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    listed = headrace.json("quotas", "list")
    assert {str(quota["entity"]): quota["limits"] for quota in listed} == {
        "{'user': 'ann'}": {"producer_byte_rate": 1048576.0, "request_percentage": 25.0},
        "{'client-id': None, 'user': 'ann'}": {"consumer_byte_rate": 2048.0},
        "{'ip': '10.0.0.1'}": {"connection_creation_rate": 5.0},
    }
    shown = headrace("quotas", "list")
    assert "user ann" in shown and "client-id (default)" in shown
    headrace("quotas", "remove", "--user", "ann", "producer_byte_rate", "request_percentage")
    headrace("quotas", "remove", "--ip", "10.0.0.1", "connection_creation_rate")
    [left] = headrace.json("quotas", "list")
    assert left["limits"] == {"consumer_byte_rate": 2048.0}
    headrace("quotas", "remove", "--user", "ann", "--default", "client-id", "consumer_byte_rate")
    assert headrace.json("quotas", "list") == []


def test_what_cannot_be_is_a_sentence(headrace: CommandLine) -> None:
    assert "Name whom" in headrace.failure("quotas", "set", "producer_byte_rate=1")
    assert "is a number" in headrace.failure("quotas", "set", "--user", "a", "producer_byte_rate=x")
    assert "greater than 0" in headrace.failure(
        "quotas", "set", "--user", "a", "producer_byte_rate=-1"
    )
    assert "Invalid configuration key" in headrace.failure("quotas", "set", "--user", "a", "x=1")
    assert "There is no limit" in headrace.failure("quotas", "remove", "--user", "a", "speed")
    assert "--default takes" in headrace.failure("quotas", "set", "--default", "x", "y=1")
    both = headrace.failure("quotas", "set", "--user", "a", "--default", "user", "y=1")
    assert "not both" in both


def test_a_producer_above_its_limit_is_told_so(broker: Broker, headrace: CommandLine) -> None:
    headrace("topics", "create", "limited")
    headrace("quotas", "set", "--client-id", "greedy", "producer_byte_rate=1000")
    told = threading.Event()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "greedy",
            "throttle_cb": lambda event: told.set(),
            "enable.idempotence": False,
            "compression.type": "none",
        }
    )
    producer.produce("limited", b"x" * 12_000)
    assert producer.flush(60) == 0
    while not told.is_set():
        producer.poll(0.05)
    headrace("quotas", "remove", "--client-id", "greedy", "producer_byte_rate")
