"""Values in Avro's binary form, read with a schema that a person gives. Pure.

All types and the usual logical ones; a value may begin as Confluent's registry writes it (a zero
byte and the id of a schema) or as Avro's single-object encoding does. No schema is looked up, and
the schema is taken to be the writer's: evolution is not done. Bounded: hostile bytes and schemas
end in `AvroRefused`, never in much memory, much time or deep recursion.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

LONGEST_SCHEMA = 60_000
DEEPEST = 40
MOST_ITEMS = 20_000
# The time to write bytes as decimal digits grows with their square: a megabyte takes minutes.
LONGEST_DECIMAL_BYTES = 128
REGISTRY_PREFIX, SINGLE_OBJECT_PREFIX = 5, 10
PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class AvroRefused(ValueError):
    """One sentence: the schema is invalid, or the bytes do not match it."""


class Schema:
    """A schema, read once; `decode` may then be called for many values."""

    def __init__(self, said: str) -> None:
        if len(said) > LONGEST_SCHEMA:
            raise AvroRefused(f"A schema has at most {LONGEST_SCHEMA:,} characters here.")
        try:
            self._schema = json.loads(said)
        except (ValueError, RecursionError):
            raise AvroRefused("The schema is not JSON.") from None
        self._named: dict[str, Any] = {}
        self._name(self._schema, "", 0)

    def _name(self, schema: Any, space: str, depth: int) -> None:
        """Remembers named types; refuses what is not a schema."""
        if depth > DEEPEST:
            raise AvroRefused("The schema is nested too deeply.")
        if isinstance(schema, list):
            for each in schema:
                self._name(each, space, depth + 1)
        elif isinstance(schema, dict):
            kind = schema.get("type")
            if isinstance(schema.get("name"), str) and kind in ("record", "error", "enum", "fixed"):
                space = str(schema.get("namespace") or space)
                name = schema["name"]
                self._named[name] = schema
                self._named[name.rpartition(".")[2]] = schema
                self._named[f"{space}.{name}" if space and "." not in name else name] = schema
            if kind in ("record", "error"):
                fields = schema.get("fields")
                if not isinstance(fields, list) or not all(
                    isinstance(each, dict) and isinstance(each.get("name"), str) for each in fields
                ):
                    raise AvroRefused("A record of the schema has no list of fields with names.")
                for each in fields:
                    self._name(each.get("type"), space, depth + 1)
            elif kind == "array":
                self._name(schema.get("items"), space, depth + 1)
            elif kind == "map":
                self._name(schema.get("values"), space, depth + 1)
            elif kind == "enum":
                _require_symbols(schema.get("symbols"))
            elif kind != "fixed":
                self._name(kind, space, depth + 1)
        elif not isinstance(schema, str):
            raise AvroRefused(f"{schema!r} is not a type of Avro.")

    def decode(self, raw: bytes) -> Any:
        """Decodes bytes to what JSON would hold. Bytes that begin like a prefix are tried without
        it first, then as they are."""
        starts = [0]
        if raw[:1] == b"\0" and len(raw) > REGISTRY_PREFIX:
            starts.insert(0, REGISTRY_PREFIX)
        elif raw[:2] == b"\xc3\x01":
            starts.insert(0, SINGLE_OBJECT_PREFIX)
        refusal = AvroRefused("The bytes are not of this schema.")
        for start in starts:
            reading = _Reading(raw, start, self._named)
            try:
                found = reading.value(self._schema, 0)
                if reading.at == len(raw):
                    return found
                refusal = AvroRefused(
                    f"The bytes are not of this schema: {len(raw) - reading.at} are left over."
                )
            except AvroRefused as failure:
                refusal = failure
        raise refusal


class _Reading:
    def __init__(self, raw: bytes, at: int, named: dict[str, Any]) -> None:
        self.raw, self.at, self._named = raw, at, named
        self._left = MOST_ITEMS

    def value(self, schema: Any, depth: int) -> Any:
        self._left -= 1
        if depth > DEEPEST or self._left < 0:
            raise AvroRefused("The value is nested too deeply, or has too many parts.")
        if isinstance(schema, list):
            return self.value(schema[self._index(len(schema), "branch")], depth + 1)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return self._primitive(schema)
            if schema not in self._named:
                raise AvroRefused(f"The schema does not say what {schema!r} is.")
            return self.value(self._named[schema], depth + 1)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.value(kind, depth + 1)
        if kind in ("record", "error"):
            return {one["name"]: self.value(one.get("type"), depth + 1) for one in schema["fields"]}
        if kind == "enum":
            symbols = schema["symbols"]
            return symbols[self._index(len(symbols), "symbol")]
        if kind == "array":
            return self._blocks(lambda: self.value(schema.get("items"), depth + 1))
        if kind == "map":
            return dict(
                self._blocks(
                    lambda: (self._primitive("string"), self.value(schema.get("values"), depth + 1))
                )
            )
        if kind == "fixed":
            return _logical(schema, self._take(_size(schema)))
        return _logical(schema, self.value(kind, depth + 1))

    def _primitive(self, kind: str) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            return self._take(1) != b"\0"
        if kind in ("int", "long"):
            return self._long()
        if kind == "float":
            return struct.unpack("<f", self._take(4))[0]
        if kind == "double":
            return struct.unpack("<d", self._take(8))[0]
        raw = self._take(self._long())
        return raw if kind == "bytes" else raw.decode(errors="replace")

    def _blocks(self, one: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while (count := self._long()) != 0:
            if count < 0:
                count = -count
                self._long()  # the size of the block in bytes
            if count > self._left:
                raise AvroRefused("The value has too many parts.")
            found += [one() for _ in range(count)]
        return found

    def _index(self, count: int, what: str) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise AvroRefused(f"The bytes are not of this schema: there is no {what} {index}.")
        return index

    def _long(self) -> int:
        number, shift = 0, 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise AvroRefused("The bytes are not of this schema: a number is too long.")

    def _take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.raw):
            raise AvroRefused("The bytes are not of this schema: they end too early.")
        self.at += count
        return self.raw[self.at - count : self.at]


def _require_symbols(said: Any) -> None:
    if not isinstance(said, list) or not all(isinstance(each, str) for each in said):
        raise AvroRefused("An enum of the schema has no list of symbols.")


def _size(schema: dict[str, Any]) -> int:
    size = schema.get("size")
    if not isinstance(size, int) or size < 0:
        raise AvroRefused("A fixed type of the schema has no size.")
    return size


def _logical(schema: dict[str, Any], value: Any) -> Any:
    """The logical type of a number or bytes; invalid values are left unchanged."""
    kind = schema.get("logicalType")
    try:
        if kind == "date" and isinstance(value, int):
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        if isinstance(value, int) and kind in ("timestamp-millis", "timestamp-micros"):
            ms = value if kind.endswith("millis") else value / 1000
            return datetime.fromtimestamp(ms / 1000, UTC).isoformat()
        if kind == "decimal" and isinstance(value, bytes) and len(value) <= LONGEST_DECIMAL_BYTES:
            scale = int(schema.get("scale") or 0)
            number = Decimal(int.from_bytes(value, signed=True))
            return str(number.scaleb(-scale, Context(prec=len(value) * 3 + 10)))
    except (ValueError, OverflowError, OSError, ArithmeticError, TypeError):
        return value
    return value


def shown(value: Any) -> str:
    """Indented JSON; bytes as hexadecimal digits."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=lambda raw: raw.hex(" "))
