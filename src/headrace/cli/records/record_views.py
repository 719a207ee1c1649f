"""How `headrace consume` writes a record: for people, as its value alone, as JSON, or by a format.

Into a pipe or file values and formats go byte for byte. A terminal gets escapes for what would
steer it; JSON and the view for people escape everywhere. Bytes that are no UTF-8 show as escapes,
and as base64 in JSON.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import typer

from headrace.cli import output
from headrace.client.lookup.record_reader import Record
from headrace.client.record_json import as_object
from headrace.foreign_text import escaped, escaped_bytes

Write = Callable[[Record], object]

# The signs of kcat's formats, with its meanings.
SIGNS: dict[str, Callable[[str, Record], bytes]] = {
    "s": lambda topic, record: record.value or b"",
    "S": lambda topic, record: _length(record.value),
    "k": lambda topic, record: record.key or b"",
    "K": lambda topic, record: _length(record.key),
    "T": lambda topic, record: b"%d" % (-1 if record.timestamp_ms is None else record.timestamp_ms),
    "h": lambda topic, record: _headers(record),
    "t": lambda topic, record: topic.encode(),
    "p": lambda topic, record: b"%d" % record.partition,
    "o": lambda topic, record: b"%d" % record.offset,
    "%": lambda topic, record: b"%",
}
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PARTS = re.compile(r"%(?P<sign>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))|[^%\\]+", re.S)
SIGNS_IN_WORDS = (
    "%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp in ms, "
    "%K and %S sizes of key and value, %% a percent sign"
)


def writer(
    topic: str, *, as_json: bool, pretty: bool, headers: bool, format: str | None = None
) -> Write:
    """How one record is written to standard output."""
    if as_json:
        return lambda record: output.write_json_line(as_object(record))
    if format is not None:
        return formatted(topic, format)
    if pretty:
        return lambda record: _write_pretty(topic, record, headers)
    raw = output.raw_writer()
    return lambda record: raw(_plain(record, headers))


# ---- for people


def _write_pretty(topic: str, record: Record, headers: bool) -> None:
    where, words = pretty_text(topic, record)
    output.write_line(words, dim=where)
    if headers:
        for name, value in record.headers:
            output.write_line(f" {escaped_bytes(value)}", dim=f"    {escaped(name)}:")


def pretty_text(topic: str, record: Record) -> tuple[str, str]:
    """`orders-0@17  2026-01-31 10:00:00.123` and `  key  value`; what is missing shows as null."""
    when = "-"
    if record.timestamp_ms is not None:
        when = moment(record.timestamp_ms)
    where = f"{topic}-{record.partition}@{record.offset}"
    return f"{where}  {when}", f"  {escaped_bytes(record.key)}  {escaped_bytes(record.value)}"


def moment(timestamp_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone()
    except (OverflowError, ValueError, OSError):  # a producer may write any timestamp
        return str(timestamp_ms)
    return at.isoformat(sep=" ", timespec="milliseconds")[:23]


# ---- the value alone


def _plain(record: Record, headers: bool) -> bytes:
    line = (record.value or b"") + b"\n"
    return _headers(record) + b"\t" + line if headers else line


def _headers(record: Record) -> bytes:
    """`name=value,name=value`. Names and values come escaped: a tab or line end would split it."""
    return ",".join(f"{escaped(n)}={escaped_bytes(v)}" for n, v in record.headers).encode()


# ---- a format as kcat has it


def formatted(topic: str, format: str) -> Write:
    """A line end follows unless the format ends in one, or in a zero byte."""
    parts = parse_format(format)
    if not (isinstance(parts[-1], bytes) and parts[-1].endswith((b"\n", b"\0"))):
        parts.append(b"\n")
    raw = output.raw_writer()
    own = output.write_own if sys.stdout.isatty() else raw

    def write(record: Record) -> None:
        for part in parts:
            if isinstance(part, bytes):
                own(part)
            else:
                raw(part(topic, record))

    return write


def parse_format(format: str) -> list[bytes | Callable[[str, Record], bytes]]:
    found: list[bytes | Callable[[str, Record], bytes]] = []
    for part in _PARTS.finditer(format):
        sign, escape, code = part["sign"], part["escape"], part["hex"]
        if sign is not None:
            if sign not in SIGNS:
                raise _no_format(f"there is no %{sign}")
            found.append(SIGNS[sign])
        elif code is not None:
            found.append(bytes.fromhex(code))
        elif escape is not None:
            if escape not in ESCAPES:
                raise _no_format(f"there is no \\{escape}")
            found.append(ESCAPES[escape])
        else:
            found.append(part[0].encode())
    if not found:
        raise _no_format("it is empty")
    return found


def _no_format(why: str) -> typer.BadParameter:
    return typer.BadParameter(
        f"{why}; a format has {SIGNS_IN_WORDS}, and \\n, \\t, \\r, \\0, \\xHH.",
        param_hint="--format",
    )


def _length(value: bytes | None) -> bytes:
    return b"%d" % (-1 if value is None else len(value))
