"""A transactional id is taken over in slices of time, as long as librdkafka says "again"."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.client.faults import Fault
from headrace.client.producer.transactions import take_over
from headrace.client.refusals import Refusals


class Scripted:
    """Answers `init_transactions` as librdkafka does while a coordinator loads."""

    def __init__(self, *errors: KafkaError) -> None:
        self.left = list(errors)

    def init_transactions(self, timeout_s: float) -> None:
        if self.left:
            raise KafkaException(self.left.pop(0))


def taken_over(*errors: KafkaError) -> Scripted:
    producer = Scripted(*errors)
    settings: dict[str, Any] = {"bootstrap.servers": "localhost:9092"}
    take_over(cast(Producer, producer), Refusals(settings), within_s=60)
    return producer


def test_what_is_only_put_off_is_asked_again_whatever_the_reason() -> None:
    told = (KafkaError.NOT_COORDINATOR, KafkaError._TIMED_OUT, KafkaError.CONCURRENT_TRANSACTIONS)
    errors = [KafkaError(code, "later", retriable=True) for code in told]
    assert taken_over(*errors).left == []


def test_what_is_refused_for_good_is_raised() -> None:
    with pytest.raises(Fault):
        taken_over(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no"))
