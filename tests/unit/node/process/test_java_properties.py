"""Java's .properties files."""

from __future__ import annotations

import pytest

from headrace.node.process.settings.java_properties import Entry, MalformedProperties, parse


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("  a = b ", "a", "b "),
        ("a:b", "a", "b"),
        ("a b c", "a", "b c"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a==b", "a", "=b"),
        ("a = = b", "a", "= b"),
        (r"a\=b=c", "a=b", "c"),
        (r"a\:b\ c=d", "a:b c", "d"),
        (r"path=C:\\temp\\x", "path", "C:\\temp\\x"),
        (r"a=\u00e9\t\n\q", "a", "é\t\nq"),
        ("a=b#c!d", "a", "b#c!d"),
        ("ü=ö", "ü", "ö"),
        ("=value", "", "value"),
    ],
)
def test_one_line(line: str, name: str, value: str) -> None:
    assert parse(line.encode()) == [Entry(name, value, 1)]


def test_comments_blank_lines_and_line_ends() -> None:
    content = b"# one\r\n! two\n\n \t\f\n  # three\rlisteners=PLAINTEXT://:9092\r\nb=2"
    assert parse(content) == [Entry("listeners", "PLAINTEXT://:9092", 6), Entry("b", "2", 7)]


def test_a_backslash_at_the_end_goes_on_in_the_next_line() -> None:
    content = b"a=one,\\\n    two,\\\n\t# three\nb=x\\\\\nc=last\\"
    assert parse(content) == [
        Entry("a", "one,two,# three", 1),
        Entry("b", "x\\", 4),
        Entry("c", "last", 5),
    ]


def test_latin_1_as_java_has_it() -> None:
    assert parse(b"a=\xe9") == [Entry("a", "é", 1)]


def test_all_entries_come_in_order() -> None:
    assert [entry.value for entry in parse(b"a=1\na=2")] == ["1", "2"]


def test_half_an_escape_is_told_with_its_line() -> None:
    with pytest.raises(MalformedProperties, match="line 2"):
        parse(b"a=1\nb=\\u12")
