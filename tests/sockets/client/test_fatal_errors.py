"""A fatal error of librdkafka comes out of whatever call polls, in one of three shapes."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.client import Producer

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT"}
LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "clerk", "sasl.password": "secret"}


def fatal() -> KafkaException:
    code = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    return KafkaException(KafkaError(code, "not allowed", True, False, False))


def inside_a_callback() -> SystemError:
    said = SystemError("<method> returned a result with an exception set")
    said.__cause__ = fatal()
    return said


def cleared_by_a_callback() -> SystemError:
    return SystemError("<method 'flush' of 'cimpl.Producer' objects> " + CLEARED)


CLEARED = "returned NULL without setting an exception"


class Breaks:
    """librdkafka's producer, whose flush breaks off with these, one after the other."""

    def __init__(self, native: confluent_kafka.Producer, failures: list[Exception]) -> None:
        self.native, self.failures = native, failures

    def flush(self, timeout_s: float) -> int:
        if self.failures:
            raise self.failures.pop(0)
        return self.native.flush(timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def __len__(self) -> int:
        return len(self.native)


@pytest.mark.parametrize(
    "failures",
    [
        [fatal()],
        [inside_a_callback()],
        [cleared_by_a_callback()],
        [cleared_by_a_callback(), fatal()],
    ],
    ids=["raised", "in a callback", "cleared", "cleared and raised"],
)
def test_a_fatal_error_in_a_flush_is_noted_and_the_flush_goes_on(failures: list[Exception]) -> None:
    producer: Producer[Any, Any] = Producer(settings={**NOWHERE, **LOGIN})
    producer._producer = Breaks(producer._producer, list(failures))  # type: ignore[assignment]
    producer.flush(1)
    assert producer.failed_for_good
    said = str(producer.explain_delivery(KafkaError(KafkaError._FATAL), "orders"))
    assert "orders" in said and "\n" not in said
    producer.close(0)


def test_another_fault_of_a_callback_is_not_taken_for_a_fatal_error() -> None:
    producer: Producer[Any, Any] = Producer(settings={**NOWHERE, **LOGIN})
    native = producer._producer
    producer._producer = Breaks(native, [SystemError("something else")])  # type: ignore[assignment]
    with pytest.raises(SystemError, match="something else"):
        producer.flush(1)
    assert not producer.failed_for_good
    producer.close(0)
