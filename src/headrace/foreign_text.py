"""Makes text of others (names, ids, keys, values, errors) safe for a terminal or a log.

A client names its topics, groups, members and transactions as it likes, and a program that shows
these names must not pass them on as they are: escape sequences, line ends that forge a row of a
table or a line of a log, signs that reverse the direction of writing. Everything that is not
printable is shown as an escape. A backslash stays as it is, so an escape may also be text that a
client wrote; `--json` is exact.
"""

from __future__ import annotations


def escaped(text: str, keep: str = "") -> str:
    """One line without characters that control a terminal, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def escaped_bytes(raw: bytes | None) -> str:
    """Bytes for a person to read: text if they are UTF-8. Tabs stay: they control nothing."""
    if raw is None:
        return "null"
    try:
        return escaped(raw.decode(), keep="\t")
    except UnicodeDecodeError:
        return repr(raw)


def indented(text: str) -> str:
    """Several lines, such as a stack: each after the first is indented by two more spaces than any
    line of our own. So a line end in a foreign text cannot pass for one of our lines."""
    return "\n  ".join(escaped(line, keep="\t") for line in text.splitlines())


def escaped_json(document: str) -> str:
    """The same document with everything escaped that is not printable, such as U+009B, which begins
    an escape sequence too. JSON itself escapes only the characters below a space in ASCII."""
    if document.isprintable():
        return document
    return "".join(c if c.isprintable() or c == "\n" else _as_json(c) for c in document)


def _as_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
