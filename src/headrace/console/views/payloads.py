"""Keys, values and headers of records as people read them: JSON, text, numbers, or bytes. Pure.

Foreign text is treated as hostile: here it becomes plain text with everything unprintable as
escapes, and the template escapes that once more for HTML. Long values are cut and marked.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from headrace.console.decoding.avro import AvroRefused, Schema, shown
from headrace.foreign_text import escaped

PREVIEW = 160
LONGEST_SHOWN = 64 << 10
LONGEST_JSON = 1 << 20
HEX_SHOWN = 2048
HEX_ROW = 16
# Confluent's wire format: a zero byte, then the id of a schema in four bytes. It is nearly always
# Avro; Protobuf has the same frame.
SCHEMA_PREFIX = 5


AUTO, TEXT, HEX, NUMBER, AVRO = "auto", "text", "hex", "number", "avro"
READERS = {
    AUTO: "what they look like",
    TEXT: "text",
    HEX: "bytes",
    NUMBER: "a number",
    AVRO: "Avro, with the schema below",
}
LONGEST_NUMBER = 16
FLOATS = {4: "f", 8: "d"}


@dataclass(slots=True)
class Payload:
    kind: str  # null, empty, json, text, avro, number or binary
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
    if document is None:
        return _of_text("text", said, said, len(raw))
    return _of_text("json", said, document, len(raw))


@dataclass(slots=True)
class Reader:
    """How the user wants bytes to be read; `schema` is for AVRO."""

    how: str = AUTO
    schema: Schema | None = None

    def payload(self, raw: bytes | None) -> Payload:
        if not raw or self.how == AUTO:
            return payload(raw)
        if self.how == HEX:
            return _binary(raw)
        if self.how == NUMBER:
            return Payload("number", _number(raw), _number(raw), len(raw))
        if self.how == AVRO and self.schema is not None:
            try:
                said = shown(self.schema.decode(raw))
            except AvroRefused as refusal:
                found = _binary(raw)
                found.note = str(refusal)
                return found
            return _of_text("avro", said, said, len(raw))
        said = raw.decode(errors="replace")
        return _of_text("text", said, said, len(raw))

    def document(self, raw: bytes | None) -> Any:
        """Returns the value for expressions and paths: the decoded document, else text."""
        if raw is None:
            return None
        if self.how == AVRO and self.schema is not None:
            try:
                return json.loads(shown(self.schema.decode(raw)))
            except AvroRefused:
                return None
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            return raw.decode(errors="replace")


def _of_text(kind: str, said: str, whole: str, size: int) -> Payload:
    shown_ = "\n".join(escaped(line, keep="\t") for line in whole[:LONGEST_SHOWN].split("\n"))
    return Payload(kind, _line(said), shown_, size, cut=len(whole) > LONGEST_SHOWN)


def _number(raw: bytes) -> str:
    """Whole numbers as most programs write them, and fractions of the sizes that they have."""
    if len(raw) > LONGEST_NUMBER:
        return f"{len(raw)} bytes are too many for a number"
    words = [str(int.from_bytes(raw, signed=True))]
    if len(raw) in FLOATS:
        words.append(f"as a float {struct.unpack('>' + FLOATS[len(raw)], raw)[0]:.6g}")
    if len(raw) > 1:
        words.append(f"little-endian {int.from_bytes(raw, 'little', signed=True)}")
    return ", ".join(words)


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
        return f"looks like Avro, schema id {schema}"
    return ""
