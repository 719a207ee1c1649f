"""Reads the records of topics that Headrace keeps for itself, and skips what it has not written.

Every client with the right to write to such a topic can write anything there, and the records stay:
one that makes its reader fail would do so again after every restart. So all readers of our own
topics decode by `json_object`, which is bounded in size, depth and the range of numbers, and read
through `OwnRecords`, which skips, counts and logs a record that cannot be read (`skipped_families`
has the metric of this process). This module uses no client and no clock.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from headrace.foreign_text import escaped
from headrace.prometheus_text import Family

LARGEST_BYTES: Final = 1 << 20  # Kafka's default limit of a batch
DEEPEST: Final = 16  # our own records nest four deep
SMALLEST_NUMBER: Final = -(2**63)
LARGEST_NUMBER: Final = 2**63 - 1
# A number of 64 bits has fewer characters: longer ones are not converted.
LONGEST_NUMBER: Final = 20
LAST_MOMENT_MS: Final = 253_402_300_799_999  # the end of the year 9999
# A record is logged once, even if its topic is read again and again.
MOST_LOGGED: Final = 1_000
# What a parser of such a record may raise for a record that Headrace has not written.
FAULTS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)

T = TypeVar("T")

# Records that were skipped by this process, by topic. Read by other threads.
_skipped: Counter[str] = Counter()


class UnreadableRecord(ValueError):
    """A record cannot be read; the message names the fault, without the record's contents."""


class OwnRecords:
    """Reads one topic; `skipped` counts the records that could not be read since it was made."""

    __slots__ = ("topic", "skipped", "_log", "_logged")

    def __init__(self, topic: str, log: logging.Logger) -> None:
        self.topic = topic
        self.skipped = 0
        self._log = log
        self._logged: set[tuple[int, int]] = set()

    def read(
        self,
        parse: Callable[[bytes | None, bytes | None], T],
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int,
        offset: int,
    ) -> T | None:
        """The parsed record; None, counted and logged with its place, if it cannot be read."""
        try:
            return parse(key, value)
        except FAULTS as fault:
            self._skip(partition, offset, fault)
            return None

    def _skip(self, partition: int, offset: int, fault: BaseException) -> None:
        self.skipped += 1
        _skipped[self.topic] += 1
        if (partition, offset) in self._logged or len(self._logged) >= MOST_LOGGED:
            return
        self._logged.add((partition, offset))
        self._log.warning(
            "%s-%d, offset %d: the record cannot be read and is skipped: %s",
            *(self.topic, partition, offset, reason_of(fault)),
        )


def skipped_families() -> Iterator[Family]:
    """The metric of skipped records, if there were any."""
    if _skipped:
        yield Family(
            "headrace_unreadable_records_total",
            "counter",
            "Records of Headrace's own topics that could not be read and were skipped.",
            [({"topic": topic}, count) for topic, count in sorted(_skipped.items())],
        )


def reason_of(fault: BaseException) -> str:
    """One short printable line in ASCII, without long contents of the record."""
    said = str(fault) or type(fault).__name__
    if isinstance(fault, KeyError):
        said = f"it has no field {said}"
    return escaped(said[:200]).encode("ascii", "backslashreplace").decode()


def json_object(value: bytes | str | None) -> dict[str, Any]:
    """The JSON object that a record's value holds.

    Raises UnreadableRecord for everything else: no JSON, another type, too large, too deep, a key
    that comes twice, text that is not Unicode, NaN and numbers beyond 64 bits.
    """
    text = _text(value)
    try:
        found = json.loads(
            text,
            object_pairs_hook=_without_doubles,
            parse_constant=_refuse_constant,
            parse_float=_small_float,
            parse_int=_small_int,
        )
    except RecursionError:
        raise UnreadableRecord(f"it nests deeper than {DEEPEST}") from None
    except UnreadableRecord:
        raise
    except ValueError as fault:
        raise UnreadableRecord(f"it is not JSON: {fault}") from None
    if not isinstance(found, dict):
        raise UnreadableRecord("it is not a JSON object")
    _require_sound(found)
    return found


def whole_number(said: Any) -> int:
    """A number of 64 bits; raises UnreadableRecord for text, fractions and true or false."""
    if type(said) is not int or not SMALLEST_NUMBER <= said <= LARGEST_NUMBER:
        raise UnreadableRecord(f"{repr(said)[:40]} is not a whole number of 64 bits")
    return said


def moment_ms(said: Any) -> int:
    """Milliseconds since 1970, up to the year 9999."""
    if not 0 <= whole_number(said) <= LAST_MOMENT_MS:
        raise UnreadableRecord(f"{said} is not a moment in milliseconds")
    return whole_number(said)


def key_text(key: bytes | None) -> str:
    """A record's key as text; raises UnreadableRecord if it is none, or too long."""
    return _text(key)


def _text(said: bytes | str | None) -> str:
    if said is None:
        raise UnreadableRecord("it is empty")
    if len(said) > LARGEST_BYTES:
        raise UnreadableRecord(f"it has more than {LARGEST_BYTES} bytes")
    if isinstance(said, str):
        return said
    try:
        return said.decode()
    except UnicodeDecodeError as fault:
        raise UnreadableRecord(f"it is not UTF-8: {fault.reason}") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UnreadableRecord("a field comes twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise UnreadableRecord(f"{name} is not a number of JSON")


def _small_int(text: str) -> int:
    if len(text) <= LONGEST_NUMBER:
        return whole_number(int(text))
    raise UnreadableRecord("a number has more than 64 bits")


def _small_float(text: str) -> float:
    number = float(text)
    if not SMALLEST_NUMBER <= number <= LARGEST_NUMBER:
        raise UnreadableRecord("a number has more than 64 bits")
    return number


def _require_sound(document: dict[str, Any]) -> None:
    """Checks the depth, and that all text can be written again. Without recursion."""
    level: list[Any] = [document]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += each.keys()
                below += each.values()
            elif isinstance(each, list):
                below += each
            elif isinstance(each, str) and not each.isascii():
                _require_unicode(each)
        if not below:
            return
        level = below
    raise UnreadableRecord(f"it nests deeper than {DEEPEST}")


def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair, as JSON's \ud800 can say
        raise UnreadableRecord("a text is not Unicode") from None
