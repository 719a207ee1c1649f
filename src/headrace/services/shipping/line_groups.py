"""Lines that belong together become one group: a message, and the stack trace below it. Pure.

A group goes on with lines that are indented, with a Python traceback below a loud line (a warning
or worse), its last line and the tracebacks it was caused by, and with a Java exception below a loud
line, its frames and causes. A line that is not text, such as JSON, is a separate group. A group is
bounded in lines and bytes; one that is longer is cut and marked. Which lines are a group follows
from the lines alone, from the group's first on, so a file read again from there gives the same.
"""

from __future__ import annotations

import re

from headrace.services.shipping.lines import BEGIN, Line

MOST_LINES = 1000
MOST_BYTES = 128 * 1024  # as JSON, at worst six times as much: a record of Kafka's default size

TRACEBACK = b"Traceback (most recent call last):"
BETWEEN = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)
LOUD = re.compile(rb"\b(?:WARN|WARNING|ERROR|SEVERE|CRITICAL|FATAL|warn|warning|error|critical)\b")
END_OF_TRACEBACK = re.compile(rb"[A-Za-z_][\w.]*(?::|\s*$)")
JAVA_EXCEPTION = re.compile(rb"(?:[A-Za-z_$][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error|Throwable)\b")
JAVA_FRAME = re.compile(rb"\s+(?:at |\.\.\. \d+ )")

# A line that begins with one of these begins a group, whatever the group before it has seen: a line
# that goes on begins with a space, a letter, `_` or `$`, or is blank. Times and addresses do not.
NEVER_GOES_ON = frozenset(bytes([byte]) for byte in b"0123456789[{<(\"'-+*#@=|/")

# The part of a trace that a group has seen.
NONE, IN_PYTHON, AFTER_PYTHON, BETWEEN_PYTHON, IN_JAVA = range(5)


class Group:
    """Lines that are one message; `cut` says why it is not whole."""

    __slots__ = ("cut", "end", "lines", "size", "start", "trace")

    def __init__(
        self, start: int, end: int, lines: list[bytes], cut: str | None = None, size: int = 0
    ) -> None:
        self.start = start
        self.end = end
        self.lines = lines
        self.cut = cut
        self.trace = NONE
        self.size = size  # bytes of its lines with a newline each

    def has_room_for(self, line: Line) -> bool:
        return len(self.lines) < MOST_LINES and self.size + len(line.data) < MOST_BYTES

    def add(self, line: Line) -> None:
        self.lines.append(line.data)
        self.size += len(line.data) + 1
        self.end = line.end


class Joiner:
    """Joins lines of one file to groups. `joins` is False for formats in which each line is a
    record."""

    def __init__(self, *, joins: bool) -> None:
        self._joins = joins
        self._open: Group | None = None

    @property
    def waits(self) -> bool:
        """Whether a group is there that the next line may belong to."""
        return self._open is not None

    def add(self, line: Line) -> list[Group]:
        """Returns the groups that are complete now."""
        found: list[Group] = []
        group = self._open
        if group is not None:
            if line.cut is None and continues(group, line.data):
                if group.has_room_for(line):
                    group.add(line)
                    return found
                group.cut = BEGIN
            found += self.flush()
        group = Group(line.start, line.end, [line.data], line.cut, len(line.data) + 1)
        if line.cut is not None or not self._joins or line.data[:1] == b"{":
            found.append(group)
        else:
            group.trace = IN_PYTHON if line.data.startswith(TRACEBACK) else NONE
            self._open = group
        return found

    def add_whole(self, start: int, lines: list[bytes]) -> list[Group]:
        """What `add` gives for these lines in turn, the first of which begins at `start`: without
        an object for each line, and without a look at traces where a line surely begins a group."""
        found: list[Group] = []
        open_group = self._open
        for data in lines:
            end = start + len(data) + 1
            first = data[:1]
            if open_group is not None:
                if first not in NEVER_GOES_ON and continues(open_group, data):
                    line = Line(start, end, data)
                    if open_group.has_room_for(line):
                        open_group.add(line)
                        start = end
                        continue
                    open_group.cut = BEGIN
                found.append(open_group)
                open_group = None
            group = Group(start, end, [data], None, end - start)
            if not self._joins or first == b"{":
                found.append(group)
            else:
                if first == b"T" and data.startswith(TRACEBACK):
                    group.trace = IN_PYTHON
                open_group = group
            start = end
        self._open = open_group
        return found

    def flush(self) -> list[Group]:
        """Returns the group that waits, as it is."""
        group, self._open = self._open, None
        return [] if group is None else [group]


def continues(group: Group, data: bytes) -> bool:
    """Returns whether the line belongs to the group; the group remembers the trace it is in."""
    first = data[:1]
    if first in (b" ", b"\t"):
        if group.trace == NONE and JAVA_FRAME.match(data):
            group.trace = IN_JAVA
        elif group.trace == AFTER_PYTHON:
            group.trace = NONE
        return True
    if not data.strip():
        return True
    if data.startswith(TRACEBACK):
        return _goes_on_with(group, IN_PYTHON)
    if group.trace == IN_PYTHON and END_OF_TRACEBACK.match(data):
        group.trace = AFTER_PYTHON
        return True
    if group.trace == AFTER_PYTHON and data.rstrip() in BETWEEN:
        group.trace = BETWEEN_PYTHON
        return True
    if group.trace == IN_JAVA:
        return data.startswith((b"Caused by: ", b"Suppressed: "))
    if JAVA_EXCEPTION.match(data) and len(group.lines) == 1:
        return _goes_on_with(group, IN_JAVA)
    return False


def _goes_on_with(group: Group, trace: int) -> bool:
    loud = group.trace == NONE and LOUD.search(group.lines[0]) is not None
    if loud or (trace == IN_PYTHON and group.trace == BETWEEN_PYTHON):
        group.trace = trace
        return True
    return False
