"""CloudEvents 1.0 in and out: HTTP's binary, structured and batch modes, and Kafka's two. Pure.

In: a binary event becomes a record in Kafka's binary mode (headers `ce_...`, the value is the
data); a structured one, or each of a batch, a record in Kafka's structured mode. The extension
`partitionkey` is the record's key, as the Kafka binding says. Out: a record in either mode is the
event that it holds; any other record is wrapped, its place being its id.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from headrace.app.triggers.cloud_events import BATCH, STRUCTURED, Event, structured
from headrace.client.records import Record
from headrace.services.http.refusal import TOO_LARGE, Refusal, bad_payload
from headrace.services.http.writes.writes import (
    Write,
    base64_bytes,
    decode_json,
    json_bytes,
    read_json,
    require_object,
    text_bytes,
)

HTTP_PREFIX, KAFKA_PREFIX = "ce-", "ce_"
CONTENT_TYPE = "content-type"
KEY_ATTRIBUTE = "partitionkey"
REQUIRED = ("specversion", "id", "source", "type")
VERSION = "1.0"
TYPE_OF_RECORDS = "org.apache.kafka.record"
# Half of a surrogate pair, which an event may hold, stays an escape.
_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_NAME = re.compile(r"[a-z0-9]{1,64}")

__all__ = ["BATCH", "STRUCTURED", "as_event", "is_binary", "read_batch", "read_binary"]


def is_binary(header_names: Iterable[str]) -> bool:
    return any(name.lower() == "ce-specversion" for name in header_names)


def read_binary(headers: Mapping[str, str], body: bytes) -> Write:
    """An event whose attributes are HTTP headers and whose data is the body."""
    attributes: dict[str, str] = {}
    for name, value in headers.items():
        name = name.lower()
        if name.startswith(HTTP_PREFIX):
            attributes[name.removeprefix(HTTP_PREFIX)] = _decoded(value)
    _require_event(attributes)
    kept = [(KAFKA_PREFIX + name, text_bytes(v, name)) for name, v in attributes.items()]
    if CONTENT_TYPE in headers:
        kept.append((CONTENT_TYPE, text_bytes(headers[CONTENT_TYPE], CONTENT_TYPE)))
    return Write(body or None, _key(attributes), list(kept))


def read_structured(body: bytes) -> Write:
    return _write(read_json(body))


def read_batch(body: bytes, most: int) -> list[Write]:
    events = read_json(body)
    if not isinstance(events, list) or not events:
        raise bad_payload("A batch of CloudEvents is a list of at least one event.")
    if len(events) > most:
        raise Refusal(TOO_LARGE, f"{len(events)} events in one request: at most {most}.")
    return [_write(each) for each in events]


def _write(given: Any) -> Write:
    event = require_object(given, "A CloudEvent")
    _require_event(event)
    if "data_base64" in event:
        base64_bytes(event["data_base64"], "data_base64")
        if "data" in event:
            raise bad_payload("A CloudEvent has data or data_base64, not both.")
    kind = f"{STRUCTURED}; charset=UTF-8".encode()
    return Write(json_bytes(event), _key(event), [(CONTENT_TYPE, kind)])


def _require_event(attributes: Mapping[str, Any]) -> None:
    for name in REQUIRED:
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise bad_payload(f"A CloudEvent has the attribute {name!r}, a text.")
    if attributes["specversion"] != VERSION:
        raise bad_payload(f"Only CloudEvents {VERSION} is supported.")
    for name in attributes:
        if not _NAME.fullmatch(name) and name != "data_base64":
            raise bad_payload("Attributes of CloudEvents have lower-case letters and digits.")


def _key(attributes: Mapping[str, Any]) -> bytes | None:
    key = attributes.get(KEY_ATTRIBUTE)
    return text_bytes(key, KEY_ATTRIBUTE) if isinstance(key, str) else None


def _decoded(value: str) -> str:
    """As the HTTP binding has it: quotes and percent-encoded UTF-8."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise bad_payload("An attribute of the CloudEvent is not UTF-8.") from None


# ---- out


def as_event(record: Record) -> str:
    """The event that a record holds, or is, in the JSON format, on one line."""
    try:
        return _dumps(_event_of(record))
    except (ValueError, RecursionError):
        # It holds a number such as 1e999 or NaN, which JSON cannot express: write it as bytes.
        return _dumps(_wrapped(replace(record, value=None)) | {"data_base64": _base64(record)})


def _base64(record: Record) -> str:
    return base64.b64encode(record.value or b"").decode()


def _event_of(record: Record) -> dict[str, Any]:
    kind = (record.header(CONTENT_TYPE) or b"").decode("utf-8", "replace")
    if kind.startswith(STRUCTURED) and record.value is not None:
        held = _held(record.value)
        if held is not None:
            return held
    if record.header(f"{KAFKA_PREFIX}specversion") is not None:
        return _of_binary(record, kind)
    return _wrapped(record)


def _wrapped(record: Record) -> dict[str, Any]:
    source = f"/{record.topic}/{record.partition}"
    wrapped = Event(
        f"{record.topic}-{record.partition}-{record.offset}",
        source,
        TYPE_OF_RECORDS,
        -1 if record.timestamp_ms is None else record.timestamp_ms,
        None if record.key is None else record.key.decode("utf-8", "replace"),
        record.value,
    )
    found: dict[str, Any] = json.loads(structured(wrapped).body)
    return found


def _held(value: bytes) -> dict[str, Any] | None:
    try:
        found = decode_json(value.decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "specversion" in found else None


def _of_binary(record: Record, kind: str) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for name, value in record.headers:
        short = name.removeprefix(KAFKA_PREFIX)
        if short != name and _NAME.fullmatch(short):
            event[short] = (value or b"").decode("utf-8", "replace")
    if kind:
        event["datacontenttype"] = kind
    if record.value is None:
        return event
    is_json = "json" in kind.partition(";")[0] or not kind
    try:
        text = record.value.decode()
        event["data"] = decode_json(text) if is_json else text
    except UnicodeDecodeError:
        event["data_base64"] = _base64(record)
    except (ValueError, RecursionError):
        event["data"] = text
    return event
