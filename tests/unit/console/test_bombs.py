"""Schemas, bytes, expressions and documents made to hurt: each ends soon, in a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.app.triggers.filters import Filter, FilterRefused
from headrace.client.admin.groups import GroupDescription, GroupProgress
from headrace.client.lookup.record_pages import Seen
from headrace.client.records import Record
from headrace.console.decoding.avro import AvroRefused, Schema, shown
from headrace.console.views.groups import MOST_PROGRESS, group_page
from headrace.console.views.messages import MOST_HEADERS, whole_message
from tests.effort import examples

WORDS = [
    "null",
    "int",
    "bytes",
    "string",
    "record",
    "enum",
    "fixed",
    "array",
    "map",
    "decimal",
    "n",
]
PARTS = ("type", "items", "values", "size", "symbols", "logicalType", "scale", "name", "fields")


def schemas() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(WORDS) | st.none() | st.booleans() | st.integers(-3, 9)

    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        field = st.fixed_dictionaries({"name": st.just("f"), "type": inner})
        return (
            st.lists(inner | field, max_size=3)
            | st.dictionaries(st.sampled_from(PARTS), inner, max_size=6)
            | st.fixed_dictionaries({"type": st.sampled_from(WORDS), "symbols": inner})
        )

    return st.recursive(leaves, larger, max_leaves=12)


@settings(max_examples=examples(600), deadline=None)
@given(schemas(), st.binary(max_size=12))
def test_any_schema_with_any_bytes_is_read_or_refused(schema: Any, raw: bytes) -> None:
    try:
        shown(Schema(json.dumps(schema)).decode(raw))
    except AvroRefused as refusal:
        assert str(refusal)


@pytest.mark.parametrize("count", [200, 1_000_000])
def test_a_decimal_of_many_bytes_stays_bytes(count: int) -> None:
    """Its digits would take minutes: the time grows with the square of the length."""
    schema = {"type": "fixed", "name": "f", "size": count, "logicalType": "decimal", "scale": 2}
    assert Schema(json.dumps(schema)).decode(b"\x7f" * count) == b"\x7f" * count
    short = {"type": "fixed", "name": "f", "size": 2, "logicalType": "decimal", "scale": 2}
    assert Schema(json.dumps(short)).decode(b"\x01\x00") == "2.56"


@pytest.mark.parametrize(
    "expression", ["+".join("1" * 999), "-" * 1_999 + "1", "~" * 1_999 + "1", "value" + ".a" * 900]
)
def test_an_expression_that_nests_too_deeply_is_refused(expression: str) -> None:
    with pytest.raises(FilterRefused):
        Filter(expression)


def test_documents_that_nest_too_deeply_to_be_compared_do_not_match() -> None:
    one: Any = 1
    other: Any = 2
    for _ in range(100_000):
        one, other = [one], [other]
    facts = {"value": [one, other]}
    assert not Filter("value[0] == value[1]").accepts(facts)
    assert not Filter("value[0] in value[1]").accepts(facts)
    while isinstance(one, list):  # taken apart by hand: freeing it at once nests as deeply
        one, other = one[0], other[0]


def test_a_record_of_half_a_million_headers_shows_some_and_counts_the_others() -> None:
    headers: list[tuple[str, bytes | None]] = [("h" * 90_000, b"v"), *[("h", b"")] * 500_000]
    message = whole_message(Seen(Record("t", 0, 0, 0, "create", None, b"v", headers)))
    assert len(message.headers) == MOST_HEADERS
    assert message.headers_left == 500_001 - MOST_HEADERS
    assert len(message.headers[0][0]) < 1_000


def test_a_group_with_many_partitions_shows_those_that_are_furthest_behind() -> None:
    places = [GroupProgress("t", n, 0, n, None, n) for n in range(10_000)]
    page = group_page(GroupDescription("g", "Empty", "classic", "", 1, [], places))
    assert len(page.progress) == MOST_PROGRESS and page.progress_left == 9_500
    assert page.progress[0].partition == 9_500 and page.lag == sum(range(10_000))
