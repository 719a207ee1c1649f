"""What one read of an intake brought: records by partition, ends, and faults."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from headrace.client.faults import Fault, NotSendable, codes
from headrace.client.intake import Arrived
from headrace.client.once.outcome import insist
from headrace.client.records import TopicPartition


class Message:
    def __init__(
        self, topic: str | None, partition: int, offset: int, error: KafkaError | None = None
    ) -> None:
        self._fields = topic, partition, offset, error

    def topic(self) -> str | None:
        return self._fields[0]

    def partition(self) -> int:
        return self._fields[1]

    def offset(self) -> int:
        return self._fields[2]

    def error(self) -> KafkaError | None:
        return self._fields[3]


END = KafkaError(KafkaError._PARTITION_EOF)
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


def arrived(*messages: Any) -> Arrived:
    found = Arrived()
    found.add(messages)
    return found


def test_records_come_in_stretches_of_one_partition() -> None:
    found = arrived(
        Message("tea", 0, 5), Message("tea", 0, 6), Message("tea", 1, 9),
        Message("rum", 1, 2), Message("tea", 0, 7),
    )  # fmt: skip
    assert [(str(place), [r.offset() for r in records]) for place, records in found.stretches] == [
        ("tea-0", [5, 6]),
        ("tea-1", [9]),
        ("rum-1", [2]),
        ("tea-0", [7]),
    ]


def test_an_end_between_records_does_not_part_them() -> None:
    found = arrived(Message("tea", 0, 5), Message("tea", 0, 6, END), Message("tea", 0, 6))
    ((place, records),) = found.stretches
    assert (place, [record.offset() for record in records]) == (("tea", 0), [5, 6])
    assert found.ends == {TopicPartition("tea", 0): 6}
    assert found.faults == []


def test_what_is_not_an_end_is_a_fault_with_or_without_a_place() -> None:
    lost = KafkaError(KafkaError._TRANSPORT)
    found = arrived(Message(None, -1, -1, DOWN), Message("tea", 2, -1, lost))
    assert [(place, fault.code) for place, fault in found.faults] == [
        (None, "_ALL_BROKERS_DOWN"),
        (("tea", 2), "_TRANSPORT"),
    ]
    assert [fault.is_passing for _, fault in found.faults] == [False, True]
    assert found and not arrived()


def test_a_member_that_is_fenced_is_so_by_the_code_alone() -> None:
    assert Fault(KafkaError(KafkaError._FATAL)).is_fatal
    assert not Fault(DOWN).is_fatal


def test_a_brokers_refusal_is_not_local_and_explains_itself() -> None:
    fault = NotSendable("no key")
    assert (fault.code, fault.is_local, str(fault)) == ("INVALID_RECORD", False, "no key")
    assert fault.named == "INVALID_RECORD: no key"
    assert "give each record a key" in str(fault.delivery_explained("here:1", "tea"))
    assert Fault(DOWN).is_local and Fault(DOWN).retriable


def test_a_code_that_librdkafka_does_not_have_is_found_at_once() -> None:
    assert codes("INVALID_MSG") == {"INVALID_MSG"}
    with pytest.raises(AttributeError):
        codes("INVALID_MESSAGE")


def test_a_code_has_one_name() -> None:
    for name in ("MSG_SIZE_TOO_LARGE", "_PARTITION_EOF", "UNKNOWN_TOPIC_OR_PART", "_PURGE_QUEUE"):
        assert KafkaError(getattr(KafkaError, name)).name() == name


@pytest.mark.parametrize(("again", "calls"), [(True, 3), (False, 1)])
def test_insisting_ends_with_a_fault_that_must_not_be_called_again(again: bool, calls: int) -> None:
    made = []

    def call() -> None:
        made.append(None)
        raise Fault(KafkaError(KafkaError._TIMED_OUT, retriable=again and len(made) < 3))

    with pytest.raises(Fault):
        insist(call, 60.0)
    assert len(made) == calls
