"""What a line becomes, in the plainest way: each line by itself, by json and whole patterns.

The shipper's own way is quicker and must give the same bytes: `test_quick_equals_plain.py`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone

from headrace.services.shipping.formats import (
    LEVELS,
    MESSAGES,
    MOST_FIELDS,
    REST,
    SERVICES,
    STACKS,
    TIMES,
)
from headrace.services.shipping.line_groups import Joiner
from headrace.services.shipping.lines import Splitter
from headrace.services.shipping.records import AHEAD, AHEAD_MS
from headrace.wire.contract.logs import ERROR, INFO, LONGEST_SERVICE, WARN, level_of

PAIR = re.compile(r"""([A-Za-z_@][\w.@/-]*)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s+|$)""")
ACCESS = re.compile(
    r'(\S+) (\S+) (\S+) \[([^\]]+)\] "((?:[^"\\]|\\.)*)" (\d{3}) (\d+|-)'
    r'(?: "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)")?(.*)'
)
TIME = re.compile(
    r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?: ?(Z|[+-]\d\d:?\d\d))?\]?[\s:-]*"
)
LEVEL = re.compile(
    r"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|SEVERE|CRITICAL|FATAL|PANIC)\b"
    r"|[\[<(](trace|debug|info|notice|warn|warning|error|crit|critical|fatal|alert|emerg)[\]>):]"
    r"|\b(Traceback \(most recent call last\):|Exception in thread )"
)
WEB = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)")
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST_MS, LATEST_MS = 631_152_000_000, 4_102_444_800_000


def groups(chunks, most, joins):
    """One line after the other."""
    splitter, joiner = Splitter(0, most), Joiner(joins=joins)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.flush()
    found = [group for line in lines for group in joiner.add(line)]
    return found + joiner.flush()


def record(group, file_id, path, origin, read_ms):
    """Value and id; None for blank lines."""
    data = b"\n".join(line.rstrip(b"\r").strip(b"\0") for line in group.lines).rstrip()
    if group.start == 0:
        data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text, wrong = data.decode(), None
    except UnicodeDecodeError:
        text, wrong = data.decode(errors="backslashreplace"), "not UTF-8"
    if not text:
        return None
    said = entry(text, "middle" if group.cut == "middle" else origin.form, origin.zone)
    fields, time_ms, ahead = said["fields"], said["time_ms"], None
    if time_ms is not None and time_ms > read_ms + AHEAD_MS:
        fields["said_time"], time_ms, ahead = time_text(time_ms), None, AHEAD
    service = said["service"] or origin.service_of(path)
    if len(service) > LONGEST_SERVICE:
        fields["service"], service = service, service[:LONGEST_SERVICE]
    value = {
        "id": f"{file_id}:{group.start}",
        "time": time_text(read_ms if time_ms is None else time_ms),
        "service": service,
        "host": origin.host,
        "level": said["level"],
        "message": said["message"],
        "file": path,
        "fields": fields or None,
        "problem": "; ".join(one for one in (said["problem"], wrong, ahead) if one) or None,
        "cut": group.cut,
    }
    kept = {name: one for name, one in value.items() if one is not None}
    try:
        return dumped(kept).encode(), value["id"].encode()
    except UnicodeEncodeError:
        return dumped(without_halves(kept)).encode(), value["id"].encode()


def dumped(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def without_halves(value):
    if isinstance(value, dict):
        return {without_halves(name): without_halves(one) for name, one in value.items()}
    return value.encode(errors="backslashreplace").decode()


def time_text(ms):
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


# ---- formats


def entry(text, form, zone):
    if form == "middle":
        return said(text)
    if form == "auto":
        return recognized(text, zone) or plain_text(text, zone)
    parsers = {"json": of_json, "logfmt": of_logfmt, "web": of_web, "text": plain_text}
    found = parsers[form](text, zone)
    return plain_text(text, zone) | {"problem": f"not {form}"} if found is None else found


def said(message, time_ms=None, level=None, service=None, fields=None):
    found = {"message": message, "time_ms": time_ms, "level": level, "service": service}
    return found | {"fields": fields or {}, "problem": None}


def recognized(text, zone):
    if text.startswith("{"):
        return of_json(text, zone)
    web = of_web(text, zone) if '] "' in text else None
    if web is not None:
        return web
    found = of_logfmt(text, zone) if "=" in text else None
    if found is None or found["message"] == text or found["level"] is None:
        return None
    return found


def of_json(text, zone):
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return of_fields(found, text, zone) if isinstance(found, dict) else None


def of_logfmt(text, zone):
    found, at = {}, 0
    while at < len(text):
        pair = PAIR.match(text, at)
        if pair is None:
            return None
        name, value = pair.groups()
        if value[:1] == '"':
            value = re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[1]), value[1:-1], flags=re.S)
        found[name], at = value, pair.end()
    return of_fields(found, text, zone) if found else None


def of_web(text, zone):
    found = ACCESS.fullmatch(text)
    time_ms = None if found is None else web_ms(found[4])
    if time_ms is None:
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
    return said(f"{request} {status}", time_ms, level, fields=fields)


def plain_text(text, zone):
    began = TIME.match(text)
    time_ms = None
    if began is not None:
        second, fraction, away = began.groups()
        time_ms = moment_ms(second + (away or ""), zone)
        if time_ms is not None and fraction is not None:
            time_ms += int(fraction[:3].ljust(3, "0"))
    message = text if time_ms is None else text[began.end() :]
    found = LEVEL.search(text, 0, 200)
    level = None
    if found is not None:
        level = ERROR if found[3] else level_of(found[1] or found[2])
    return said(message, time_ms, level)


def of_fields(found, text, zone):
    entry = said(text)
    for name in TIMES:
        if name in found and (time_ms := moment_ms(found[name], zone)) is not None:
            entry["time_ms"] = time_ms
            del found[name]
            break
    for name in LEVELS:
        word = found.get(name)
        if isinstance(word, str | int) and (level := level_of(str(word))) is not None:
            entry["level"] = level
            del found[name]
            break
    for name in MESSAGES:
        if isinstance(found.get(name), str):
            entry["message"] = found.pop(name)
            break
    for name in SERVICES:
        if isinstance(found.get(name), str) and found[name]:
            entry["service"] = found.pop(name)
            break
    for name in STACKS:
        if isinstance(found.get(name), str) and found[name]:
            entry["message"] += f"\n{found.pop(name)}"
            break
    names = list(found)
    entry["fields"] = {name: as_text(found[name]) for name in names[:MOST_FIELDS]}
    if rest := names[MOST_FIELDS:]:
        entry["fields"][REST] = as_text({name: found[name] for name in rest})
    return entry


def as_text(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- moments


def moment_ms(given, zone):
    if isinstance(given, bool):
        return None
    if isinstance(given, int | float):
        return number_ms(given)
    if not isinstance(given, str) or len(given) > 64:
        return None
    text = given.strip()
    try:
        return between(in_ms(datetime.fromisoformat(text), zone))
    except ValueError:
        pass
    try:
        return number_ms(float(text))
    except ValueError:
        return web_ms(text)


def in_ms(moment, zone):
    aware = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment
    return (aware - EPOCH) // timedelta(milliseconds=1)


def number_ms(number):
    if not -(10**20) < number < 10**20:
        return None
    for units in (0.001, 1, 1_000, 1_000_000):
        if EARLIEST_MS <= number / units < LATEST_MS:
            return int(number / units)
    return None


def web_ms(text):
    found = WEB.fullmatch(text)
    if found is None or (month := MONTHS.find(found[2])) < 0:
        return None
    day, _, year, hour, minute, second, sign, hours, minutes = found.groups()
    away = timedelta(hours=int(hours), minutes=int(minutes))
    numbers = (int(year), month // 4 + 1, int(day), int(hour), int(minute), int(second))
    try:
        moment = datetime(*numbers, tzinfo=timezone(-away if sign == "-" else away))
    except ValueError:
        return None
    return between(in_ms(moment, UTC))


def between(ms):
    return ms if EARLIEST_MS <= ms < LATEST_MS else None
