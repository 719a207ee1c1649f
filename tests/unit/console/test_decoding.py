"""Avro and JSON paths: what they read, and hostile bytes, schemas and paths that harm nobody."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.decoding.avro import AvroRefused, Schema, shown
from headrace.console.decoding.json_path import PathRefused, find, parse

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "items", "type": {"type": "array", "items": {
            "type": "record", "name": "Item", "fields": [
                {"name": "sku", "type": "string"}, {"name": "price", "type": "double"}]}}},
        {"name": "first", "type": ["null", "Item"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": "boolean"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "scale": 2}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    ],
}  # fmt: skip


def long(number: int) -> bytes:
    """Zigzag and seven bits a byte, as Avro's specification says."""
    left, out = (number << 1) ^ (number >> 63), b""
    while left > 0x7F:
        out += bytes([left & 0x7F | 0x80])
        left >>= 7
    return out + bytes([left])


def text(said: str) -> bytes:
    return long(len(said.encode())) + said.encode()


WRITTEN = (
    long(-7) + long(1) + text("ann ✓")
    + long(-2) + long(22) + text("A") + struct.pack("<d", 1.5) + text("B") + struct.pack("<d", 2)
    + long(0) + long(0) + long(1)
    + long(1) + text("gift") + b"\x01" + long(0)
    + long(20_000) + long(1_769_900_000_000) + long(2) + (1234).to_bytes(2) + b"\xab\xcd"
)  # fmt: skip
READ = {
    "id": -7, "who": "ann ✓", "items": [{"sku": "A", "price": 1.5}, {"sku": "B", "price": 2.0}],
    "first": None, "state": "PAID", "tags": {"gift": True}, "day": "2024-10-04",
    "at": "2026-01-31T22:53:20+00:00", "sum": "12.34", "hash": b"\xab\xcd",
}  # fmt: skip


def test_a_value_is_read_with_its_schema_also_behind_a_registrys_prefix() -> None:
    schema = Schema(json.dumps(ORDER))
    assert schema.decode(WRITTEN) == READ
    assert schema.decode(b"\0\0\0\0\x07" + WRITTEN) == READ
    assert schema.decode(b"\xc3\x01" + bytes(8) + WRITTEN) == READ
    assert '"hash": "ab cd"' in shown(READ)


@pytest.mark.parametrize(
    "raw", [b"", WRITTEN[:-1], WRITTEN + b"x", b"\xff" * 30, b"\0" * 5, long(1) + long(9)]
)
def test_bytes_of_something_else_are_refused(raw: bytes) -> None:
    with pytest.raises(AvroRefused):
        Schema(json.dumps(ORDER)).decode(raw)


@pytest.mark.parametrize(
    "said",
    ["", "{", "7", "null", '{"type": "record"}', '{"type": "record", "fields": [7]}', "[" * 50_000,
     "[" * 60 + "]" * 60, '"x"' * 40_000],
)  # fmt: skip
def test_a_schema_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(AvroRefused):
        Schema(said)


def test_neither_a_loop_nor_a_bomb_hangs() -> None:
    loop = Schema('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}')
    nulls = Schema('{"type": "array", "items": "null"}')
    for schema, raw in ((loop, b"\0\0"), (nulls, long(2**40)), (nulls, long(10_000) * 9)):
        with pytest.raises(AvroRefused):
            schema.decode(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with suppress(AvroRefused):
        json.loads(shown(Schema(json.dumps(ORDER)).decode(raw)))


DOCUMENT: Any = {"items": [{"sku": "A"}, {"sku": "B", "n": 3}], "odd name": {"a.b": 1}, "x": None}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("items[0].sku", ["A"]),
        ("$.items[*].sku", ["A", "B"]),
        ("items.*.n", [3]),
        ("['odd name'][\"a.b\"]", [1]),
        ("x", [None]),
        ("items[7].sku", []),
        ("items.sku", []),
        ("x.y.z", []),
    ],
)
def test_a_path_leads_to_the_parts_it_names(path: str, found: list[Any]) -> None:
    assert find(DOCUMENT, parse(path)) == found


@pytest.mark.parametrize(
    "path", ["", "$", "a b", "a[", "a[-1]", "a..b", "a[?(@.x)]", "__import__('os')", "a" * 999]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(PathRefused):
        parse(path)
