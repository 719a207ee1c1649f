"""Text of ids, and the hashes by which keys and groups find their partition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as other_murmur2

from headrace.wire.protocol.java_hash import (
    murmur2,
    partition_for_group,
    partition_for_key,
    string_hash,
)
from headrace.wire.protocol.uuids import (
    LOST_DIRECTORY,
    METADATA_TOPIC_ID,
    ZERO_ID,
    from_text,
    is_reserved,
    random_id,
    to_text,
)
from tests.effort import examples


def test_ids_print_as_in_kafka() -> None:
    assert to_text(ZERO_ID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert from_text("4BOuQb6mTQaM4ZYNXxzqHA").hex() == "e013ae41bea64d068ce1960d5f1cea1c"


@settings(derandomize=True, max_examples=examples(100))
@given(st.binary(min_size=16, max_size=16))
def test_ids_round_trip_and_new_ones_never_begin_with_a_dash(sixteen: bytes) -> None:
    assert from_text(to_text(sixteen)) == sixteen
    made = random_id(sixteen)
    assert not to_text(made).startswith("-")
    assert not is_reserved(made)
    assert made[6] >> 4 == 4  # a version 4 UUID


def test_a_dash_and_reserved_ids_are_avoided() -> None:
    assert to_text(bytes([0xF8]) + bytes(15)).startswith("-")
    assert not to_text(random_id(bytes([0xF8]) + bytes(15))).startswith("-")
    assert is_reserved(LOST_DIRECTORY) and not is_reserved(random_id(ZERO_ID))
    with pytest.raises(ValueError, match="16 random bytes"):
        random_id(b"short")


@pytest.mark.parametrize("text", ["", "A", "AAAA", "A" * 44, "é" * 22, "A" * 21, "A" * 20 + "!!"])
def test_what_is_no_id_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        from_text(text)


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@settings(derandomize=True, max_examples=examples(200))
@given(st.binary(max_size=40))
def test_murmur2_agrees_with_kafka_python(key: bytes) -> None:
    assert murmur2(key) == other_murmur2(key) & 0xFFFFFFFF
    assert 0 <= partition_for_key(key, 7) < 7


def test_string_hash_is_that_of_java() -> None:
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    assert string_hash("polygenelubricants") == -(2**31)
    assert string_hash("😀") == 1772899


def test_groups_lie_where_apache_kafka_looks_for_them() -> None:
    """Of 50 partitions, as seen in the folders that Apache Kafka 4.3.1 left: the hash of the first
    two is negative, and that of the last is the number without an absolute value."""
    for group, partition in (("simple", 26), ("static", 38), ("classic", 32), ("left", 17)):
        assert partition_for_group(group, 50) == partition
    assert partition_for_group("polygenelubricants", 50) == 0
    assert partition_for_group("hello", 50) == 22
