"""Offsets are sent on a thread of their own, so that a call that hangs can be given up."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.client.errors import kafka_error
from headrace.client.transaction_offsets import send_offsets


class Scripted:
    """Stands in for librdkafka's producer; waits for `answers` before each call returns."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.error = error
        self.answers = threading.Event()
        self.given: tuple[Any, ...] = ()

    def send_offsets_to_transaction(self, *given: Any) -> None:
        self.given = given
        self.answers.wait(60)
        if self.error is not None:
            raise KafkaException(self.error)


def test_a_call_that_returns_has_sent_what_was_given() -> None:
    producer = Scripted()
    producer.answers.set()
    send_offsets(cast(Producer, producer), [], "member", 60)
    assert producer.given == ([], "member", 60)


def test_an_error_is_raised_as_it_is() -> None:
    producer = Scripted(KafkaError(KafkaError.ILLEGAL_GENERATION, "older", txn_requires_abort=True))
    producer.answers.set()
    with pytest.raises(KafkaException) as failed:
        send_offsets(cast(Producer, producer), [], "member", 60)
    assert kafka_error(failed.value) is producer.error


def test_a_call_that_hangs_makes_the_producer_useless() -> None:
    producer = Scripted()
    with pytest.raises(KafkaException) as failed:
        send_offsets(cast(Producer, producer), [], "member", 0, grace_s=0)
    error = kafka_error(failed.value)
    assert error.fatal() and not error.retriable() and not error.txn_requires_abort()
    producer.answers.set()  # its thread ends
