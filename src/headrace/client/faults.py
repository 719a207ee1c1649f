"""A `Fault` is an error of librdkafka, or of the broker behind it, with its flags.

Services act on faults: they call again, abort a transaction, give a client up. librdkafka's error
flags are read only here, so that no other package knows its classes. `ClientError.retriable` is for
people and programs that may try later; `Fault.may_call_again` is librdkafka's own flag: the same
call continues where it was. `codes` checks the names of error codes when a module is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headrace.client.errors import ClientError, explain, explain_delivery, is_retriable, kafka_error


def codes(*names: str) -> frozenset[str]:
    """Error codes by their names; AttributeError for a name that librdkafka does not have."""
    for name in names:
        getattr(KafkaError, name)
    return frozenset(names)


# A record that librdkafka dropped before it was sent, or before it was acknowledged.
PURGED = codes("_PURGE_QUEUE", "_PURGE_INFLIGHT")
PURGED_UNSENT = "_PURGE_QUEUE"
NOT_AUTHORIZED = "TOPIC_AUTHORIZATION_FAILED"
TOO_LARGE_RECORD = "MSG_SIZE_TOO_LARGE"
TOO_LARGE = codes(TOO_LARGE_RECORD, "RECORD_LIST_TOO_LARGE")

# The group has given the partitions to another member, or is about to decide that.
REBALANCING = codes("REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH")
NOT_OURS = REBALANCING | codes(
    "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "_ASSIGNMENT_LOST"
)


class Fault(ClientError):
    """A call failed, or a record was not written. The text is librdkafka's or the broker's."""

    code: str

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str() or error.name())
        self.code = error.name()
        self.retriable = is_retriable(error)
        self.may_call_again: bool = error.retriable()
        self.must_abort: bool = error.txn_requires_abort()
        # The client cannot be used any more. For a message between records only its code says so.
        self.is_fatal: bool = error.fatal() or error.code() == KafkaError._FATAL
        # The error is librdkafka's own, not a broker's.
        self.is_local: bool = error.code() < 0
        self._error = error

    @property
    def is_passing(self) -> bool:
        """Whether a reader may continue: librdkafka recovers by itself."""
        return self.may_call_again or self.code == "_TRANSPORT"

    @property
    def named(self) -> str:
        return f"{self.code}: {self}"

    def explained(self, bootstrap: str, *, topic: str | None = None) -> ClientError:
        """The error as a sentence that says what to do, of the class that programs catch."""
        return explain(self._error, bootstrap, topic=topic)

    def delivery_explained(self, bootstrap: str, topic: str) -> ClientError:
        """The reason why a record was not written, as a sentence."""
        return explain_delivery(self._error, bootstrap, topic)


def fault_of(error: Any) -> Fault:
    """The error that librdkafka passes to a callback."""
    assert isinstance(error, KafkaError)
    return Fault(error)


def not_authorized() -> Fault:
    """The fault for a missing right, as a broker would report it."""
    return Fault(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


class NotSendable(Fault):
    """A record that librdkafka cannot take, such as one with a number for a key."""

    def __init__(self, reason: str) -> None:
        super().__init__(KafkaError(KafkaError.INVALID_RECORD, reason))


@contextmanager
def faults() -> Iterator[None]:
    """Turns exceptions of librdkafka inside the block into a Fault. Costs 1 us: do not use it per
    record."""
    try:
        yield
    except KafkaException as failure:
        raise Fault(kafka_error(failure)) from failure
