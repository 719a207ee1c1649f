"""The instruction of a record of the intake: a schedule, a cancel, or an invalid one.

A pure function of the record: the delay counts from the append time the broker stamped, never from
a clock, so that a record read again after a crash is due at the same moment. An invalid instruction
is rejected with a sentence for the sender; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from headrace.wire.contract import cron as crons
from headrace.wire.contract import durations, headers
from headrace.wire.contract.cron import Cron, Run

Headers = Sequence[tuple[str, bytes | None]]
# (offset, timestamp_ms, key, value, headers): an IntakeRecord, or the same as a plain tuple, which
# is built in a fifth of the time.
RecordFields = tuple[int, int, bytes | None, bytes | None, Headers | None]

# RocketMQ's, so that its users can come as they are.
_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_MS = tuple(durations.parse(level) for level in _LEVELS.split())
# Stands for headers that could not be read because of a name.
UNREADABLE: Headers = (("not UTF-8", None),)
# An id becomes part of a key in the store and of a header.
LONGEST_ID = 512
LAST_PARTITION = 2**31 - 1
# So many digits of milliseconds are less than ten years, whatever they are.
_DIGITS_OF_A_SAFE_DELAY = 11

_TIMES = (headers.DELAY, headers.DELIVER_AT, headers.DELAY_LEVEL, headers.CRON)
_CRON_PARTS = (headers.CRON_ZONE, headers.CRON_UNTIL, headers.CRON_COUNT)
# A misspelt name of these families would make a record due at once, or repeat for ever.
_FAMILIES = ("headrace-delay", "headrace-deliver", "headrace-cron", "headrace-cancel")
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DIGITS = re.compile(r"\d{1,18}", re.ASCII)


class IntakeRecord(NamedTuple):
    """One record of `<topic>.delay`. `timestamp_ms` is the broker's append time."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


@dataclass(slots=True)
class Schedule:
    """Deliver at `due_ms`. `headers` are passed on to the delivered record; None: it has none."""

    due_ms: int
    headers: list[tuple[str, bytes | None]] | None
    partition: int | None = None
    id: str | None = None
    cron: Cron | None = None  # `due_ms` is its first run


@dataclass(slots=True)
class Cancel:
    id: str


@dataclass(slots=True)
class Rejected:
    """`reason` is a sentence for the person who sent the record."""

    reason: str


def read_instruction(record: RecordFields) -> Schedule | Cancel | Rejected:
    _, appended_ms, _, value, given = record
    if appended_ms < 0:
        return Rejected("the record has no append time: its topic needs LogAppendTime")
    if not given:
        return Schedule(appended_ms, None)
    asked: dict[str, bytes | None] = {}
    handed_on: list[tuple[str, bytes | None]] = []
    try:
        for header in given:
            name = header[0]
            if name in headers.NOT_HANDED_ON:
                if name in asked and name in headers.INSTRUCTIONS:
                    raise ValueError(f"the header {name} is there twice")
                asked[name] = header[1]
            elif given is UNREADABLE:
                raise ValueError("a header's name is not UTF-8 text, so no header can be read")
            elif name.startswith(_FAMILIES):
                raise ValueError(f"no header {name[:100]} exists: see docs/guide/delay-contract.md")
            else:
                handed_on.append(header)
        delay = asked.get(headers.DELAY)
        if len(asked) == 1 and delay is not None:  # nearly all records
            if delay.isdigit() and len(delay) <= _DIGITS_OF_A_SAFE_DELAY:
                return Schedule(appended_ms + int(delay), handed_on or None)
            return Schedule(appended_ms + _delay_ms(delay), handed_on or None)
        return _read(asked, handed_on, appended_ms, value)
    except (ValueError, OverflowError) as error:
        return Rejected(str(error))


def _read(
    asked: dict[str, bytes | None],
    handed_on: list[tuple[str, bytes | None]],
    appended_ms: int,
    value: bytes | None,
) -> Schedule | Cancel:
    texts = {name: _text(name, raw) for name, raw in asked.items() if name in headers.INSTRUCTIONS}
    if headers.CANCEL in texts:
        return _read_cancel(texts, value)
    times = [name for name in _TIMES if name in texts]
    if len(times) > 1:
        raise ValueError(f"{' and '.join(times)} contradict each other: give one of them")
    partition = None
    if headers.PARTITION in texts:
        partition = _whole(headers.PARTITION, texts[headers.PARTITION], 0, LAST_PARTITION)
    id_ = _id(headers.ID, texts[headers.ID]) if headers.ID in texts else None
    run = _read_cron(texts, appended_ms)
    due_ms = run.due_ms if run is not None else _due_ms(texts, appended_ms)
    if headers.MESSAGE_ID in asked and id_ is None and run is None:
        # The sender's own name for one message; schedules with an id or many runs get theirs.
        handed_on.append((headers.MESSAGE_ID, asked[headers.MESSAGE_ID]))
    return Schedule(due_ms, handed_on or None, partition, id_, run.cron if run else None)


