"""Records leave as CloudEvents that a receiver can read and check."""

import base64
import json

import pytest

from headrace.app.triggers import cloud_events
from headrace.app.triggers.cloud_events import Event


def event(data, **changed):
    fields = {
        "id": "orders/2/17",
        "source": "/orders/2",
        "type": "order.paid",
        "time_ms": 1_700_000_000_123,
        "subject": "tom",
        "data": data,
    }
    return Event(**{**fields, **changed})


def test_binary_keeps_the_body_as_it_is():
    request = cloud_events.binary(event(b'{"amount": 1.10}'))
    assert request.body == b'{"amount": 1.10}'
    assert request.headers == {
        "ce-specversion": "1.0",
        "ce-id": "orders/2/17",
        "ce-source": "/orders/2",
        "ce-type": "order.paid",
        "ce-time": "2023-11-14T22:13:20.123Z",
        "ce-subject": "tom",
        "content-type": "application/json",
    }


def test_structured_holds_json_as_json_text_as_text_and_the_rest_in_base64():
    for data, member, expected in (
        (b'{"big": 12345678901234567890123}', "data", {"big": 12345678901234567890123}),
        ("Käse".encode(), "data", "Käse"),
        (b"\xff\x00", "data_base64", base64.b64encode(b"\xff\x00").decode()),
        (b"NaN", "data", "NaN"),
        (b'"\\ud800"', "data", "\ud800"),
    ):
        shape = json.loads(cloud_events.structured(event(data)).body)
        assert shape[member] == expected
        assert shape["specversion"] == "1.0"


def test_a_tombstone_has_no_data():
    shape = json.loads(cloud_events.structured(event(None)).body)
    assert "data" not in shape and "datacontenttype" not in shape
    assert cloud_events.binary(event(None)).body == b""


def test_numbers_with_many_digits_keep_them_all():
    body = cloud_events.structured(event(b'{"pi": 3.14159265358979323846}')).body
    assert b"3.14159265358979323846" in body


def test_a_batch_is_a_list():
    request = cloud_events.batch([event(b"1", id="a"), event(b"2", id="b")])
    assert request.headers["content-type"] == "application/cloudevents-batch+json"
    assert [each["id"] for each in json.loads(request.body)] == ["a", "b"]


@pytest.mark.parametrize("time_ms", [-1, 10**17])
def test_a_time_that_no_calendar_has_is_left_out(time_ms):
    assert "time" not in json.loads(cloud_events.structured(event(b"1", time_ms=time_ms)).body)
    assert "ce-time" not in cloud_events.binary(event(b"1", time_ms=time_ms)).headers


@pytest.mark.parametrize("nasty", ["a\r\nx-evil: 1", "a\x00b", "Grüße", 'say "100%"', "\u2028"])
def test_header_values_cannot_break_out(nasty):
    value = cloud_events.binary(event(b"1", subject=nasty)).headers["ce-subject"]
    assert value.isascii() and value.isprintable() and "\n" not in value and '"' not in value


def test_a_signature_is_good_for_its_body_its_secret_and_its_time():
    request = cloud_events.structured(event(b"1"))
    cloud_events.sign(request, b"secret", now_s=1_000)
    header = request.headers["headrace-signature"]
    good = cloud_events.signature_is_good
    assert good(header, request.body, b"secret", now_s=1_200)
    assert not good(header, request.body + b" ", b"secret", now_s=1_200)
    assert not good(header, request.body, b"other", now_s=1_200)
    assert not good(header, request.body, b"secret", now_s=2_000)
    for nonsense in ("", "t=1", "t=x,v1=y", "v1=ü,t=1", "garbage"):
        assert not good(nonsense, request.body, b"secret", now_s=1_200)
