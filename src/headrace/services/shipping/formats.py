"""The text of a log line becomes an entry: time, level, message, fields. Pure.

Nothing is refused: a line that is not in the format that was named is an entry of plain text whose
`problem` says so. `auto` looks at each line by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from headrace.contract.logs import ERROR, INFO, WARN, level_of
from headrace.services.shipping.moments import moment_ms, web_ms

AUTO, JSON, LOGFMT, WEB, TEXT = "auto", "json", "logfmt", "web", "text"

TIMES = ("time", "timestamp", "@timestamp", "ts", "t", "datetime", "asctime", "date")
LEVELS = ("level", "severity", "lvl", "levelname", "log.level", "loglevel")
MESSAGES = ("message", "msg", "event", "body", "text")
SERVICES = ("service", "service.name", "app", "application")
STACKS = ("stack", "exception", "exc_info", "stack_trace", "stacktrace", "error.stack_trace")
# More names than this in one line are data, not a log: the rest goes into one field.
MOST_FIELDS = 200
REST = "headrace_rest"

PAIR = re.compile(r"""([A-Za-z_@][\w.@/-]*)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s+|$)""")
ACCESS = re.compile(
    r'(\S+) (\S+) (\S+) \[([^\]]+)\] "((?:[^"\\]|\\.)*)" (\d{3}) (\d+|-)'
    r'(?: "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)")?(.*)'
)
TIME = re.compile(
    r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?)\]?[\s:-]*"
)
LEVEL = re.compile(
    r"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|SEVERE|CRITICAL|FATAL|PANIC)\b"
    r"|[\[<(](trace|debug|info|notice|warn|warning|error|crit|critical|fatal|alert|emerg)[\]>):]"
    r"|\b(Traceback \(most recent call last\):|Exception in thread )"
)
LEVEL_WITHIN = 200  # characters: further behind it is a word of the message


@dataclass(slots=True)
class Entry:
    """What a line says; None where it says nothing of it."""

    message: str
    time_ms: int | None = None
    level: str | None = None
    service: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    problem: str | None = None


Parse = Callable[[str, tzinfo], Entry | None]


def parsed(text: str, form: str = AUTO, zone: tzinfo = UTC) -> Entry:
    """`zone` is that of times that name none."""
    if form == AUTO:
        return _recognized(text, zone)
    found = PARSERS[form](text, zone)
    if found is not None:
        return found
    entry = _text(text, zone)
    entry.problem = f"not {form}"
    return entry


def _recognized(text: str, zone: tzinfo) -> Entry:
    if text[:1] == "{":
        found = _json(text, zone)
    elif '] "' in text and (web := _web(text, zone)) is not None:
        found = web
    else:
        found = _logfmt(text, zone) if "=" in text else None
        if found is not None and (found.message == text or found.level is None):
            found = None  # some words with = among them
    return found or _text(text, zone)


# ---- formats; None for a text that is not in it


def _json(text: str, zone: tzinfo) -> Entry | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _from_fields(found, text, zone) if isinstance(found, dict) else None


def _logfmt(text: str, zone: tzinfo) -> Entry | None:
    found: dict[str, Any] = {}
    at = 0
    while at < len(text):
        pair = PAIR.match(text, at)
        if pair is None:
            return None
        name, value = pair.groups()
        found[name] = _unquoted(value) if value[:1] == '"' else value
        at = pair.end()
    return _from_fields(found, text, zone) if found else None


def _web(text: str, zone: tzinfo) -> Entry | None:
    """Common and combined format; what a server adds behind them is the field `more`."""
    found = ACCESS.fullmatch(text)
    if found is None or (time_ms := web_ms(found[4])) is None:
        return None
    client, _, user, _, request, status, size, referrer, agent, more = found.groups()
    fields = {"client": client, "status": status}
    method, _, rest = request.partition(" ")
    path, _, version = rest.rpartition(" ")
    if path and version.startswith("HTTP/"):
        fields |= {"method": method, "path": path}
    given = {"user": user, "bytes": size, "referrer": referrer, "agent": agent}
    fields |= {name: value for name, value in given.items() if value not in (None, "-", "")}
    if more.strip():
        fields["more"] = more.strip()
    level = ERROR if status >= "500" else WARN if status >= "400" else INFO
    return Entry(f"{request} {status}", time_ms, level, fields=fields)


def _text(text: str, zone: tzinfo) -> Entry:
    began = TIME.match(text)
    time_ms = None if began is None else moment_ms(began[1].replace(" Z", "Z"), zone)
    message = text if began is None or time_ms is None else text[began.end() :]
    found = LEVEL.search(text, 0, LEVEL_WITHIN)
    level = None
    if found is not None:
        level = ERROR if found[3] else level_of(found[1] or found[2])
    return Entry(message, time_ms, level)


PARSERS: dict[str, Parse] = {JSON: _json, LOGFMT: _logfmt, WEB: _web, TEXT: _text}
FORMATS = (AUTO, *PARSERS)


# ---- fields


def _from_fields(found: dict[str, Any], text: str, zone: tzinfo) -> Entry:
    """A name that says the time, the level or the message is taken out; the others are fields."""
    entry = Entry(text)
    for name in TIMES:
        if name in found and (time_ms := moment_ms(found[name], zone)) is not None:
            entry.time_ms = time_ms
            del found[name]
            break
    for name in LEVELS:
        said = found.get(name)
        if isinstance(said, str | int) and (level := level_of(str(said))) is not None:
            entry.level = level
            del found[name]
            break
    for name in MESSAGES:
        if isinstance(found.get(name), str):
            entry.message = found.pop(name)
            break
    for name in SERVICES:
        if isinstance(found.get(name), str) and found[name]:
            entry.service = found.pop(name)
            break
    for name in STACKS:
        if isinstance(found.get(name), str) and found[name]:
            entry.message = f"{entry.message}\n{found.pop(name)}"
            break
    entry.fields = as_text(found)
    return entry


def as_text(fields: Mapping[str, Any]) -> dict[str, str]:
    """Names and values as text; what is no text is JSON."""
    names = list(fields)
    made = {str(name): _as_text(fields[name]) for name in names[:MOST_FIELDS]}
    if rest := names[MOST_FIELDS:]:
        made[REST] = _as_text({name: fields[name] for name in rest})
    return made


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), value[1:-1], flags=re.DOTALL)
