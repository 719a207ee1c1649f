"""Java's `.properties` files, in which Kafka's settings are written.

`name=value`, `name: value` or `name value`; `#` and `!` begin a comment line; a backslash at the
end of a line continues the entry in the next one; `\\t \\n \\r \\f \\uXXXX` are understood, a
backslash before any other character leaves that character. Entries come in the order of the file
with the line they begin on. Files are UTF-8, or Latin-1 as in Java. The caller decides which of two
entries with one name counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
# The name ends at the first blank, = or : that has no backslash before it.
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


class Entry(NamedTuple):
    name: str
    value: str
    line: int


class MalformedProperties(ValueError):
    """One sentence with the line."""


def parse(content: bytes) -> list[Entry]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return [_entry(line, number) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and empty lines."""
    held, began = "", 0
    for number, line in enumerate(_LINE_END.split(text), start=1):
        stripped = line.lstrip(_BLANKS)
        if not began and (not stripped or stripped[0] in "#!"):
            continue
        began = began or number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            held += stripped[:-1]
            continue
        yield began, held + stripped
        held, began = "", 0
    if began:
        yield began, held


def _entry(line: str, number: int) -> Entry:
    found = _ENTRY.fullmatch(line)
    assert found is not None, "the pattern matches every line"
    return Entry(_unescape(found[1], number), _unescape(found[2], number), number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def replaced(found: re.Match[str]) -> str:
        escaped = found[1]
        if escaped[0] == "u":
            if len(escaped) == 1:
                raise MalformedProperties(f"line {number} has \\u without four hex digits")
            return chr(int(escaped[1:], 16))
        return _ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(replaced, text)
