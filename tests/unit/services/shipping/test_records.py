"""Records as they are written: the same JSON as json's own, for any text."""

import json

import pytest

from headrace.services.shipping.records import encoded

ODD = ['"\\/\b\f\n\r\t', "\x00\x1f\x7f\x85", "ü€\U0001f600", "\u2028\u2029", "", "</script>"]


@pytest.mark.parametrize("text", ODD)
def test_texts_are_written_as_json_writes_them(text):
    value = {"id": text, "fields": {text: text}, "metrics": {"a": 1.5}, "none": None}
    made = encoded(value)
    del value["none"]
    assert json.loads(made) == value
    assert made == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_half_of_a_pair_of_surrogates_is_written_as_text():
    assert json.loads(encoded({"id": "\ud800", "fields": {"\ud800": "x"}})) == {
        "id": "\\ud800",
        "fields": {"\\ud800": "x"},
    }
