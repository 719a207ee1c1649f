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
from functools import lru_cache
from typing import Any

from headrace.services.shipping.moments import SECONDS_REMEMBERED, moment_ms, web_ms
from headrace.wire.contract.logs import ERROR, INFO, WARN, level_of

AUTO, JSON, LOGFMT, WEB, TEXT = "auto", "json", "logfmt", "web", "text"

TIMES = ("time", "timestamp", "@timestamp", "ts", "t", "datetime", "asctime", "date")
LEVELS = ("level", "severity", "lvl", "levelname", "log.level", "loglevel")
MESSAGES = ("message", "msg", "event", "body", "text")
SERVICES = ("service", "service.name", "app", "application")
STACKS = ("stack", "exception", "exc_info", "stack_trace", "stacktrace", "error.stack_trace")
STR_OR_INT = (str, int)
RARE = frozenset(SERVICES + STACKS)
# More names than this in one line are data, not a log: the rest goes into one field.
MOST_FIELDS = 200
REST = "headrace_rest"

# Within quotes: characters except quotes, and any character behind a backslash.
QUOTED = r'[^"\\]*(?:\\.[^"\\]*)*'
PAIR = re.compile(rf"""([A-Za-z_@][\w.@/-]*)=("{QUOTED}"|[^\s"]*)(?:\s+|$)""")
ACCESS = re.compile(
    rf'(\S+) (\S+) (\S+) \[([^\]]+)\] "({QUOTED})" (\d{{3}}) (\d+|-)'
    rf'(?: "({QUOTED})" "({QUOTED})")?(.*)'
)
WORDS = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|SEVERE|CRITICAL|FATAL|PANIC"
IN_BRACKETS = "trace|debug|info|notice|warn|warning|error|crit|critical|fatal|alert|emerg"
TRACES = ("Traceback (most recent call last):", "Exception in thread ")
# A time at the beginning of a line, and the level if it follows at once.
HEAD = re.compile(
    r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?: ?(Z|[+-]\d\d:?\d\d))?\]?[\s:-]*"
    rf"(\b(?:{WORDS})\b)?"
)
# The same as \b(?:WORDS)\b|[\[<(](?:IN_BRACKETS)[\]>):]|\b(?:TRACES). Each branch begins with a
# plain character, so re jumps to the next place that has one of these.
LEVEL = re.compile(
    "|".join(
        [rf"{one[0]}(?<!\w{one[0]}){one[1:]}\b" for one in WORDS.split("|")]
        + [rf"{re.escape(one)}(?:{IN_BRACKETS})[\]>):]" for one in "[<("]
        + [rf"{one[0]}(?<!\w{one[0]}){re.escape(one[1:])}" for one in TRACES]
    )
)
LEVEL_SAID = (
    {one: level_of(one) for one in WORDS.split("|")}
    | {
        f"{before}{one}{behind}": level_of(one)
        for before in "[<("
        for one in IN_BRACKETS.split("|")
        for behind in "]>):"
    }
    | dict.fromkeys(TRACES, ERROR)
)
LEVEL_WITHIN = 200  # characters: further behind it is a word of the message


@dataclass(slots=True)
class Entry:
    """The parsed fields of a line; None for a missing one."""

    message: str
    time_ms: int | None = None
    level: str | None = None
    service: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    problem: str | None = None


Parse = Callable[[str, tzinfo], Entry | None]


def parsed(text: str, form: str = AUTO, zone: tzinfo = UTC) -> Entry:
    """`zone` is that of times that name none."""
    if form != AUTO:
        found = PARSERS[form](text, zone)
        if found is None:
            found = _text(text, zone)
            found.problem = f"not {form}"
        return found
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


_decoded = json.JSONDecoder().raw_decode


def _json(text: str, zone: tzinfo) -> Entry | None:
    try:
        if text[:1] != "{":
            found = json.loads(text)
        else:  # what json.loads does with it, without its two searches for space around it
            found, end = _decoded(text)
            if end != len(text):
                found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _from_fields(found, text, zone) if isinstance(found, dict) else None


def _logfmt(text: str, zone: tzinfo) -> Entry | None:
    if " " in text[: text.find("=")]:
        return None  # words before the first name
    pairs: list[tuple[str, str]] = PAIR.findall(text)
    # findall leaves out what is not a pair, and does not give positions. If names and values are as
    # long as the text but for their `=` and one space between each, nothing was left out.
    if sum(len(name) + len(value) for name, value in pairs) + 2 * len(pairs) - 1 != len(text):
        pairs = _pairs(text)
    found: dict[str, Any] = dict(pairs)
    if '"' in text:
        for name, value in found.items():
            if value[:1] == '"':
                found[name] = _unquoted(value)
    return _from_fields(found, text, zone, texts=True) if found else None


