"""Bytes become what the type hint says, or the record is poison with a reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.app.decoding import Undecodable, decoder, encoded

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Order(BaseModel):
    id: int
    lines: list[str] = []


@dataclasses.dataclass
class Payment:
    order: int
    note: str = ""


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_objects_go_out_and_come_back(value: dict[str, Any]) -> None:
    raw = encoded(value, topic="t")
    assert decoder(dict)(raw) == value
    assert decoder(Any)(raw) == value


@given(st.integers(), st.lists(st.text()))
def test_models_and_dataclasses_go_out_and_come_back(number: int, lines: list[str]) -> None:
    order = Order(id=number, lines=lines)
    assert decoder(Order)(encoded(order, topic="t")) == order
    payment = Payment(number, "".join(lines))
    assert decoder(Payment)(encoded(payment, topic="t")) == payment
    assert decoder(list[Order])(b"[]") == []


@given(st.binary())
def test_bytes_and_text_go_as_they_are(raw: bytes) -> None:
    assert decoder(bytes)(raw) == raw
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        with pytest.raises(Undecodable):
            decoder(str)(raw)
    else:
        assert decoder(str)(raw) == text


@given(st.binary(max_size=40), st.sampled_from([dict, Order, Payment, list[int], int]))
def test_whatever_comes_is_decoded_or_refused_as_poison(raw: bytes, hint: Any) -> None:
    try:
        decoder(hint)(raw)
    except Undecodable as reason:
        assert str(reason)


def test_a_tombstone_is_given_to_those_who_ask_for_it() -> None:
    assert decoder(Order | None)(None) is None
    assert decoder(bytes | None)(None) is None
    with pytest.raises(Undecodable, match="null"):
        decoder(Order)(None)


def test_a_codec_of_ones_own() -> None:
    class Reversed:
        def decode(self, raw: bytes, *, topic: str, hint: Any) -> Any:
            return topic, hint, raw[::-1]

        def encode(self, value: Any, *, topic: str) -> bytes:
            return bytes(value)[::-1]

    decode = decoder(Order, topic="orders", codec=Reversed())
    assert decode(b"abc") == ("orders", Order, b"cba")
    assert encoded(b"abc", topic="orders", codec=Reversed()) == b"cba"


def test_what_nobody_can_read_or_write_is_refused_in_words() -> None:
    class Thing:
        pass

    with pytest.raises(TypeError, match="Thing"):
        decoder(Thing)
    with pytest.raises(TypeError, match="codec="):
        encoded(Thing(), topic="t")
