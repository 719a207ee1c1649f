"""How a line becomes a key and a value."""

from __future__ import annotations

import pytest

from headrace.cli.records.produce import Form


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
    assert Form(separator=separator).record_of(line) == (key, value)


def test_one_key_for_all_and_keys_without_values() -> None:
    assert Form(key=b"k").record_of(b"a:b\n") == (b"k", b"a:b")
    assert Form(tombstone=True).record_of(b"tom\n") == (b"tom", None)
    whole = Form(key=b"tom", tombstone=True)
    assert whole.is_whole and whole.record_of(b"\n") == (b"tom", None)
