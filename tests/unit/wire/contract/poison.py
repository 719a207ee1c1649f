"""Records that Headrace never writes, for every reader of a topic that it keeps for itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

DEEP = 100_000
HUGE = 2 << 20
OTHER_VALUES: tuple[Any, ...] = (
    None, True, -1, 1.5, 2**63, -(2**63) - 1, 10**4_000, 1e300, float("nan"), float("inf"),
    "", "x", "\0", "\ud800", "9" * 5_000, "\u0663" * 30, [], [[]], [None], {},
    {"": None}, {"x": []},
)  # fmt: skip


def unreadable() -> Iterator[bytes | None]:
    """Values that no reader can take, whatever it looks for."""
    yield None
    yield b""
    yield b"[" * DEEP
    yield b'{"a":' * DEEP
    yield b"[" * DEEP + b"]" * DEEP
    yield b'{"a":' * 900 + b"1" + b"}" * 900
    yield b'{"a":"' + b"x" * HUGE + b'"}'
    yield b"\xff\xfe{}"
    yield b'{"a":"\xc3\x28"}'
    yield b"\0" * 100
    yield b"{}\0"
    yield b"\xef\xbb\xbf{}"
    yield b'{"a":1,"a":2}'
    yield b'{"a":NaN}'
    yield b'{"a":-Infinity}'
    yield b'{"a":' + b"9" * 5_000 + b"}"
    yield b'{"a":9223372036854775808}'
    yield b'{"a":1e400}'
    yield b'{"a":"\\ud800"}'
    yield b"[]"
    yield b"7"
    yield b'"text"'
    yield b"{"


def changed(good: bytes) -> Iterator[bytes]:
    """A good value with each field missing, and with each field of another type or size."""
    document = json.loads(good)
    for name in document:
        yield json.dumps(
            {other: each for other, each in document.items() if other != name}
        ).encode()
        for value in OTHER_VALUES:
            yield json.dumps({**document, name: value}).encode()


def keys(good: bytes) -> Iterator[bytes | None]:
    """Other keys than the record should have."""
    yield from (None, b"", b"\xff", b"\0", b"/" * 50, b"9" * 5_000, b"x" * HUGE)
    yield good + b"\0"
    yield good[:-1]
    yield good.replace(b"/", b"")
