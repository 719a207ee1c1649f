"""Metadata records against bytes that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.node.metadata import records
from headrace.node.metadata.records import UnknownRecord, decode, encode, version_to_write
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.partition_record import PartitionRecord
from headrace.wire.protocol.messages.register_broker_record import RegisterBrokerRecord
from headrace.wire.protocol.messages.topic_record import TopicRecord

# The first record of a bootstrap.checkpoint that Apache's format command wrote.
APACHE_FEATURE_LEVEL = bytes.fromhex("010c00116d657461646174612e76657273696f6e001e00")


def test_a_record_reads_and_writes_as_apache_wrote_it() -> None:
    record = decode(APACHE_FEATURE_LEVEL)
    assert record == FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert encode(record, metadata_version=30) == APACHE_FEATURE_LEVEL


def test_all_26_record_types_of_apache_kafka_are_known_and_come_back_equal() -> None:
    assert len({module.API_KEY for module in records.MODULES}) == 26
    for module in records.MODULES:
        blank = getattr(module, module.NAME)()
        assert decode(encode(blank, metadata_version=30)) == blank


def test_the_version_follows_the_finalized_metadata_version() -> None:
    broker, partition = RegisterBrokerRecord(), PartitionRecord()
    assert [version_to_write(broker, level) for level in (7, 8, 16, 17, 29, 30)] == [
        1, 2, 2, 3, 3, 4,
    ]  # fmt: skip
    assert [version_to_write(partition, level) for level in (7, 17, 22, 23, 30)] == [0, 1, 1, 2, 2]


def test_a_registration_change_takes_the_lowest_version_that_can_say_it() -> None:
    def version(**fields: object) -> int:
        record = BrokerRegistrationChangeRecord()
        for name, value in fields.items():
            setattr(record, name, value)
        return version_to_write(record, metadata_version=30)

    assert version(fenced=-1) == 0
    assert version(in_controlled_shutdown=1) == 1
    assert version(log_dirs=[bytes(16)]) == 2
    assert version(cordoned_log_dirs=[]) == 3


def test_a_type_of_a_later_release_is_kept_as_it_was() -> None:
    later = bytes((1, 99, 0)) + b"something new"
    record = decode(later)
    assert record == UnknownRecord(99, later)
    assert encode(record, metadata_version=30) == later


@pytest.mark.parametrize(
    "broken",
    [b"", b"\x01", b"\x02\x0c\x00\x00", b"\x01\x0c", b"\x01\x0c\x63\x00", b"\x01\xff\xff",
     APACHE_FEATURE_LEVEL[:-3], APACHE_FEATURE_LEVEL + b"\x00"],
)  # fmt: skip
def test_bytes_that_are_no_record_raise_one_kind_of_error(broken: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(broken)


@given(st.binary(max_size=80))
def test_random_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        decode(b"\x01" + body)


@given(st.text(max_size=50), st.binary(min_size=16, max_size=16))
def test_a_topic_comes_back_whatever_its_name(name: str, topic_id: bytes) -> None:
    record = TopicRecord(name=name, topic_id=topic_id)
    assert decode(encode(record, metadata_version=30)) == record
