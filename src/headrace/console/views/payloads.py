"""Keys, values and headers of records as people read them: JSON, text, numbers, or bytes. Pure.

What others wrote is hostile: here it becomes plain text with everything unprintable as escapes, and
the template escapes that once more for HTML. Long ones are cut, and say so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headrace.foreign_text import escaped

PREVIEW = 160
LONGEST_SHOWN = 64 << 10
LONGEST_JSON = 1 << 20
HEX_SHOWN = 2048
HEX_ROW = 16
# Confluent's wire format: a zero byte, then the id of a schema in four bytes.
SCHEMA_PREFIX = 5


@dataclass(slots=True)
class Payload:
    kind: str  # null, empty, json, text or binary
    preview: str  # one short line
    whole: str  # may have several lines
    size: int
    cut: bool = False  # `whole` is not all of it
    note: str = ""  # what else the bytes could be


def payload(raw: bytes | None) -> Payload:
    if raw is None:
        return Payload("null", "null", "null", 0)
    if not raw:
        return Payload("empty", "empty", "", 0)
    try:
        said = raw.decode()
    except UnicodeDecodeError:
        return _binary(raw)
    if "\0" in said or _is_mostly_unprintable(said):
        return _binary(raw)
    document = _json(said)
    kind, whole = ("text", said) if document is None else ("json", document)
    shown = "\n".join(escaped(line, keep="\t") for line in whole[:LONGEST_SHOWN].split("\n"))
    return Payload(kind, _line(said), shown, len(raw), cut=len(whole) > LONGEST_SHOWN)


def _is_mostly_unprintable(said: str) -> bool:
    head = said[:200]
    odd = sum(not (sign.isprintable() or sign in "\t\r\n") for sign in head)
    return odd * 3 > len(head)


def _line(said: str) -> str:
    head = said[: PREVIEW + 1]
    line = " ".join(escaped(head, keep="\n\t\r").split())
    return line if len(said) <= PREVIEW else line[: PREVIEW - 1] + "…"


def _json(said: str) -> str | None:
    """Objects and lists, indented; a bare number or word is text."""
    if len(said) > LONGEST_JSON or said.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.dumps(json.loads(said), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _binary(raw: bytes) -> Payload:
    rows = [
        f"{at:06x}  {part.hex(' '):<{HEX_ROW * 3 - 1}}  {_letters(part)}"
        for at in range(0, min(len(raw), HEX_SHOWN), HEX_ROW)
        if (part := raw[at : at + HEX_ROW])
    ]
    short = raw[:24].hex(" ") + (" …" if len(raw) > 24 else "")
    return Payload("binary", short, "\n".join(rows), len(raw), len(raw) > HEX_SHOWN, _could_be(raw))


def _letters(part: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)


def _could_be(raw: bytes) -> str:
    if len(raw) in (2, 4, 8):
        return f"as a big-endian integer: {int.from_bytes(raw, signed=True)}"
    if len(raw) > SCHEMA_PREFIX and raw[0] == 0:
        schema = int.from_bytes(raw[1:SCHEMA_PREFIX])
        return f"begins as a record with schema {schema} of a schema registry does"
    return ""
