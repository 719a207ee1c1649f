"""How a line becomes a key and a value."""

from __future__ import annotations

import pytest

from headrace.cli.produce import split_line


@pytest.mark.parametrize(
    ("line", "separator", "key", "value"),
    [
        (b"hello\n", None, None, b"hello"),
        (b"hello", None, None, b"hello"),
        (b"hello\r\n", None, None, b"hello"),
        (b"\n", None, None, b""),
        (b"a:b\n", None, None, b"a:b"),
        (b"a:b:c\n", b":", b"a", b"b:c"),
        (b"no key\n", b":", None, b"no key"),
        (b":value\n", b":", b"", b"value"),
        (b"k=>v\n", b"=>", b"k", b"v"),
        (b"\xff\x00\r", None, None, b"\xff\x00\r"),
    ],
)
def test_a_line_is_split_once(
    line: bytes, separator: bytes | None, key: bytes | None, value: bytes
) -> None:
    assert split_line(line, separator) == (key, value)
