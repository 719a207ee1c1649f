"""Varints, lengths and the tables of packers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.protocol import primitives
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.primitives import (
    RunWriter,
    TextReader,
    read_uvarint,
    read_zigzag,
    skip_tags,
    tag_count,
    uvarint,
    zigzag,
)
from tests.effort import examples


@pytest.mark.parametrize(
    ("number", "wire"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16_383, "ff7f"), (16_384, "808001")],
)
def test_unsigned_varints(number: int, wire: str) -> None:
    assert uvarint(number).hex() == wire
    assert read_uvarint(bytes.fromhex(wire), 0) == (number, len(wire) // 2)


@pytest.mark.parametrize(
    ("number", "wire"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (-65, "8101")]
)
def test_signed_varints(number: int, wire: str) -> None:
    assert zigzag(number).hex() == wire
    assert read_zigzag(bytes.fromhex(wire), 0) == (number, len(wire) // 2)


@settings(derandomize=True, max_examples=examples(200))
@given(st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(unsigned: int, signed: int) -> None:
    assert read_uvarint(uvarint(unsigned) + b"rest", 0)[0] == unsigned
    assert read_zigzag(zigzag(signed) + b"rest", 0)[0] == signed


def test_a_varint_without_end_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        read_uvarint(b"\xff" * 100, 0)
    with pytest.raises(MalformedMessage):
        read_zigzag(b"\xff" * 100, 0)


def test_tags_are_skipped_only_within_the_message() -> None:
    tags = b"\x05\x03abc" + b"\x90\x03\x00"
    assert skip_tags(memoryview(tags + b"next"), 0, 2) == len(tags)
    with pytest.raises(MalformedMessage):
        skip_tags(memoryview(b"\x05\x7fabc"), 0, 1)
    with pytest.raises(MalformedMessage):
        tag_count(memoryview(b"\x05\x00"), 0, 2)


def test_the_table_of_strings_checks_lengths() -> None:
    plain = TextReader("h", compact=False, nullable=False)
    assert plain[3](b"abc\x00\x07", 0) == (b"abc", 7)
    assert TextReader("h", compact=True, nullable=False)[4](b"abc\x00\x07", 0) == (b"abc", 7)
    assert TextReader("h", compact=True, nullable=True)[0](b"\x00\x07", 0) == (b"", 7)
    for table, length in (
        (plain, -1),
        (plain, 0x8000),
        (TextReader("", compact=True, nullable=False), 0),
        (TextReader("", compact=True, nullable=True), 0x8001),
    ):
        with pytest.raises(MalformedMessage):
            table[length]


def test_the_table_of_strings_stays_small() -> None:
    table = TextReader("", compact=False, nullable=True)
    for length in range(-2000, 2000):
        table[length]
    assert len(table) == primitives.CACHED_LENGTHS + 1


def test_a_string_too_long_for_the_protocol_is_not_sent() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        RunWriter("h", "s", "")[0x8000]
    assert RunWriter("B", "i", "x")[2](3, 1, 2).hex() == "03000000010000000200"
