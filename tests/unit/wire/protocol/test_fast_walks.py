"""The quick walks accept exactly what the plain one accepts, and find in it what that finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.primitives import zigzag
from headrace.wire.protocol.record_batch import (
    HEADER,
    HEADER_SIZE,
    MAGIC,
    SMALLEST_LENGTH,
    every_record_has_key,
    fields_in,
    keys_and_values,
    walk,
)
from headrace.wire.protocol.record_batch.keys import (
    LONGEST_KEY,
    digest,
    keys_of_batch,
    offset_deltas,
    values_of_batch,
)
from headrace.wire.protocol.record_batch.retained import records_at
from tests.effort import examples

LIMIT = 1 << 24


def batch_of(body: bytes, count: int) -> bytes:
    """The checksum is not what is looked at here."""
    fields = (0, len(body) + SMALLEST_LENGTH, 0, MAGIC, 0, 0, max(count - 1, 0), 1_000, 2_000)
    return HEADER.pack(*fields, -1, -1, -1, count) + body


def padded(number: int, size: int) -> bytes:
    """A varint of more bytes than it needs, if it has to be."""
    plain = bytearray(zigzag(number))
    while len(plain) < size:
        plain[-1] |= 0x80
        plain.append(0)
    return bytes(plain)


def optional(data: bytes | None, size: int, null: int) -> bytes:
    return padded(null, size) if data is None else padded(len(data), size) + data


few = st.sampled_from([1, 1, 1, 1, 2, 3, 5, 6, 10, 11])  # bytes of a varint; five are too many
texts = st.one_of(st.none(), st.binary(max_size=3), st.sampled_from([b"k" * 64, b"k" * 70]))


@st.composite
def records(draw: Callable[..., Any]) -> list[bytes]:
    """Some alike, as producers write them, and among them some that are not."""
    found: list[bytes] = []
    for _ in range(draw(st.integers(0, 3))):
        key, value = draw(texts), draw(texts)
        headers = draw(st.lists(st.tuples(st.binary(max_size=2), texts), max_size=2))
        sizes = [draw(few) if draw(st.integers(0, 9)) == 9 else 1 for _ in range(6)]
        null, step = draw(st.sampled_from([-1, -1, -1, -2, -9])), draw(st.sampled_from([0, 1, 70]))
        for _ in range(draw(st.sampled_from([1, 2, 9, 30, 130]))):
            number = len(found)
            body = b"\0" + padded(number * step, sizes[0]) + padded(number, sizes[1])
            body += optional(key, sizes[2], null) + optional(value, sizes[3], null)
            body += padded(len(headers), sizes[4])
            for name, content in headers:
                body += optional(name, 1, -1) + optional(content, 1, null)
            found.append(padded(len(body), sizes[5]) + body)
    return found


@st.composite
def bodies(draw: Callable[..., Any]) -> tuple[bytes, bytes, int]:
    """Records as they should be, the same with some damage, and how many there are said to be."""
    made = draw(records())
    whole = b"".join(made)
    damaged = bytearray(whole)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, max(len(damaged) - 1, 0)))
        match draw(st.sampled_from(["byte", "bit", "cut", "more", "end"])):
            case "byte" if damaged:
                damaged[at] = draw(st.sampled_from([0, 1, 2, 3, 127, 128, 255]))
            case "bit" if damaged:
                damaged[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del damaged[at : at + draw(st.integers(1, 3))]
            case "more":
                damaged[at:at] = draw(st.binary(min_size=1, max_size=3))
            case "end":
                damaged += draw(st.binary(min_size=1, max_size=3))
    return whole, bytes(damaged), len(made) + draw(st.sampled_from([0, 0, 0, 0, -1, 1, -400]))


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except MalformedMessage:
        return MalformedMessage


ONE = b"\x10\0\0\0\x02k\x02v\0"
LACKS_A_HEADER = ONE[:-1] + b"\x02"
# The first two of the three bytes of its value's length would fit a value up to the record's end.
LIES_IN_TWO_BYTES = zigzag(8202) + b"\0\0\0\x02k" + b"\x84\x80\0vv" + bytes(8192)


@given(bodies())
@example((ONE, ONE + b"\0", 1))
@example((ONE * 9, ONE * 9 + b"\0", 9))
@example((b"", b"", -1))
@example((ONE, LACKS_A_HEADER, 1))
@example((ONE, LIES_IN_TWO_BYTES, 1))
@example((ONE * 9, ONE * 8 + b"\x11\0\0\0\x02k\x02v\0", 9))
@settings(max_examples=examples(600), deadline=None)
def test_the_quick_walks_accept_what_the_plain_one_accepts(made: tuple[bytes, bytes, int]) -> None:
    whole, damaged, count = made
    outcome(lambda: keys_of_batch(whole, 0, len(whole), count))  # its runs are tried first
    batch = batch_of(damaged, count)
    plain = outcome(lambda: list(walk(batch, LIMIT)))
    behind = batch + ONE  # another one lies behind it in a file
    ((_, fields), *_) = fields_in(batch)
    pairs = outcome(lambda: keys_and_values(behind, 0, fields, LIMIT))
    names = outcome(lambda: keys_of_batch(behind, HEADER_SIZE, len(batch), count))
    have_keys = outcome(lambda: every_record_has_key(batch, LIMIT))
    if plain is MalformedMessage:
        assert pairs is MalformedMessage
        assert names is MalformedMessage
        assert have_keys is MalformedMessage
        return
    assert pairs == [(record.key, record.value) for record in plain]
    assert names == (
        [
            digest(record.key) if len(record.key or b"") > LONGEST_KEY else record.key
            for record in plain
        ],
        any(record.key is not None and record.value is None for record in plain),
    )
    assert have_keys == all(record.key is not None for record in plain)
    assert list(values_of_batch(batch, HEADER_SIZE, count)) == [r.value is not None for r in plain]
    deltas = [record.offset for record in plain]
    if all(0 <= delta < 1 << 40 for delta in deltas):
        assert offset_deltas(batch, HEADER_SIZE, count, 1 << 40) == deltas
    stretches = records_at(behind, HEADER_SIZE, len(batch), b"\1" * count)
    assert b"".join(behind[start:stop] for start, stop in stretches) == damaged


def test_a_byte_behind_the_last_record_is_refused_by_all() -> None:
    batch = batch_of(ONE + b"\0", 1)
    for read in (
        lambda: list(walk(batch, LIMIT)),
        lambda: every_record_has_key(batch, LIMIT),
        lambda: keys_of_batch(batch, HEADER_SIZE, len(batch), 1),
    ):
        with pytest.raises(MalformedMessage):
            read()
