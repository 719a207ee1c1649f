"""Turns the body of a request into records: the good events, and the errors of the others.

A body is one event or a list of them, in JSON. An event with an error is left out and its error
named, by its place in the list and its field; the others are kept. Pure: the time is given.

`time` is ISO 8601 with its zone; browsers whose clocks are wrong give `age_ms` instead, how long
before the request it happened; without both it is the moment of the request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from headrace.wire.contract.tracking import DATE, KINDS, NUMBER, TEXT, Field, Kind, time_text

# An event that waited longer in a browser belongs to no live number; a clock that is ahead by more
# than this is wrong, and one such event would push every watermark.
OLDEST_MS = 31 * 86_400_000
AHEAD_MS = 5 * 60_000
LARGEST_NUMBER = 2**63 - 1

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Unreadable(Exception):
    """The body as a whole cannot be taken; the text says why."""


class TooMany(Unreadable):
    """More events than one request may hold."""


class _Wrong(Exception):
    """The error of one field of one event."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


@dataclass(slots=True)
class Fault:
    event: int
    field: str
    why: str


@dataclass(slots=True)
class Event:
    """As it goes to the producer."""

    topic: str
    key: bytes
    value: bytes


@dataclass(slots=True)
class Batch:
    good: list[Event] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    bytes: int = 0  # keys and values of the good ones

    def __len__(self) -> int:
        return len(self.good) + len(self.faults)


def read(body: bytes, *, most: int, received_ms: int, new_id: Callable[[], str]) -> Batch:
    """Every event of a body, at most `most`."""
    try:
        given = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as failure:
        raise Unreadable(f"The body is not JSON: {failure}.") from None
    events = given if isinstance(given, list) else [given]
    if not events:
        raise Unreadable("The body is an empty list.")
    if len(events) > most:
        raise TooMany(f"{len(events)} events in one request: at most {most} are taken.")
    batch = Batch()
    for index, event in enumerate(events):
        try:
            made = _event(event, received_ms, new_id)
        except _Wrong as wrong:
            batch.faults.append(Fault(index, wrong.name, str(wrong)))
        else:
            batch.good.append(made)
            batch.bytes += len(made.key) + len(made.value)
    return batch


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _event(given: Any, received_ms: int, new_id: Callable[[], str]) -> Event:
    if not isinstance(given, dict):
        raise _Wrong("", "an event is a JSON object")
    kind = _kind(given)
    known = {one.name for one in kind.fields}
    for name in given:
        if name not in known and name not in ("kind", "age_ms"):
            raise _Wrong(str(name)[:64], f"a {kind.name} has no such field")
    value: dict[str, Any] = {}
    for one in kind.fields:
        if one.name == "time":
            value["time"] = time_text(_moment(given, received_ms))
        elif given.get(one.name) is not None:
            value[one.name] = _checked(one, given[one.name])
        elif one.name == "id":
            value["id"] = new_id()
        elif one.needed:
            raise _Wrong(one.name, "is missing")
    return Event(kind.topic, value["visitor"].encode(), _dumps(value).encode())


def _kind(given: dict[str, Any]) -> Kind:
    name = given.get("kind")
    found = KINDS.get(name) if isinstance(name, str) else None
    if found is None:
        raise _Wrong("kind", f"is one of {', '.join(KINDS)}")
    return found


def _checked(one: Field, value: Any) -> str | int:
    if one.type == NUMBER:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _Wrong(one.name, "is a whole number")
        if not 0 <= value <= LARGEST_NUMBER:
            raise _Wrong(one.name, f"must be between 0 and {LARGEST_NUMBER}")
        return value
    if not isinstance(value, str):
        raise _Wrong(one.name, "is text")
    if one.type == DATE:
        return _day(one.name, value)
    assert one.type == TEXT
    if not value:
        raise _Wrong(one.name, "is empty")
    if len(value) > one.longest:
        raise _Wrong(one.name, f"has {len(value)} characters, at most {one.longest} are taken")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a pair, as JSON's \ud800 can say
            raise _Wrong(one.name, "is not valid Unicode") from None
    return value


def _day(name: str, text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise _Wrong(name, "is a day, such as 2026-01-31") from None


def _moment(given: dict[str, Any], received_ms: int) -> int:
    """When it happened, in milliseconds since 1970."""
    said, age_ms = given.get("time"), given.get("age_ms")
    if said is None and age_ms is None:
        return received_ms
    if said is not None and age_ms is not None:
        raise _Wrong("age_ms", "replaces time: give one of them")
    if said is None:
        if not isinstance(age_ms, int) or isinstance(age_ms, bool) or not 0 <= age_ms <= OLDEST_MS:
            raise _Wrong("age_ms", f"is a whole number between 0 and {OLDEST_MS}")
        return received_ms - age_ms
    at_ms = _milliseconds(said)
    if at_ms > received_ms + AHEAD_MS:
        raise _Wrong("time", f"is more than {AHEAD_MS // 60_000} minutes in the future")
    if at_ms < received_ms - OLDEST_MS:
        raise _Wrong("time", f"is older than {OLDEST_MS // 86_400_000} days")
    return at_ms


def _milliseconds(said: Any) -> int:
    try:
        moment = datetime.fromisoformat(said)
        if moment.tzinfo is not None:
            return int(moment.timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        pass
    raise _Wrong("time", "is a moment with its zone, such as 2026-01-31T12:00:00Z")
