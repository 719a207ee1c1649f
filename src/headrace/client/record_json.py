"""A record as an object of JSON: what `headrace consume --json` and the console's download write.

Bytes that are not text are written as base64 under another name: `key_base64`, `value_base64`.
"""

from __future__ import annotations

import base64
from typing import Any

from headrace.client.records import Record


def as_object(record: Record[bytes, bytes]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
    }
    shown |= _as_field("key", record.key) | _as_field("value", record.value)
    shown["headers"] = [{"name": name} | _as_field("value", raw) for name, raw in record.headers]
    return shown


def _as_field(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
