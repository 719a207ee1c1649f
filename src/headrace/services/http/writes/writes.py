"""A record as a request asks for it, and the fields that all dialects share. Pure.

Fields that no dialect knows are refused, so that a mistyped `dealy` does not send at once.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.services.http.refusal import BAD_REQUEST, TOO_LARGE, Refusal, bad_payload

HeaderList = list[tuple[str, bytes | None]]

# The fields that make a record a delayed one; the meaning is that of the client's `send`.
WHEN = ("delay", "deliver_at", "id", "cron", "cron_zone", "cron_until", "cron_count")
LARGEST_PARTITION = 2**31 - 1
LATEST_MS = 253_402_300_799_999  # the last millisecond of the year 9999
MOST_HEADERS = 1000
MOST_PARTS = 2_000_000  # of one document

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


@dataclass(slots=True)
class Write:
    value: bytes | None
    key: bytes | None = None
    headers: HeaderList = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None
    when: dict[str, Any] | None = None  # None: now


def read_json(body: bytes | str) -> Any:
    """Reads any JSON document; if it is invalid, refuses it with the place of the error."""
    if len(body) > MOST_PARTS:
        _require_few_parts(body if isinstance(body, bytes) else body.encode("utf-8", "replace"))
    try:
        return decode_json(body.decode() if isinstance(body, bytes) else body)
    except RecursionError:
        raise Refusal(BAD_REQUEST, "The body nests too deeply.") from None
    except ValueError as failure:
        raise Refusal(BAD_REQUEST, f"The body is not JSON: {failure}.") from None


def _require_few_parts(body: bytes) -> None:
    """Refuses a body with too many parts. Each small part takes 20 to 30 times its bytes in memory
    while the body is read, and no other request is served meanwhile."""
    if sum(body.count(sign) for sign in (b"{", b"[", b",")) > MOST_PARTS:
        raise Refusal(
            TOO_LARGE,
            f"The body has over {MOST_PARTS} commas and brackets. Send less at once, lines of "
            "NDJSON, or a large value as application/octet-stream.",
        )


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


# Made once: `json.loads` makes a decoder for each call that names a function of its own.
decode_json = json.JSONDecoder(parse_constant=_refuse_constant).decode


def json_bytes(value: Any) -> bytes:
    """Returns compact JSON. Half of a surrogate pair is not text, and 1e999 is not a number here:
    both are refused, because they would be written as something else."""
    try:
        return _dumps(value).encode()
    except UnicodeEncodeError:
        raise bad_payload("A text holds half of a surrogate pair.") from None
    except ValueError:
        raise bad_payload("A number is too large.") from None
    except RecursionError:
        raise Refusal(BAD_REQUEST, "The body nests too deeply.") from None


def text_bytes(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise bad_payload(f"The {what} holds half of a surrogate pair.") from None


def base64_bytes(text: Any, what: str) -> bytes:
    if isinstance(text, str):
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise bad_payload(f"The {what} is not a base64 string.")


def require_object(given: Any, what: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise bad_payload(f"{what} is a JSON object.")
    return given


def require_known(given: dict[str, Any], known: frozenset[str], what: str) -> None:
    if not given.keys() <= known:
        strange = min(given.keys() - known)
        raise bad_payload(f"{what} has no field {strange[:64]!r}.")


def partition_of(given: Any) -> int | None:
    if given is None:
        return None
    if type(given) is int and 0 <= given <= LARGEST_PARTITION:
        return given
    raise bad_payload("A partition is a number from 0 on.")


def moment_ms(given: Any, what: str = "timestamp") -> int | None:
    """Milliseconds since 1970, or ISO 8601 with its zone."""
    if given is None:
        return None
    if type(given) is int and 0 <= given <= LATEST_MS:
        return given
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given)
            if moment.tzinfo is not None:
                found = round(moment.timestamp() * 1000)
                if 0 <= found <= LATEST_MS:
                    return found
        except (ValueError, OverflowError):
            pass
    raise bad_payload(
        f"A {what} is milliseconds since 1970, or a moment such as 2026-01-31T12:00:00Z."
    )


def when_of(given: dict[str, Any]) -> dict[str, Any] | None:
    found = {name: given[name] for name in WHEN if given.get(name) is not None}
    return found or None


def headers_of(given: Any, *, binary: bool) -> HeaderList:
    """`[{"name": ..., "value": ...}]` or `{"name": "value"}`; `binary`: values are base64."""
    if not given:
        return []
    if isinstance(given, dict):
        pairs = list(given.items())
    elif isinstance(given, list):
        pairs = [_pair(each) for each in given]
    else:
        raise bad_payload('Headers are [{"name": "trace", "value": "7"}] or {"trace": "7"}.')
    if len(pairs) > MOST_HEADERS:
        raise bad_payload(f"A record has at most {MOST_HEADERS} headers.")
    return [_header(name, value, binary) for name, value in pairs]


def _pair(given: Any) -> tuple[Any, Any]:
    each = require_object(given, "A header")
    if "value_base64" in each:
        value = base64_bytes(each["value_base64"], "header")
        return each.get("name", each.get("key")), value
    return each.get("name", each.get("key")), each.get("value")


def _header(name: Any, value: Any, binary: bool) -> tuple[str, bytes | None]:
    if not isinstance(name, str) or not name:
        raise bad_payload("A header has a name.")
    text_bytes(name, "name of a header")
    if value is None or isinstance(value, bytes):
        return name, value
    if not isinstance(value, str):
        raise bad_payload(f"The value of the header {name[:64]!r} is a text.")
    if binary:
        return name, base64_bytes(value, f"value of the header {name[:64]!r}")
    return name, text_bytes(value, "value of a header")
