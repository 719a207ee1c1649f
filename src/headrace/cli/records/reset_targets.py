"""Where a group is put by `headrace groups reset`, as people and files say it.

Topics with or without partitions, moments, durations, and files of places: `topic,partition,offset`
as Apache's tool exports them for one group, or with the group in front as it does for several.
An invalid line is reported with its number; nothing is guessed.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import typer

from headrace.cli.failure import Failure
from headrace.client.admin.groups import Move, Place
from headrace.wire.contract import durations

STDIN = Path("-")

# Milliseconds since 1970 have had 12 digits or more since 1973; 20260131 is a date.
SHORTEST_EPOCH_MS = 12
LAST_EPOCH_MS = 253_402_300_799_999  # the end of the year 9999

# No topic has more: a span beyond is a slip of the finger.
MOST_PARTITIONS = 200_000

_ISO_DURATION = re.compile(r"P(?=.)(\d+W)?(\d+D)?(?:T(?=.)(\d+H)?(\d+M)?(\d+S)?)?", re.ASCII)
_AGO = re.compile(r"(\d+(w|d|h|m|s|ms))+|P.+", re.IGNORECASE | re.ASCII)
_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


def topic_and_partitions(said: str) -> tuple[str, list[int]]:
    """`orders:0-3,7` is the topic and five of its partitions; `orders` alone has none, for all."""
    topic, colon, numbers = said.partition(":")
    if not colon:
        return topic, []
    found: dict[int, None] = {}
    for word in numbers.split(","):
        span = _SPAN.fullmatch(word.strip())
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (1, 0)
        if not topic or not first <= last < MOST_PARTITIONS:
            raise typer.BadParameter(
                f"{said!r} is not a topic with partitions such as orders:0-3,7.",
                param_hint="--topic",
            )
        found |= dict.fromkeys(range(first, last + 1))
    return topic, list(found)


def moment_ms(text: str, *, option: str = "--to-time") -> int:
    """Milliseconds since 1970. ISO 8601, without a zone the time of this machine, or the number."""
    text = text.strip()
    try:
        if text.isdecimal() and len(text) >= SHORTEST_EPOCH_MS:
            moment = int(text)
        else:
            moment = int(datetime.fromisoformat(text).timestamp() * 1000)
        if moment <= LAST_EPOCH_MS:
            return moment
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(
        f"{text!r} is not a time such as 2026-01-31T12:00, 2026-01-31T12:00:00.000Z, or "
        "milliseconds since 1970.",
        param_hint=option,
    )


def when_ms(text: str | None, *, option: str = "--to-time") -> int | None:
    """A moment, or how long ago: `2026-01-31T12:00`, `30m`."""
    if text is None:
        return None
    if _AGO.fullmatch(text.strip()):
        return int(time.time() * 1000) - duration_ms(text, option=option)
    return moment_ms(text, option=option)


def duration_ms(text: str, *, option: str = "--by-duration") -> int:
    """`30m`, `1h30m`, `7d`, or ISO 8601 as Apache's tool takes it: `PT30M`, `P7D`."""
    plain = text.strip()
    if iso := _ISO_DURATION.fullmatch(plain.upper()):
        plain = "".join(part for part in iso.groups() if part).lower()
    try:
        if not plain.isdecimal():  # of what? Elsewhere a bare number means milliseconds
            return durations.parse(plain)
    except ValueError:
        pass
    raise typer.BadParameter(
        f"{text!r} is not a duration such as 30m, 12h, 7d, 1h30m or PT30M.",
        param_hint=option,
    )


def read_places(path: Path, group: str) -> dict[Place, int]:
    """The places of `group` in a file; lines of other groups are passed over."""
    found: dict[Place, int] = {}
    for number, fields in _lines(path):
        if len(fields) == 4:
            if fields[0] != group:
                continue
            del fields[0]
        try:
            topic, partition, offset = fields
            place, to = (topic, int(partition)), int(offset)
        except ValueError:
            raise Failure(f"Line {number} of {path} is not topic,partition,offset.") from None
        if place in found:
            raise Failure(f"Line {number} of {path} names {topic}-{partition} a second time.")
        found[place] = to
    if not found:
        raise Failure(f"{path} has no offset for group {group}.")
    return found


def _lines(path: Path) -> Iterable[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    try:
        # Spreadsheets put a mark before the first character.
        text = sys.stdin.read() if path == STDIN else path.read_text("utf-8-sig")
    except OSError as failure:
        raise Failure(f"Cannot read {path}: {failure.strerror}.") from failure
    except UnicodeDecodeError as failure:
        raise Failure(f"{path} is not a text file: {failure.reason}.") from failure
    lines = csv.reader(text.splitlines(), skipinitialspace=True)
    try:
        for fields in lines:
            if any(field.strip() for field in fields):
                yield lines.line_num, [field.strip() for field in fields]
    except csv.Error as failure:
        raise Failure(f"Line {lines.line_num} of {path} is not CSV: {failure}.") from failure


def exported(moves: Iterable[Move]) -> str:
    """Lines that `read_places` and Apache's tool read."""
    text = io.StringIO()
    rows = ((move.topic, move.partition, move.target) for move in moves)
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