def _read_cancel(texts: dict[str, str], value: bytes | None) -> Cancel:
    if len(texts) > 1:
        others = ", ".join(name for name in texts if name != headers.CANCEL)
        raise ValueError(f"a cancel has no other instruction: {others}")
    if value is not None:
        raise ValueError("a cancel has a null value: this one has a value")
    return Cancel(_id(headers.CANCEL, texts[headers.CANCEL]))


def _due_ms(texts: dict[str, str], appended_ms: int) -> int:
    if headers.DELAY in texts:
        return appended_ms + _delay_ms(texts[headers.DELAY].encode())
    if headers.DELAY_LEVEL in texts:
        level = _whole(headers.DELAY_LEVEL, texts[headers.DELAY_LEVEL], 1, len(LEVELS_MS))
        return appended_ms + LEVELS_MS[level - 1]
    if headers.DELIVER_AT in texts:
        due_ms = _moment_ms(headers.DELIVER_AT, texts[headers.DELIVER_AT])
        if due_ms - appended_ms > durations.LONGEST_DELAY_MS:
            raise ValueError(
                f"{headers.DELIVER_AT} {texts[headers.DELIVER_AT]} is more than ten years ahead"
            )
        return due_ms
    return appended_ms


def _read_cron(texts: dict[str, str], appended_ms: int) -> Run | None:
    if headers.CRON not in texts:
        if parts := [name for name in _CRON_PARTS if name in texts]:
            raise ValueError(f"{parts[0]} means nothing without {headers.CRON}")
        return None
    until_ms = runs = None
    if headers.CRON_UNTIL in texts:
        until_ms = _moment_ms(headers.CRON_UNTIL, texts[headers.CRON_UNTIL])
    if headers.CRON_COUNT in texts:
        runs = _whole(headers.CRON_COUNT, texts[headers.CRON_COUNT], 1, crons.MOST_RUNS)
    cron = crons.read(texts[headers.CRON], texts.get(headers.CRON_ZONE, "UTC"), until_ms, runs)
    run = crons.first_run(cron, appended_ms)
    if run is None:
        raise ValueError(f"the cron expression '{cron.expression}' has no run in its time")
    return run


@lru_cache(maxsize=4_096)
def _delay_ms(raw: bytes) -> int:
    delay_ms = durations.parse(_text(headers.DELAY, raw))
    if delay_ms > durations.LONGEST_DELAY_MS:
        raise ValueError(f"{headers.DELAY} {raw.decode()[:100]} is longer than ten years")
    return delay_ms


def _text(name: str, raw: bytes | None) -> str:
    if raw is None:
        raise ValueError(f"the header {name} has no value")
    try:
        return raw.decode().strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"the header {name} is not UTF-8 text: {raw[:50]!r}") from error


def _id(name: str, text: str) -> str:
    if not 1 <= len(text) <= LONGEST_ID:
        raise ValueError(f"the id in {name} has {len(text)} characters, 1 to {LONGEST_ID} are fine")
    return text


def _whole(name: str, text: str, least: int, most: int) -> int:
    if _DIGITS.fullmatch(text) is None or not least <= int(text) <= most:
        raise ValueError(f"{name} is a whole number from {least} to {most}, not '{text[:100]}'")
    return int(text)


def _moment_ms(name: str, text: str) -> int:
    """Milliseconds since 1970, from themselves or from RFC 3339 rounded up: never early."""
    if _DIGITS.fullmatch(text) is not None:
        return int(text)
    if _RFC_3339.fullmatch(text) is None:
        raise ValueError(
            f"{name} is milliseconds since 1970 or a time like 2030-01-31T08:00:00Z with its "
            f"offset, not '{text[:100]}'"
        )
    try:
        moment = datetime.fromisoformat(text.upper().replace(" ", "T"))
    except ValueError as error:
        raise ValueError(f"{name}: there is no such time as {text}: {error}") from error
    microseconds = round(moment.replace(microsecond=0).timestamp()) * 1_000_000
    microseconds += moment.microsecond
    if microseconds < 0:
        raise ValueError(f"{name} {text} is before 1970")
    return -(-microseconds // 1000)
