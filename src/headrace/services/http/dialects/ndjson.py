"""Bulk: one record per line, as `headrace consume --json` writes them. Pure.

`{"key": "7", "value": {"total": 3}, "headers": {"trace": "a"}}`: a text is written as it is, any
other value as JSON; bytes are in `key_base64` and `value_base64`. Fields that only reading adds
(topic, offset, timestamp_type) are ignored, so that the lines of one topic can be sent to another.
"""

from __future__ import annotations

from typing import Any

from headrace.services.http.writes.writes import (
    WHEN,
    Write,
    base64_bytes,
    headers_of,
    json_bytes,
    moment_ms,
    partition_of,
    read_json,
    require_known,
    require_object,
    text_bytes,
    when_of,
)

KINDS = ("application/x-ndjson", "application/ndjson", "application/jsonl")
OF_READING = ("topic", "offset", "timestamp_type")
_PLAIN_FIELDS = frozenset({"key", "value"})
_FIELDS = frozenset(
    {
        *("key", "key_base64", "value", "value_base64", "partition", "headers", "timestamp"),
        *OF_READING,
        *WHEN,
    }
)


def read_line(line: bytes) -> Write:
    record = require_object(read_json(line), "A line")
    if record.keys() <= _PLAIN_FIELDS:
        return Write(_bytes(record, "value"), _bytes(record, "key"))
    require_known(record, _FIELDS, "A line")
    # If the record was read from a topic, its partition is its source, not its target.
    partition = None if "offset" in record else partition_of(record.get("partition"))
    return Write(
        _bytes(record, "value"),
        _bytes(record, "key"),
        headers_of(record.get("headers"), binary=False),
        partition,
        moment_ms(record.get("timestamp")),
        when_of(record),
    )


def _bytes(record: dict[str, Any], name: str) -> bytes | None:
    given = record.get(name)
    if given is None:
        coded = record.get(f"{name}_base64")
        return None if coded is None else base64_bytes(coded, f"{name}_base64")
    return text_bytes(given, name) if isinstance(given, str) else json_bytes(given)
