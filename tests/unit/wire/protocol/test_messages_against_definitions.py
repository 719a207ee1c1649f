"""Every message in every version, against an interpreter of the definitions and hostile bytes."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

import pytest

from headrace.wire.protocol.errors import MalformedMessage
from tests.effort import IS_FULL
from tests.unit.wire.protocol.wire_interpreter import (
    Inventor,
    Shape,
    Writer,
    all_shapes,
    to_dictionary,
    to_message,
)

SHAPES = all_shapes()
# Of each version: a plain, a rich and a wide one (`Inventor`).
KINDS = 3


def for_each_message(check: Callable[[Shape], None]) -> Callable[[], None]:
    """A test of all messages; who fails is named in a note. A test of its own for each of them
    would cost several times what it checks."""

    def test() -> None:
        for shape in SHAPES:
            try:
                check(shape)
            except BaseException as failure:
                failure.add_note(f"the message is {shape.name}")
                raise

    return test


def seed_of(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


def encoded(shape: Shape, version: int, message: Any) -> bytes:
    pieces: list[Any] = []
    shape.codecs()[1][version](message, pieces.append)
    return b"".join(pieces)


def samples(shape: Shape, count: int) -> Iterator[tuple[int, dict[str, Any], bytes]]:
    for version in shape.versions:
        for number in range(count):
            yield version, *sample(shape, version, number)


@cache
def plain_sample(shape: Shape, version: int) -> tuple[dict[str, Any], bytes]:
    """Several tests begin with these."""
    value = Inventor(shape, version, seed_of(shape.name, version) * 3).message()
    return value, Writer(shape, version).message(value)


def sample(shape: Shape, version: int, number: int) -> tuple[dict[str, Any], bytes]:
    if number == 0:
        return plain_sample(shape, version)
    value = Inventor(shape, version, seed_of(shape.name, version) * 3 + number).message()
    return value, Writer(shape, version).message(value)


def test_all_definitions_have_a_module() -> None:
    assert len(SHAPES) == 272
    for shape in SHAPES:
        decode, encode = shape.codecs()
        assert list(decode) == list(encode) == list(shape.module().VERSIONS)
        assert shape.module().VERSIONS.stop <= shape.versions.stop


@for_each_message
def test_random_contents_encode_and_decode_as_the_definition_says(shape: Shape) -> None:
    decode, _ = shape.codecs()
    for version, value, wire in samples(
        shape, max(2 * KINDS, 24 // len(shape.versions)) if IS_FULL else KINDS
    ):
        if version not in decode:
            continue
        assert encoded(shape, version, to_message(shape, version, value)) == wire, version
        message, end = decode[version](memoryview(b"\x55" * 7 + wire), 7)
        assert end == len(wire) + 7
        assert to_dictionary(shape, version, message) == value, version


@for_each_message
def test_a_message_of_defaults_encodes_as_the_definition_says(shape: Shape) -> None:
    _, encode = shape.codecs()
    for version in encode:
        root = getattr(shape.module(), shape.name)()
        value = to_dictionary(shape, version, root)
        assert encoded(shape, version, root) == Writer(shape, version).message(value), version


@for_each_message
def test_tags_of_the_future_are_passed_over(shape: Shape) -> None:
    decode, _ = shape.codecs()
    for version in decode:
        if shape.flexible(version):
            value = Inventor(shape, version, seed_of(shape.name, version)).message()
            wire = Writer(shape, version, unknown_tags=True).message(value)
            message, end = decode[version](memoryview(wire), 0)
            assert end == len(wire)
            assert to_dictionary(shape, version, message) == value, version


@for_each_message
def test_a_message_cut_short_is_malformed(shape: Shape) -> None:
    decode, _ = shape.codecs()
    for version, _, wire in samples(shape, 1):
        if version not in decode or not wire:
            continue
        random = Random(seed_of(shape.name, version, "cut"))
        lengths = set(range(min(len(wire), 12))) | set(random.choices(range(len(wire)), k=10))
        for length in lengths:
            with pytest.raises(MalformedMessage):
                decode[version](memoryview(wire)[:length], 0)


def mutations(wire: bytes, random: Random) -> list[bytes]:
    """The same bytes with a few of them changed, lengths blown up, parts repeated or left out."""
    out = []
    for _ in range(12):
        changed = bytearray(wire)
        at = random.randrange(len(wire))
        match random.randrange(5):
            case 0:
                changed[at] = random.randrange(256)
            case 1:
                changed[at : at + 4] = b"\x7f\xff\xff\xff"
            case 2:
                changed[at : at + random.choice((1, 2, 5))] = b"\xff" * random.choice((1, 2, 5, 11))
            case 3:
                changed[at:at] = random.randbytes(random.randrange(1, 9))
            case 4:
                del changed[at : at + random.randrange(1, 9)]
        out.append(bytes(changed))
    return out


@for_each_message
def test_damaged_bytes_decode_or_are_malformed_and_nothing_else(shape: Shape) -> None:
    decode, _ = shape.codecs()
    for version, _, wire in samples(shape, 1):
        if version not in decode or not wire:
            continue
        random = Random(seed_of(shape.name, version, "damage"))
        for hostile in [*mutations(wire[:3000], random), random.randbytes(60), b"\xff" * 60]:
            try:
                _, end = decode[version](memoryview(hostile), 0)
            except MalformedMessage:
                continue
            assert end <= len(hostile)


@for_each_message
def test_memory_stays_in_proportion_to_the_bytes(shape: Shape) -> None:
    """A length is believed only as far as bytes follow it, so hostile ones cost no memory."""
    decode, _ = shape.codecs()
    version = list(decode)[-1]
    random = Random(seed_of(shape.name, "memory"))
    wire = Writer(shape, version).message(Inventor(shape, version, 1).message())[:2000] or b"\0"
    hostile = [b"\xff\xff\xff\xff\x07" * 12, b"\x7f" * 60, b"\0" * 2000, b"\1" * 2000]
    hostile += mutations(wire, random)
    largest = max(map(len, hostile))
    tracemalloc.start()
    for one in hostile:
        with suppress(MalformedMessage):
            decode[version](memoryview(one), 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The densest message is a list of structs that are a byte or two on the wire each.
    assert peak < 200 * largest + 100_000
