"""The head of a request, and how many bytes its body has. Pure.

Deliberately narrower than HTTP/1.1: only what can be framed without doubt is read. A head with a
transfer coding, an upgrade, a folded line, two lengths or an unusual character is not read at all;
aiohttp's parser decides about it, and about all that follows on that connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

END = b"\r\n\r\n"
# aiohttp's own limit of one line. A longer head is its business, with its refusals.
LONGEST_HEAD = 8190
MOST_HEADERS = 100
LONGEST_LENGTH = 18  # digits

# Characters of names and values as RFC 9110 has them. No line may begin with a space (folding).
_HEAD = re.compile(
    r"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.1((?:\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*)*)"
)

# They change how a request or its connection ends, or aiohttp refuses them.
_UNUSUAL = frozenset({"transfer-encoding", "upgrade", "proxy-connection", "sec-websocket-key1"})


class Headers(Mapping[str, str]):
    """Names in lower case, found in any case."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class RequestHead(NamedTuple):
    method: str
    target: str
    headers: Headers
    size: int  # of the head, with the empty line
    body_size: int
    is_plain: bool  # ASCII, and each name once


def read_head(data: bytes) -> RequestHead | None:
    """Reads the head at the beginning of `data`, which has all of it; None if it is not framed
    without doubt."""
    end = data.find(END)
    assert end >= 0
    if end > LONGEST_HEAD:
        return None
    text = data[:end].decode("latin-1")
    matched = _HEAD.fullmatch(text)
    if matched is None:
        return None
    method, target, fields = matched.groups()
    lines = fields.split("\r\n")
    if len(lines) > MOST_HEADERS or method == "CONNECT":
        return None
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip(" \t")
    has_twice = len(headers) != len(lines) - 1
    if not _UNUSUAL.isdisjoint(headers):
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    length = headers.get("content-length", "0")
    if has_twice and text.lower().count("\r\ncontent-length:") > 1:
        return None
    if not (length.isascii() and length.isdecimal() and len(length) <= LONGEST_LENGTH):
        return None
    is_plain = not has_twice and text.isascii()
    return RequestHead(method, target, Headers(headers), end + len(END), int(length), is_plain)
