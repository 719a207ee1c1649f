"""Records on their way out, as documents: v2's two formats, the streams' own, CloudEvents. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from headrace.client.records import Record
from headrace.services.http.dialects import cloud_events, v2
from headrace.services.http.refusal import NOT_JSON, UNPROCESSABLE, Refusal

Form = Callable[[Record], dict[str, Any]]
AUTO, CLOUD_EVENTS = "auto", "cloudevents"


def as_json(record: Record) -> dict[str, Any]:
    """v2 with embedded JSON; a record that holds none is refused, with its place."""
    return _v2(record, _json(record, "key"), _json(record, "value"))


def as_binary(record: Record) -> dict[str, Any]:
    return _v2(record, _base64(record.key), _base64(record.value))


def as_seen(record: Record) -> dict[str, Any]:
    """JSON where it is JSON, else text, else `key_base64` and `value_base64`; with headers."""
    said: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    said |= _text("key", record.key)
    said |= _seen("value", record.value)
    said["headers"] = [{"name": name} | _text("value", value) for name, value in record.headers]
    return said


FORMS: dict[str, Form] = {
    v2.JSON: as_json,
    v2.BINARY: as_binary,
    AUTO: as_seen,
    CLOUD_EVENTS: cloud_events.as_event,
}


def _v2(record: Record, key: Any, value: Any) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "key": key,
        "value": value,
        "partition": record.partition,
        "offset": record.offset,
    }


def with_more(form: Form) -> Form:
    """v2's documents with what the other proxies do not show: timestamp and headers."""

    def shown(record: Record) -> dict[str, Any]:
        headers = [{"name": name, "value": _base64(value)} for name, value in record.headers]
        return form(record) | {"timestamp": record.timestamp_ms, "headers": headers}

    return shown


def _json(record: Record, part: str) -> Any:
    held: bytes | None = getattr(record, part)
    if held is None:
        return None
    try:
        return json.loads(held)
    except (ValueError, RecursionError):
        raise Refusal(
            UNPROCESSABLE,
            f"The {part} of {record.topic}-{record.partition} at offset {record.offset} is not "
            "JSON: read it in the format binary, or seek past it.",
            code=NOT_JSON,
        ) from None


def _base64(held: bytes | None) -> str | None:
    return None if held is None else base64.b64encode(held).decode()


def _text(name: str, held: bytes | None) -> dict[str, Any]:
    try:
        return {name: None if held is None else held.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": _base64(held)}


def _seen(name: str, held: bytes | None) -> dict[str, Any]:
    if held is not None and held[:1] in b'{["-0123456789tfn':
        try:
            return {name: json.loads(held)}
        except (ValueError, RecursionError):
            pass
    return _text(name, held)
