"""One row of the outbox, and the record that it becomes.

A row is written by `headrace.Outbox` or by any program's INSERT, so nothing about it is taken for
granted: a row that cannot be a record is answered with the reason, and is parked with it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

from headrace.wire.contract import durations
from headrace.wire.contract import headers as names

Headers = list[tuple[str, bytes | None]]

LONGEST_TOPIC = 249
LONGEST_MESSAGE_ID = 512
# More than any broker takes; a record larger than the producer's memory would never leave it.
LARGEST_BYTES = 100_000_000
# Brokers take no records for the first three from clients. The last one is the relay's own: a row
# there could forge a position.
RESERVED_TOPICS = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "headrace.outbox.positions",
    }
)
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


@dataclass(slots=True)
class Row:
    id: int
    topic: str
    key: bytes | None
    payload: bytes | None  # None: a tombstone
    headers: str | None  # JSON: [["name", "text"], ["raw", {"base64": "AAE="}], ["empty", null]]
    message_id: str | None  # None: made of the outbox's id and the row's
    created_ms: int

    @property
    def checksum(self) -> int:
        """Distinguishes this row from another one that got the same id in a restored database."""
        sum_ = crc32(self.payload or b"", crc32(self.key or b""))
        return crc32(f"{self.topic}/{self.message_id}/{self.created_ms}".encode(), sum_)


class Asked(NamedTuple):
    """A confirmation that a row asks for."""

    message_id: str
    within_ms: int | None  # None: this is a resend of one that asked


class OutboxRecord(NamedTuple):
    """As the producer takes it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    confirmation: Asked | None = None


class NotARecord(ValueError):
    """The text is a sentence with the reason, for the user who looks at the parked row."""


# As OutboxRecord(...) makes it, in a third of the time: no call of Python code in between.
_new = tuple.__new__


def record_of(row: Row, outbox_id: str) -> OutboxRecord:
    require_topic(row.topic)
    if row.created_ms < 0:
        raise NotARecord(f"its created_at, {row.created_ms}, is before 1970")
    if len(row.payload or b"") + len(row.key or b"") > LARGEST_BYTES:
        raise NotARecord(f"it has more than {LARGEST_BYTES:,} bytes")
    message_id = row.message_id or f"{outbox_id}/{row.id}"
    headers: Headers = [(names.MESSAGE_ID, message_id.encode())]
    if row.headers is None:
        return _new(OutboxRecord, (row.topic, row.key, row.payload, headers, row.created_ms, None))
    given = headers_from(row.headers)
    own = any(name == names.MESSAGE_ID for name, _ in given)
    headers = given if own else given + headers
    asked = None
    if (within := _first(given, names.CONFIRM_WITHIN)) is not None:
        asked = _asked(headers, within)
        headers = [pair for pair in headers if pair[0] not in (names.CONFIRM_WITHIN, names.CONFIRM)]
        headers.append((names.CONFIRM, outbox_id.encode()))
    elif _first(given, names.CONFIRM) == outbox_id.encode():
        asked = Asked(message_id, None)
    return OutboxRecord(row.topic, row.key, row.payload, headers, row.created_ms, asked)


def _first(headers: Headers, name: str) -> bytes | None:
    return next((value for each, value in headers if each == name), None)


def _asked(headers: Headers, within: bytes) -> Asked:
    """The last message id is the one that consumers take."""
    message_id = [value for name, value in headers if name == names.MESSAGE_ID][-1]
    try:
        text = (message_id or b"").decode()
        within_ms = durations.parse(within.decode())
    except ValueError as wrong:
        raise NotARecord(f"it asks for a confirmation in an unknown way: {wrong}") from wrong
    if not 0 < len(text) <= LONGEST_MESSAGE_ID or "\0" in text:
        raise NotARecord(
            f"a message to be confirmed needs an id of 1 to {LONGEST_MESSAGE_ID} characters"
        )
    if any(name in names.INSTRUCTIONS for name, _ in headers):
        raise NotARecord("a delayed message cannot ask for a confirmation")
    if not 0 < within_ms <= durations.LONGEST_DELAY_MS:
        raise NotARecord("the time for a confirmation is more than 0 and at most ten years")
    return Asked(text, within_ms)


@lru_cache(maxsize=1024)
def require_topic(topic: str) -> None:
    """Raises NotARecord. Rows are many and topics few, so good names are remembered."""
    if _LEGAL_TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        raise NotARecord(
            f"'{topic[:300]}' is not a valid topic name: it has letters, digits, '.', '_' and '-', "
            f"{LONGEST_TOPIC} at most"
        )
    if topic in RESERVED_TOPICS:
        raise NotARecord(f"'{topic}' is an internal topic, and takes no messages")


def headers_to(headers: Headers) -> str | None:
    """Returns headers as the table stores them."""
    if not headers:
        return None
    return json.dumps([[name, _header_to(value)] for name, value in headers], ensure_ascii=False)


def _header_to(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
    # PostgreSQL's text has no NUL.
    return {"base64": base64.b64encode(value).decode()} if "\0" in text else text


def headers_from(text: str | None) -> Headers:
    if text is None or not text.strip():
        return []
    try:
        found = json.loads(text)
        if isinstance(found, dict):  # what most programs write
            found = list(found.items())
        return [(_name(name), _header_from(value)) for name, value in found]
    except (ValueError, TypeError, binascii.Error, RecursionError) as failure:
        raise NotARecord(f"its headers are not JSON pairs of name and text: {failure}") from failure


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is not a name")
    name.encode()  # half a surrogate pair is text for JSON and none for Kafka
    return name


def _header_from(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    raise ValueError(f"{value!r} is neither text nor null")


def shard_of(key: bytes, shards: int) -> int:
    """The same for all writers: CRC-32 of the key, modulo the number of shards."""
    return crc32(key) % shards


def size_bytes(key: bytes | None, payload: bytes | None, headers: Headers) -> int:
    """Returns the size of a batch with this record alone, or a few bytes more."""
    size = 128 + len(key or b"") + len(payload or b"")
    return size + sum(len(name.encode()) + len(value or b"") + 10 for name, value in headers)
