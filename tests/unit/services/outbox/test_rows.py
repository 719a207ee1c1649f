"""A row of the table as a record, whoever wrote it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.outbox.rows import (
    LARGEST_BYTES,
    NotARecord,
    Row,
    headers_from,
    headers_to,
    record_of,
    shard_of,
)
from headrace.services.outbox.store import rows_of


def row(**given: object) -> Row:
    fields = {"id": 7, "topic": "transfers", "key": b"a", "payload": b"p", "headers": None}
    return Row(**{**fields, "message_id": None, "created_ms": 5, **given})  # type: ignore[arg-type]


def test_the_row_s_id_travels_as_the_message_id() -> None:
    assert record_of(row(), "box").headers == [("headrace-message-id", b"box/7")]
    assert record_of(row(message_id="t-1"), "box").headers == [("headrace-message-id", b"t-1")]


def test_a_message_id_among_the_headers_stays() -> None:
    said = '{"headrace-message-id": "own"}'
    assert record_of(row(headers=said), "box").headers == [("headrace-message-id", b"own")]


@given(
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary()))
)
def test_headers_survive_the_table(headers: list[tuple[str, bytes | None]]) -> None:
    text = headers_to(headers)
    assert headers_from(text) == headers
    assert text is None or "\0" not in text  # PostgreSQL's text has none


@pytest.mark.parametrize(
    "fault",
    [
        {"topic": "no topic"},
        {"topic": ""},
        {"topic": "x" * 250},
        {"headers": "no json"},
        {"headers": '[["a", 1]]'},
        {"headers": '[[1, "a"]]'},
        {"headers": '["a"]'},
        {"headers": '[["a", {"base64": "!"}]]'},
        {"headers": "[" * 100_000},
    ],
    ids=lambda fault: str(fault)[:60],
)
def test_what_can_be_no_record_is_told(fault: dict[str, object]) -> None:
    with pytest.raises(NotARecord):
        record_of(row(**fault), "box")


def test_shards_are_those_that_other_languages_compute() -> None:
    assert [shard_of(key, 4) for key in (b"", b"account-1", b"123456789")] == [0, 0, 2]
    assert shard_of(b"123456789", 2**32) == 0xCBF43926  # the check value of CRC-32


@pytest.mark.parametrize(
    "fields",
    [
        (1, None, b"k", b"v", None, None, 0),
        (1, b"a b", b"k", b"v", None, None, 0),
        (1, "paid", b"k", b"v", None, None, "yesterday"),
        (1, "paid", b"k", b"v", None, None, -1),
        (1, "paid", b"k", b"v", 17, None, 0),
        (1, "paid", b"k", b"v", b"\xff", None, 0),
        (1, "paid", b"k", b"v", '[["\\ud800", "x"]]', None, 0),
        (1, "paid", b"k", bytes(LARGEST_BYTES), None, None, 0),
    ],
)
def test_whatever_a_program_has_written_is_a_row_and_then_no_record(fields: Any) -> None:
    """SQLite keeps any kind of value in any column."""
    [row] = rows_of([fields])
    assert isinstance(row.checksum, int)
    with pytest.raises(NotARecord):
        record_of(row, "box")
