"""Regular expressions that clients send: bounded, compiled once, matched in steps.

RE2 takes time in proportion to the text times the size of the compiled program, and a pattern of
nine characters can have a program of thousands of instructions. So the program is bounded, and what
compiling alone costs is bounded by the length of the pattern. Names are tried in steps of about a
millisecond. A pattern must match the whole name, as in Apache Kafka. Groups do not capture: for
captures RE2 leaves its automaton, which took 100 times as long for hostile patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import re2

from headrace.wire.protocol.errors import ErrorCode, KafkaError

# A program has an automaton in memory; RE2's default of 8 MiB each would be too much for the 128
# programs that the library keeps.
PROGRAM_MEMORY_BYTES = 1 << 20
# 240 names of 17 characters. The most expensive pattern of this length that passes the next bound
# is compiled in 20 ms (2026-11-18, AMD EPYC).
LONGEST_PATTERN = 4_096
# A class of Unicode such as \pL has hundreds of ranges: it is compiled in 75 us, though it has
# three characters.
MOST_UNICODE_CLASSES = 40
# 100 names as alternatives have a program of 1,100 instructions, `[\p{L}\p{N}._-]+` of 1,350.
# 249 characters through a hostile program of this size take 7 ms, through an honest one 2 us.
MOST_INSTRUCTIONS = 5_000
# Instructions times characters of one step. Hostile programs take 5 ns for each.
WORK_PER_STEP = 200_000
# A call costs as much as this many instructions times characters of a hostile program.
WORK_PER_NAME = 400
USUAL_NAME = 64

_OPTIONS = re2.Options()
_OPTIONS.max_mem = PROGRAM_MEMORY_BYTES
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True


class Pattern:
    __slots__ = ("_fullmatch", "instructions")

    def __init__(self, regex: str, field: str) -> None:
        """Raises INVALID_REGULAR_EXPRESSION if it is not valid, or too large; `field` is that of
        the request."""
        if len(regex) > LONGEST_PATTERN:
            raise _refusal(f"{field} has more than {LONGEST_PATTERN} characters.")
        if regex.count("\\p") + regex.count("\\P") > MOST_UNICODE_CLASSES:
            raise _refusal(f"{field} has more than {MOST_UNICODE_CLASSES} classes of Unicode.")
        try:
            program = re2.compile(regex, _OPTIONS)  # the library keeps the last 128
        except re2.error as wrong:
            said = f"{field} `{regex}` is not a valid regular expression: {_text(wrong)}."
            raise _refusal(said) from wrong
        self.instructions: int = program.programsize
        if self.instructions > MOST_INSTRUCTIONS:
            raise _refusal(
                f"{field} is too complex: compiled, it has {self.instructions} instructions, and "
                f"{MOST_INSTRUCTIONS} are allowed. Repetitions such as {{100}} make many."
            )
        self._fullmatch: Callable[[str], Any] = program.fullmatch

    def matches(self, name: str) -> bool:
        return self._fullmatch(name) is not None

    @property
    def work_per_name(self) -> int:
        """Returns the approximate cost of a hostile program for a name of USUAL_NAME characters."""
        return self.instructions * USUAL_NAME + WORK_PER_NAME

    def matching(self, names: Iterable[str]) -> Generator[None, None, set[str]]:
        """Returns the names that it matches; yields where other work may run."""
        found: set[str] = set()
        done = 0
        for name in names:
            if self.matches(name):
                found.add(name)
            done += self.instructions * len(name) + WORK_PER_NAME
            if done >= WORK_PER_STEP:
                done = 0
                yield
        return found


def _refusal(said: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, said)


def _text(wrong: Exception) -> str:
    said = wrong.args[0] if wrong.args else "no reason given"
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
