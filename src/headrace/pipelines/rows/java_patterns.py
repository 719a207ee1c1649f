"""Regular expressions of pydantic (the Rust crate regex) as Java's. Knows no Spark.

Both search for a match. Only syntax that both read alike is accepted: classes of plain characters,
groups without a flag, alternatives, repetitions, `^`, `$`, `.`, `\\d`, `\\w`, `\\s`. `$` is the
very end and `.` everything but a line feed in Rust, and its classes know all of Unicode; the result
writes this in Java's syntax. Everything else is refused. Pydantic has compiled the pattern before.
"""

from __future__ import annotations

import re

WORD = r"\p{IsAlphabetic}\p{M}\p{Nd}\p{Pc}\p{IsJoin_Control}"
INSIDE = {"d": r"\p{Nd}", "D": r"\P{Nd}", "s": r"\p{IsWhite_Space}", "S": r"\P{IsWhite_Space}"}
ESCAPED = frozenset(r"\.+*?()[]{}|^$-/") | frozenset("ntr")
REPEATED = re.compile(r"\{\d{1,4}(,\d{0,4})?\}")


class NotTheSame(ValueError):
    """The pattern may mean something else in Java."""


def as_java(pattern: str) -> str:
    """Raises NotTheSame."""
    made, at, repeated = ["(?d)"], 0, False
    while at < len(pattern):
        part, length, repeats = _part(pattern, at)
        if repeats and repeated:
            raise NotTheSame("two repetitions in a row")
        made.append(part)
        at, repeated = at + length, repeats
    return "".join(made)


def _part(pattern: str, at: int) -> tuple[str, int, bool]:
    """Returns Java's spelling of the part at a place, its length, and whether it is a
    repetition."""
    letter = pattern[at]
    if letter == "\\":
        return _escape(pattern[at + 1 : at + 2]), 2, False
    if letter == "[":
        return *_class(pattern, at), False
    if letter == "(":
        if pattern.startswith("(?", at) and not pattern.startswith("(?:", at):
            raise NotTheSame("a group with a flag")
        return ("(?:", 3, False) if pattern.startswith("(?:", at) else ("(", 1, False)
    if letter in "*+?":
        lazy = pattern.startswith("?", at + 1)
        return letter + "?" * lazy, 1 + lazy, True
    if letter == "{":
        if (found := REPEATED.match(pattern, at)) is None:
            raise NotTheSame("a brace")
        lazy = pattern.startswith("?", found.end())
        return found[0] + "?" * lazy, len(found[0]) + lazy, True
    if letter in "]}":
        raise NotTheSame("a bracket that closes nothing")
    return (r"\z" if letter == "$" else letter), 1, False


def _escape(letter: str) -> str:
    if letter == "w":
        return f"[{WORD}]"
    if letter == "W":
        return f"[^{WORD}]"
    if letter in INSIDE:
        return INSIDE[letter]
    if letter not in ESCAPED or not letter:
        raise NotTheSame(f"\\{letter}")
    return f"\\{letter}"


def _class(pattern: str, begin: int) -> tuple[str, int]:
    made, at = ["["], begin + 1
    if pattern.startswith("^", at):
        made.append("^")
        at += 1
    if pattern.startswith("]", at):
        raise NotTheSame("a bracket within a class")
    while not pattern.startswith("]", at):
        letter = pattern[at : at + 1]
        if letter in ("", "[") or pattern[at : at + 2] in ("&&", "--", "~~"):
            raise NotTheSame("a class within a class")
        if letter == "\\":
            escaped = pattern[at + 1 : at + 2]
            if escaped == "W":
                raise NotTheSame("\\W within a class")
            made.append(WORD if escaped == "w" else _escape(escaped))
            at += 2
            continue
        made.append("\\^" if letter == "^" else letter)
        at += 1
    return "".join([*made, "]"]), at + 1 - begin
