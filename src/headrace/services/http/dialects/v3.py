"""Confluent's REST API v3: records in, one delivery report for each out. Pure.

A body is one JSON document after the other (`json_sequence.py`); the reports are written the same
way, in the same order, each with an `error_code` of its own. Data is BINARY, JSON or STRING. A
record may also say when it is delivered, as in v2. Not done: schemas, and types that need them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.services.http.dialects.v2 import Outcome, Unwritten
from headrace.services.http.refusal import BAD_REQUEST, Refusal
from headrace.services.http.writes.writes import (
    WHEN,
    Write,
    base64_bytes,
    headers_of,
    json_bytes,
    moment_ms,
    partition_of,
    require_known,
    require_object,
    text_bytes,
    when_of,
)

OK = 200
BINARY, JSON, STRING = "BINARY", "JSON", "STRING"
_FIELDS = frozenset(
    {"partition_id", "headers", "key", "value", "timestamp", "original_size", *WHEN}
)


@dataclass(slots=True)
class Asked:
    """A record, and the types that its report names."""

    write: Write
    key_type: str | None
    value_type: str | None


def read_record(given: Any) -> Asked:
    record = require_object(given, "A record")
    require_known(record, _FIELDS, "A record")
    key_type, key = _data(record.get("key"), "key")
    value_type, value = _data(record.get("value"), "value")
    write = Write(
        value,
        key,
        headers_of(record.get("headers"), binary=True),
        partition_of(record.get("partition_id")),
        moment_ms(record.get("timestamp")),
        when_of(record),
    )
    return Asked(write, key_type, value_type)


def _data(given: Any, what: str) -> tuple[str | None, bytes | None]:
    if given is None:
        return None, None
    kind, data = require_object(given, f"The {what}").get("type", JSON), given.get("data")
    if data is None:
        return None, None
    if kind == BINARY:
        return BINARY, base64_bytes(data, what)
    if kind == STRING and isinstance(data, str):
        return STRING, text_bytes(data, what)
    if kind == JSON:
        return JSON, json_bytes(data)
    raise Refusal(
        BAD_REQUEST, f"Bad Request: the {what} has the type BINARY, JSON or STRING, and its data."
    )


def report(cluster_id: str, topic: str, asked: Asked, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Unwritten):
        return outcome.refusal.document()
    said: dict[str, Any] = {
        "error_code": OK,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": outcome.partition,
        "offset": outcome.offset,
    }
    if outcome.timestamp_ms >= 0:
        said["timestamp"] = iso(outcome.timestamp_ms)
    write = asked.write
    if asked.key_type is not None:
        said["key"] = {"type": asked.key_type, "size": len(write.key or b"")}
    if asked.value_type is not None:
        said["value"] = {"type": asked.value_type, "size": len(write.value or b"")}
    return said


def iso(wall_ms: int) -> str:
    text = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


# ---- resources


def resource(kind: str, base: str, path: str, name: str, **fields: Any) -> dict[str, Any]:
    """`base` is the HTTP server's own address, `path` the resource's path below it."""
    return {
        "kind": kind,
        "metadata": {"self": f"{base}{path}", "resource_name": name},
        **fields,
    }


def collection(kind: str, base: str, path: str, data: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"self": f"{base}{path}", "next": None}, "data": data}
