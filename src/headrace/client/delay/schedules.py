"""When a record is to be delivered: `delay=`, `deliver_at=`, `id=`, `cron=` of `send`, as headers.

A delayed record goes to the companion topic (`orders.delay`) with the time in a header; the delay
service moves it to `orders` when it is due. Any client may set the same headers; here they are made
from Python's own types, and a wrong schedule is refused before it is sent. The header names are
those of `headrace.wire.contract`, which the service reads too. `to_companion` builds every delayed
record that we send: for producers, for `headrace produce`, for outboxes, and for retries of apps.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any, TypedDict

from headrace.client.errors import Misuse, sentence
from headrace.client.records import HeaderList, Outgoing
from headrace.wire.contract import durations, headers
from headrace.wire.contract.delay_topics import companion_of


class When(TypedDict, total=False):
    """The arguments of `send` that make a record a delayed one; None is the same as not given."""

    delay: timedelta | str | None  # timedelta(minutes=30), "30m", "1h30m"
    deliver_at: datetime | int | str | None  # a datetime with a zone, epoch milliseconds, RFC 3339
    id: str | None  # names the schedule: a later record with it replaces it, `cancel` cancels it
    cron: str | None  # five fields; the message is sent repeatedly
    cron_zone: str | None  # "Europe/Berlin"; UTC if not given
    cron_until: datetime | int | str | None  # no run after that
    cron_count: int | None  # at most so many planned runs


TIMES = ("delay", "deliver_at", "cron")
ONLY_WITH_CRON = ("cron_zone", "cron_until", "cron_count")
LONGEST = timedelta(milliseconds=durations.LONGEST_DELAY_MS)
TOO_LONG = "A delay is at most ten years."


def delayed(record: Outgoing[Any, Any], when: When) -> Outgoing[Any, Any]:
    """The record as it goes to the companion; unchanged if `when` has no time."""
    said = schedule_headers(when)
    if not said:
        return record
    if record.timestamp_ms is not None:
        raise Misuse("A delayed record gets the time of its delivery; leave timestamp_ms away.")
    if when.get("id") is not None and record.key is None and record.partition is None:
        raise Misuse("An id is known within its partition: give the record a key as well.")
    require_understood(_with_schedule(record.headers, said))
    return to_companion(record, said)


def to_companion(record: Outgoing[Any, Any], schedule: HeaderList) -> Outgoing[Any, Any]:
    """The record addressed to the companion of its topic, with the schedule after its own headers.

    Does not check the schedule: the caller made it by `schedule_headers`.
    """
    record.headers = _with_schedule(record.headers, schedule)
    record.topic = companion_of(record.topic)
    return record


def _with_schedule(headers: HeaderList, schedule: HeaderList) -> HeaderList:
    """Replace headers of the same name by the schedule's: the service rejects a repeated name."""
    names = {name for name, _ in schedule}
    return [header for header in headers if header[0] not in names] + schedule


def require_understood(asked: HeaderList, now_ms: int | None = None) -> None:
    """Raise `Misuse` with the reason for which the service would reject a record with these
    headers. The service checks by the same rules, with the append time instead of our time.
    """
    # Time zones and cron are loaded with the first delayed record, not with every program.
    from headrace.wire.contract.delay_instructions import Rejected, read_instruction

    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    read = read_instruction((0, now_ms, None, None, asked))
    if isinstance(read, Rejected):
        raise Misuse(sentence(read.reason))


def cancelling(topic: str, id: str, key: Any, partition: int | None) -> Outgoing[Any, Any]:
    """The record that cancels the message sent under `id` with the same key."""
    if key is None and partition is None:
        raise Misuse("Cancel with the key that the record was sent with: it says where the id is.")
    return Outgoing(
        companion_of(topic), None, key, [(headers.CANCEL, _id(id))], partition, timestamp_ms=None
    )


def schedule_headers(when: When) -> HeaderList:
    """The headers for `when`, according to the contract."""
    unknown = when.keys() - When.__annotations__.keys()
    if unknown:
        raise TypeError(f"send() has no argument {min(unknown)!r}")
    given = {name: value for name, value in when.items() if value is not None}
    times = [name for name in TIMES if name in given]
    if len(times) > 1:
        raise Misuse(f"Give {' or '.join(times)}, not both: a record is due at one time.")
    orphans = [name for name in ONLY_WITH_CRON if name in given and "cron" not in given]
    if orphans:
        raise Misuse(f"{orphans[0]} belongs to cron=.")
    if "cron" in given and "id" not in given:
        raise Misuse("A cron needs an id: by it you can cancel or replace it later.")
    return [(HEADERS[name], WRITTEN[name](value)) for name, value in given.items()]


def _delay(given: Any) -> bytes:
    if isinstance(given, timedelta):
        if given < timedelta(0):
            raise Misuse(f"A delay cannot be negative, as {given} is.")
        if given > LONGEST:
            raise Misuse(TOO_LONG)
        return str(-(-given // timedelta(milliseconds=1))).encode()  # rounded up: never early
    if isinstance(given, str):
        try:
            delay_ms = durations.parse(given)
        except ValueError as failure:
            raise Misuse(sentence(str(failure))) from failure
        if delay_ms > durations.LONGEST_DELAY_MS:
            raise Misuse(TOO_LONG)
        return given.encode()
    raise Misuse(f"delay is a timedelta or a text such as '30m', not {given!r}.")


def _moment(given: Any) -> bytes:
    """Epoch milliseconds, or an RFC 3339 text as it was given."""
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise Misuse(f"{given} names no time zone: which 'now' is meant? Add tzinfo=.")
        return str(-int(-given.timestamp() * 1000 // 1)).encode()
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given).encode()
    if isinstance(given, str):
        return given.encode()
    raise Misuse(f"{given!r} is not a time: give a datetime, epoch milliseconds or RFC 3339.")


def _id(given: Any) -> bytes:
    if not isinstance(given, str) or not given:
        raise Misuse(f"An id is a text, not {given!r}.")
    return given.encode()


def _text(given: Any) -> bytes:
    return str(given).encode()


HEADERS = {
    "delay": headers.DELAY,
    "deliver_at": headers.DELIVER_AT,
    "id": headers.ID,
    "cron": headers.CRON,
    "cron_zone": headers.CRON_ZONE,
    "cron_until": headers.CRON_UNTIL,
    "cron_count": headers.CRON_COUNT,
}
WRITTEN = {
    "delay": _delay,
    "deliver_at": _moment,
    "id": _id,
    "cron": _text,
    "cron_zone": _text,
    "cron_until": _moment,
    "cron_count": _text,
}
