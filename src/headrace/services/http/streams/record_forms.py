"""Records on their way out, each as one line of JSON: v2's two formats, the streams' own,
CloudEvents. Pure.

JSON that a record holds is passed on as it was written: a number keeps all of its digits, a text
its escapes. Only line breaks between its parts become spaces.
"""

from __future__ import annotations

import functools
import json
from binascii import b2a_base64
from collections.abc import Callable

from headrace.client.consumer.fetched import NativeMessage, record_of
from headrace.client.records import Record
from headrace.services.http.dialects import cloud_events, v2
from headrace.services.http.refusal import NOT_JSON, UNPROCESSABLE, Refusal
from headrace.services.http.writes.writes import decode_json

Form = Callable[[Record], str]
MessageForm = Callable[[NativeMessage], str]
AUTO, CLOUD_EVENTS = "auto", "cloudevents"
_NULL = "null"
# The first characters of a JSON document; white space first is rare, and then it is taken as text.
_BEGINS_JSON = frozenset(b'{["-0123456789tfn')
_quoted = json.JSONEncoder(ensure_ascii=False).encode


@functools.lru_cache(1024)
def _named(topic: str) -> str:
    return _quoted(topic)


def as_json(record: Record) -> str:
    """Returns v2's embedded JSON; a record without JSON is refused, with its place."""
    return _v2(record, _json(record, "key"), _json(record, "value"))


def as_binary(record: Record) -> str:
    return _v2(record, _base64(record.key), _base64(record.value))


def binary_message(message: NativeMessage) -> str:
    """`as_binary` of a message of librdkafka, for answers of many."""
    key: bytes | None = message.key()
    value: bytes | None = message.value()
    return (
        f'{{"topic":{_named(message.topic() or "")},"key":{_base64(key)},"value":{_base64(value)},'
        f'"partition":{message.partition()},"offset":{message.offset()}}}'
    )


def of_messages(form: Form) -> MessageForm:
    if form is as_binary:
        return binary_message
    return lambda message: form(record_of(message))


def as_seen(record: Record) -> str:
    """Returns JSON if the bytes are JSON, else text, else `key_base64` and `value_base64`; with
    headers."""
    stamp = _NULL if record.timestamp_ms is None else record.timestamp_ms
    headers = [f'{{"name":{_quoted(n)},{_text("value", v)}}}' for n, v in record.headers]
    return (
        f'{{"topic":{_named(record.topic)},"partition":{record.partition},'
        f'"offset":{record.offset},"timestamp":{stamp},{_text("key", record.key)},'
        f'{_seen("value", record.value)},"headers":[{",".join(headers)}]}}'
    )


FORMS: dict[str, Form] = {
    v2.JSON: as_json,
    v2.BINARY: as_binary,
    AUTO: as_seen,
    CLOUD_EVENTS: cloud_events.as_event,
}


def _v2(record: Record, key: str, value: str) -> str:
    return (
        f'{{"topic":{_named(record.topic)},"key":{key},"value":{value},'
        f'"partition":{record.partition},"offset":{record.offset}}}'
    )


def with_more(form: Form) -> Form:
    """v2's documents with what the other proxies do not show: timestamp and headers."""

    def shown(record: Record) -> str:
        headers = [f'{{"name":{_quoted(n)},"value":{_base64(v)}}}' for n, v in record.headers]
        stamp = _NULL if record.timestamp_ms is None else record.timestamp_ms
        return f'{form(record)[:-1]},"timestamp":{stamp},"headers":[{",".join(headers)}]}}'

    return shown


def _json(record: Record, part: str) -> str:
    held: bytes | None = getattr(record, part)
    if held is None:
        return _NULL
    if (found := _as_written(held)) is not None:
        return found
    raise Refusal(
        UNPROCESSABLE,
        f"The {part} of {record.topic}-{record.partition} at offset {record.offset} is not "
        "JSON: read it in the format binary, or seek past it.",
        code=NOT_JSON,
    )


def _as_written(held: bytes) -> str | None:
    """Returns the text on one line, if it is a JSON document; else None."""
    try:
        text = held.decode()
        decode_json(text)
    except (ValueError, RecursionError):
        return None
    # JSON text contains no line break within a string, so line breaks are only between its parts.
    return text.replace("\n", " ").replace("\r", " ")


def _base64(held: bytes | None) -> str:
    return _NULL if held is None else f'"{b2a_base64(held, newline=False).decode()}"'


def _text(name: str, held: bytes | None) -> str:
    try:
        return f'"{name}":{_NULL if held is None else _quoted(held.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64":{_base64(held)}'


def _seen(name: str, held: bytes | None) -> str:
    if held and held[0] in _BEGINS_JSON and (found := _as_written(held)) is not None:
        return f'"{name}":{found}'
    return _text(name, held)