def _pairs(text: str) -> list[tuple[str, str]]:
    """Returns the pairs of a text; empty if it is not a row of pairs."""
    found, at = [], 0
    while at < len(text):
        pair = PAIR.match(text, at)
        if pair is None:
            return []
        found.append((pair[1], pair[2]))
        at = pair.end()
    return found


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
        fields["method"], fields["path"] = method, path
    if user != "-":
        fields["user"] = user
    if size != "-":
        fields["bytes"] = size
    if referrer and referrer != "-":
        fields["referrer"] = referrer
    if agent and agent != "-":
        fields["agent"] = agent
    if more and (more := more.strip()):
        fields["more"] = more
    level = ERROR if status >= "500" else WARN if status >= "400" else INFO
    return Entry(f"{request} {status}", time_ms, level, fields=fields)


def _text(text: str, zone: tzinfo) -> Entry:
    message, time_ms, behind = text, None, 0
    head = HEAD.match(text)
    if head is not None:
        second, fraction, away, word = head.groups()
        behind = head.end() if word is None else head.start(4)
        time_ms = second_of(second + away if away else second, zone)
        if time_ms is not None:
            message = text[behind:]
            if fraction is not None:
                time_ms += int(fraction[:3].ljust(3, "0"))
        if word is not None and head.end() <= LEVEL_WITHIN:
            return Entry(message, time_ms, LEVEL_SAID[word])
    found = LEVEL.search(text, behind, LEVEL_WITHIN)  # a time has no level in it
    return Entry(message, time_ms, None if found is None else LEVEL_SAID[found[0]])


@lru_cache(maxsize=SECONDS_REMEMBERED)
def second_of(text: str, zone: tzinfo) -> int | None:
    """The second at the beginning of a line is mostly that of the line before."""
    return moment_ms(text, zone)


PARSERS: dict[str, Parse] = {JSON: _json, LOGFMT: _logfmt, WEB: _web, TEXT: _text}
FORMATS = (AUTO, *PARSERS)


# ---- fields


def _from_fields(found: dict[str, Any], text: str, zone: tzinfo, *, texts: bool = False) -> Entry:
    """A name that says the time, the level or the message is taken out; the others are fields.
    `texts`: all values are texts."""
    entry = Entry(text)
    for name in TIMES:
        if name in found and (time_ms := moment_ms(found[name], zone)) is not None:
            entry.time_ms = time_ms
            del found[name]
            break
    for name in LEVELS:
        said = found.get(name)
        if said is None or not isinstance(said, STR_OR_INT):
            continue
        if (level := level_of(str(said))) is not None:
            entry.level = level
            del found[name]
            break
    for name in MESSAGES:
        if isinstance(found.get(name), str):
            entry.message = found.pop(name)
            break
    if not RARE.isdisjoint(found):
        for name in SERVICES:
            if isinstance(found.get(name), str) and found[name]:
                entry.service = found.pop(name)
                break
        for name in STACKS:
            if isinstance(found.get(name), str) and found[name]:
                entry.message = f"{entry.message}\n{found.pop(name)}"
                break
    entry.fields = found if texts and len(found) <= MOST_FIELDS else as_text(found)
    return entry


def as_text(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns names and values as text; a value that is not text becomes JSON."""
    if len(fields) <= MOST_FIELDS:
        return {
            name: value if type(value) is str else _as_text(value) for name, value in fields.items()
        }
    names = list(fields)
    made = {name: _as_text(fields[name]) for name in names[:MOST_FIELDS]}
    made[REST] = _as_text({name: fields[name] for name in names[MOST_FIELDS:]})
    return made


_dumps = json.JSONEncoder(ensure_ascii=False).encode
_WORDS = {True: "true", False: "false", None: "null"}


def _as_text(value: Any) -> str:
    """Returns a value as JSON writes it, but a text as itself. For values so short, json would
    build an encoder each time."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is int:
        return int.__repr__(value)
    return _WORDS[value] if kind is bool or value is None else _dumps(value)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def _unquoted(value: str) -> str:
    if "\\" not in value:
        return value[1:-1]
    return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), value[1:-1], flags=re.DOTALL)
