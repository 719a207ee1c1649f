"""Every request, response and header against kio, a typed implementation that nobody here wrote.

kio reads our bytes; what it found is compared field by field with what was sent, and what it writes
again is compared byte for byte. It has durations and moments where the protocol has milliseconds,
so contents keep to what those can hold.
"""

from __future__ import annotations

import datetime
import io
import zlib
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from kio.index import UnknownEntity, load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.effort import IS_FULL
from tests.unit.wire.protocol.wire_interpreter import (
    Inventor,
    Shape,
    all_shapes,
    is_present,
    to_message,
)

SHAPES = [
    shape for shape in all_shapes() if shape.kind in ("request", "response", "header", "data")
]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def kio_name(shape: Shape) -> str:
    name = shape.name
    if shape.kind in ("request", "response"):
        name = name.removesuffix("Request").removesuffix("Response")
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


def kio_class(shape: Shape, version: int) -> Any:
    """kio's class, or None where it has none of that version."""
    try:
        kind: Any = EntityType[shape.kind]
        return load_entity_schema(kio_name(shape), version, kind)
    except UnknownEntity:
        return None


def as_sent(value: Any) -> Any:
    """A value of kio's in the terms of the definition."""
    if isinstance(value, Enum):
        return int(value.value)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    return value


def assert_same(shape: Shape, version: int, facts: list[Any], sent: Any, found: Any) -> None:
    present = [fact for fact in facts if is_present(fact, version)]
    found_fields = fields(found)
    assert len(present) == len(found_fields)
    for fact, field in zip(present, found_fields, strict=True):
        plain = field.name.replace("_", "")
        assert fact["name"].lower() in (plain, plain + "ms"), (shape.name, version, field.name)
        ours, theirs = sent[fact["name"]], getattr(found, field.name)
        if is_dataclass(theirs):
            assert_same(shape, version, shape.fields_of(fact), ours, theirs)
        elif isinstance(theirs, tuple):
            assert len(ours) == len(theirs)
            for one, other in zip(ours, theirs, strict=True):
                if is_dataclass(other):
                    assert_same(shape, version, shape.fields_of(fact), one, other)
                else:
                    assert one == as_sent(other) or (other is None and one == bytes(16))
        elif theirs is None and fact["type"] == "uuid":
            assert ours == bytes(16)
        elif theirs is None and fact["type"] == "int64":
            assert ours == -1  # a moment that is not given
        else:
            assert ours == as_sent(theirs), (shape.name, version, field.name)


def test_kio_reads_what_we_write_and_writes_what_we_read() -> None:
    for shape in SHAPES:
        try:
            assert_kio_agrees(shape)
        except BaseException as failure:
            failure.add_note(f"the message is {shape.name}")
            raise


def assert_kio_agrees(shape: Shape) -> None:
    decode, encode = shape.codecs()
    for version in decode:
        entity = kio_class(shape, version)
        if entity is None:
            continue
        read, write = entity_reader(entity), entity_writer(entity)
        # A plain, a rich and a wide one; with every change each version takes one of them.
        for number in range(3) if IS_FULL else (version % 3,):
            seed = zlib.crc32(f"{shape.name} {version}".encode()) * 3 + number
            sent = Inventor(shape, version, seed, tame=True).message()
            pieces: list[Any] = []
            encode[version](to_message(shape, version, sent), pieces.append)
            wire = b"".join(pieces)
            found, size = read(wire, 0)
            assert size == len(wire)
            assert_same(shape, version, shape.facts["fields"], sent, found)
            out = io.BytesIO()
            write(out, found)
            assert out.getvalue() == wire, version
            again, _ = decode[version](memoryview(wire), 0)
            pieces = []
            encode[version](again, pieces.append)
            assert b"".join(pieces) == wire, version


def test_kio_covers_nearly_everything() -> None:
    """Says what the comparison rests on, and fails when a new version of kio covers less."""
    versions = [(shape, version) for shape in SHAPES for version in shape.codecs()[0]]
    missing = [
        f"{shape.name} {version}" for shape, version in versions if not kio_class(shape, version)
    ]
    assert len(versions) > 600
    assert len(missing) < 10, missing
