"""The topics that a member's pattern matches, among those that its client may describe.

Patterns are RE2: they take time in proportion to the names they are tried on, whatever they say, so
a hostile one cannot stall the broker. A pattern must match the whole name, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import re2

from headrace.protocol.errors import ErrorCode, KafkaError

# A pattern becomes an automaton in memory; RE2's default of 8 MiB each would be too much for many.
PATTERN_MEMORY_BYTES = 1 << 20
LONGEST_PATTERN = 10_000

_OPTIONS = re2.Options()
_OPTIONS.max_mem = PATTERN_MEMORY_BYTES
_OPTIONS.log_errors = False


class Sight(NamedTuple):
    """Which topics a client may know of: patterns match no others. All of them, if `sees` is None.

    As in Apache Kafka a group's patterns are matched with the eyes of the member whose request
    finds that topics or rights have changed; members of a group have the same rights, if sane.
    """

    sees: Callable[[str], bool] | None = None
    change: int = 0  # grows when rights change

    def of(self, names: frozenset[str]) -> frozenset[str]:
        return names if self.sees is None else frozenset(filter(self.sees, names))


EVERYTHING = Sight()


def compiled(regex: str) -> Any:
    if len(regex) > LONGEST_PATTERN:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex has more than {LONGEST_PATTERN} characters.",
        )
    try:
        return re2.compile(regex, _OPTIONS)
    except re2.error as wrong:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {_text(wrong)}.",
        ) from wrong


def _text(wrong: Exception) -> str:
    said = wrong.args[0] if wrong.args else "no reason given"
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names it matches as a whole."""
    matches = compiled(regex).fullmatch
    return frozenset(name for name in names if matches(name))
