"""A group of lines of one file becomes a record for the topic. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

from headrace.contract.headers import MESSAGE_ID
from headrace.contract.tracking import time_text
from headrace.services.shipping.formats import AUTO, Entry, parsed
from headrace.services.shipping.joining import Group

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Headers = list[tuple[str, bytes]]
# Of a record that the topic does not take as it is.
SHORT = 4096


@dataclass(slots=True, kw_only=True)
class Origin:
    """What is the same for all lines: how they are written, and where they come from."""

    host: str
    service: str | None = None
    form: str = AUTO
    zone: tzinfo = UTC

    def service_of(self, path: str) -> str:
        """As it was given, or the file's name up to its first dot."""
        return self.service or path.rpartition("/")[2].partition(".")[0] or "unnamed"


@dataclass(slots=True)
class Made:
    """A record for the producer."""

    value: bytes
    headers: Headers
    problem: bool


def record_id(file_id: str, start: int) -> str:
    return f"{file_id}:{start}"


def text_of(group: Group) -> tuple[str, str | None]:
    """The text of a group, and what was wrong with its bytes."""
    data = b"\n".join(line.rstrip(b"\r") for line in group.lines).rstrip()
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return data.decode(errors="backslashreplace"), "not UTF-8"


def made(group: Group, file_id: str, path: str, origin: Origin, read_ms: int) -> Made | None:
    """None for blank lines."""
    text, wrong = text_of(group)
    if not text:
        return None
    entry = Entry(text) if group.cut == "middle" else parsed(text, origin.form, origin.zone)
    problem = "; ".join(one for one in (entry.problem, wrong) if one) or None
    of_file = record_id(file_id, group.start)
    value: dict[str, Any] = {
        "id": of_file,
        "time": time_text(read_ms if entry.time_ms is None else entry.time_ms),
        "service": entry.service or origin.service_of(path),
        "host": origin.host,
        "level": entry.level,
        "message": entry.message,
        "file": path,
        "fields": entry.fields or None,
        "problem": problem,
        "cut": group.cut,
    }
    return Made(encoded(value), [(MESSAGE_ID, of_file.encode())], problem is not None)


def encoded(value: dict[str, Any]) -> bytes:
    """What is None is left out; half of a pair of surrogates is written as text."""
    kept = {name: one for name, one in value.items() if one is not None}
    try:
        return _dumps(kept).encode()
    except UnicodeEncodeError:
        return _dumps(_as_unicode(kept)).encode()


def _as_unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_unicode(name): _as_unicode(one) for name, one in value.items()}
    return value


def shortened(value: bytes) -> bytes:
    """The same record with the beginning of its message, for a topic that takes less."""
    whole = json.loads(value)
    whole.pop("fields", None)
    whole["message"] = whole["message"][:SHORT]
    whole["cut"] = "begin"
    whole["problem"] = "larger than the topic takes: the rest was left out"
    return encoded(whole)
