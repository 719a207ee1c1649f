"""Concatenated JSON in pieces: wherever the pieces are cut, the documents are the same."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.http.dialects.json_sequence import JsonSequence
from headrace.services.http.refusal import Refusal

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
DOCUMENTS = st.lists(
    st.dictionaries(TEXT, st.recursive(TEXT | st.integers(), st.lists, max_leaves=4), max_size=3),
    max_size=5,
)


@given(DOCUMENTS, st.lists(st.integers(0, 200), max_size=6), st.sampled_from(["", " ", "\n\r\t"]))
def test_documents_are_found_however_the_body_is_cut(
    documents: list[dict[str, object]], cuts: list[int], between: str
) -> None:
    body = between.join(json.dumps(each) for each in documents).encode()
    at = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
    sequence, found = JsonSequence(10_000), []
    for start, end in itertools.pairwise(at):
        found += sequence.feed(body[start:end])
    sequence.finish()
    assert found == documents


@pytest.mark.parametrize("body", [b"1 2", b"}", b"[1]", b'"a"', b"{]}", b'{"a": NaN}', b"{}x"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    sequence = JsonSequence(100)
    with pytest.raises(Refusal):
        list(sequence.feed(body))
        sequence.finish()


def test_half_a_document_is_refused_at_the_end_and_too_much_of_one_before() -> None:
    sequence = JsonSequence(100)
    assert list(sequence.feed(b'{"a": "\\')) == []
    with pytest.raises(Refusal, match="middle of a record"):
        sequence.finish()
    with pytest.raises(Refusal, match="over 100 bytes"):
        list(sequence.feed(b"x" * 100))
