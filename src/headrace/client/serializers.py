"""Serializers turn keys and values into bytes, deserializers turn them back; any function will do.

A serializer takes a value and returns bytes; a deserializer takes bytes and returns a value.
Neither gets None: a missing key stays missing, a null value stays a tombstone. Their exceptions
become a `SerializationFailed` or a `PoisonRecord`, which name the place. Methods of a pydantic
model fit: `value_deserializer=Order.model_validate_json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.client.errors import SerializationFailed

T = TypeVar("T")

Serializer = Callable[[T], bytes | str]
Deserializer = Callable[[bytes], T]


def to_json(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(raw: bytes) -> Any:
    """Decodes JSON; refuses bytes that are not JSON."""
    return json.loads(raw)


def to_text(value: str) -> bytes:
    """Encodes text as UTF-8."""
    return value.encode()


def from_text(raw: bytes) -> str:
    """Decodes UTF-8; refuses other bytes."""
    return raw.decode()


def to_integer(value: int) -> bytes:
    """Eight bytes, the highest first, as Java's LongSerializer writes."""
    return value.to_bytes(8, "big", signed=True)


def from_integer(raw: bytes) -> int:
    """Decodes an integer of 4 or 8 bytes, the highest first."""
    if len(raw) not in (4, 8):
        raise ValueError(f"an integer has 4 or 8 bytes, this has {len(raw)}")
    return int.from_bytes(raw, "big", signed=True)


def serialized(
    part: str, value: Any, serializer: Callable[[Any], bytes | str] | None, topic: str
) -> bytes | str | None:
    """The bytes of a key or a value; `part` says which in the error."""
    if value is None:
        return None
    if serializer is None:
        return plain(part, value, topic)
    try:
        return plain(part, serializer(value), topic)
    except SerializationFailed:
        raise
    except Exception as failure:
        raise SerializationFailed(
            f"The {part} for topic {topic} cannot be serialized: {failure!r}."
        ) from failure


def plain(part: str, value: Any, topic: str) -> bytes | str:
    if isinstance(value, bytes | str):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    kind = type(value).__name__
    raise SerializationFailed(
        f"The {part} for topic {topic} is of type {kind}, and only bytes and str go as they are: "
        f"give the producer a {part}_serializer such as headrace.client.to_json."
    )
