"""Records as CloudEvents 1.0 over HTTP: binary (headers), structured and batch (JSON), signed.

One record becomes one event: `id` is its message id, `source` its place `/topic/partition`,
`subject` its key, `time` its timestamp, `type` the header `ce_type` or the trigger's own. Data that
is JSON goes as JSON, text as text, anything else as `data_base64`. Header values are cleaned of
line breaks and other control characters, and percent-encoded beyond ASCII, as the HTTP binding of
CloudEvents asks.

The signature lets the receiver check who called: header `headrace-signature: t=<s>,v1=<hex>`, an
HMAC-SHA256 of `<s>.<body>` with the shared secret. The time in it bounds replays.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
BINARY = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
SIGNATURE_HEADER = "headrace-signature"
LATEST_TIME_MS = 253_402_300_799_999  # the last millisecond of the year 9999

# The characters that a header may contain unchanged: printable ASCII without the space at either
# end, the quote and the percent sign (CloudEvents 1.0, HTTP binding, 3.1.3.2).
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%') + " "


@dataclass(slots=True)
class Event:
    """One record to send, before it takes the form of a request."""

    id: str
    source: str
    type: str
    time_ms: int
    subject: str | None
    data: bytes | None
    content_type: str | None = None  # None: found from the data


@dataclass(slots=True)
class Request:
    """The headers and the body of one POST."""

    headers: dict[str, str]
    body: bytes


def binary(event: Event) -> Request:
    """The body is the record's value as it is; the rest is in `ce-` headers."""
    attributes = {
        "ce-specversion": "1.0",
        "ce-id": event.id,
        "ce-source": event.source,
        "ce-type": event.type,
    }
    if time := _rfc3339(event.time_ms):
        attributes["ce-time"] = time
    if event.subject is not None:
        attributes["ce-subject"] = event.subject
    headers = {name: header_value(text) for name, text in attributes.items()}
    headers["content-type"] = header_value(event.content_type or content_type_of(event.data))
    return Request(headers, event.data or b"")


def structured(event: Event) -> Request:
    return Request({"content-type": STRUCTURED}, _as_json(event).encode())


def batch(events: list[Event]) -> Request:
    body = f"[{','.join(_as_json(event) for event in events)}]"
    return Request({"content-type": BATCH}, body.encode())


def sign(request: Request, secret: bytes, now_s: int) -> None:
    """Add the signature header."""
    digest = hmac.new(secret, b"%d." % now_s + request.body, hashlib.sha256).hexdigest()
    request.headers[SIGNATURE_HEADER] = f"t={now_s},v1={digest}"


def signature_is_good(
    header: str, body: bytes, secret: bytes, *, now_s: int | None = None, tolerance_s: int = 300
) -> bool:
    """For receivers: whether this body was signed with the secret, and recently.

    `now_s` is the present time in seconds; by default the machine's clock is used.
    """
    now_s = int(time.time()) if now_s is None else now_s
    try:
        parts = dict(part.split("=", 1) for part in header.split(","))
        signed_s, given = int(parts["t"]), parts["v1"]
    except (ValueError, KeyError):
        return False
    digest = hmac.new(secret, b"%d." % signed_s + body, hashlib.sha256).hexdigest()
    fresh = abs(now_s - signed_s) <= tolerance_s
    return hmac.compare_digest(digest.encode(), given.encode()) and fresh


def header_value(text: str) -> str:
    """Make text safe for a header: no control characters, no line breaks, ASCII only."""
    cleaned = "".join(character for character in text if character.isprintable())
    return quote(cleaned.strip(), safe=_PLAIN)


def content_type_of(data: bytes | None) -> str:
    text = _text(data)
    if text is None:
        return BINARY
    return "application/json" if _is_json(text) else TEXT


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # Python would read NaN and Infinity


def _as_json(event: Event) -> str:
    members: dict[str, str] = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.type,
    }
    if time := _rfc3339(event.time_ms):
        members["time"] = time
    if event.subject is not None:
        members["subject"] = event.subject
    if event.data is not None:
        members["datacontenttype"] = event.content_type or content_type_of(event.data)
    shape = json.dumps(members)
    if event.data is None:
        return shape
    return f"{shape[:-1]}, {_data_member(event.data)}}}"


def _data_member(data: bytes) -> str:
    text = _text(data)
    if text is None:
        return f'"data_base64": "{base64.b64encode(data).decode()}"'
    if _is_json(text):  # unchanged, so that long numbers keep their digits
        return f'"data": {text}'
    return f'"data": {json.dumps(text)}'


def _rfc3339(time_ms: int) -> str | None:
    """The time in RFC 3339; None for a record without a time, or with one beyond the calendar."""
    if not 0 <= time_ms <= LATEST_TIME_MS:
        return None
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
