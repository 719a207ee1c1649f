"""What a request's body becomes: records for good events, a named fault for each bad one."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.tracking.events import OLDEST_MS, TooMany, Unreadable, read
from headrace.wire.contract.tracking import KINDS, time_text
from tests.effort import examples

NOW_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z
VIEW = {"kind": "page-view", "visitor": "v1", "page": "/"}


def taken(*events, most=100):
    return read(
        json.dumps(list(events)).encode(), most=most, received_ms=NOW_MS, new_id=lambda: "x"
    )


def fault(event):
    batch = taken(event)
    assert not batch.good
    [found] = batch.faults
    return found.field, found.why


def test_an_event_goes_to_the_topic_of_its_kind_under_its_visitor():
    search = {"kind": "search", "visitor": "v2", "page": "/", "query": "lamp", "results": 0}
    click = {"kind": "click", "visitor": "v3", "page": "/", "target": "buy", "id": "mine"}
    batch = taken(VIEW, search, click)
    assert [(one.topic, one.key) for one in batch.good] == [
        ("page-views", b"v1"),
        ("searches", b"v2"),
        ("clicks", b"v3"),
    ]
    values = [json.loads(one.value) for one in batch.good]
    moment = "2027-01-15T08:00:00.000Z"
    assert values[0] == {"id": "x", "visitor": "v1", "time": moment, "page": "/"}
    assert values[1]["query"] == "lamp"
    assert values[1]["results"] == 0
    assert values[2]["id"] == "mine"
    assert batch.bytes == sum(len(one.key) + len(one.value) for one in batch.good)


def test_one_event_needs_no_list():
    body = json.dumps(VIEW).encode()
    assert len(read(body, most=1, received_ms=NOW_MS, new_id=lambda: "x").good) == 1


def test_good_events_of_a_batch_stay_beside_bad_ones():
    batch = taken(VIEW, {"kind": "page-view", "visitor": "v1"}, 7, VIEW)
    assert len(batch.good) == 2
    assert [(one.event, one.field) for one in batch.faults] == [(1, "page"), (2, "")]


@pytest.mark.parametrize(
    ("change", "field", "why"),
    [
        ({"kind": "purchase"}, "kind", "is one of page-view, search, click"),
        ({"kind": ["search"]}, "kind", "is one of page-view, search, click"),
        ({"kind": "search"}, "query", "is missing"),
        ({"visitor": None}, "visitor", "is missing"),
        ({"visitor": 7}, "visitor", "is text"),
        ({"visitor": ""}, "visitor", "is empty"),
        ({"visitor": "v" * 65}, "visitor", "has 65 characters, at most 64 are taken"),
        ({"page": "\ud800"}, "page", "is not valid Unicode"),
        ({"since": "yesterday"}, "since", "is a day, such as 2026-01-31"),
        ({"colour": "red"}, "colour", "a page-view has no such field"),
        ({"kind": "search", "query": "x", "results": True}, "results", "is a whole number"),
        ({"kind": "search", "query": "x", "results": 2**63}, "results", "must be between"),
        ({"time": "2027-01-15 noon"}, "time", "is a moment with its zone"),
        ({"time": "2027-01-15T08:00:00"}, "time", "is a moment with its zone"),
        ({"time": "0001-01-01T00:00:00Z"}, "time", "is older than 31 days"),
        ({"time": "9999-12-31T23:59:59Z"}, "time", "is more than 5 minutes in the future"),
        ({"time": 1_800_000_000_000}, "time", "is a moment with its zone"),
        ({"age_ms": -1}, "age_ms", "is a whole number between"),
        ({"age_ms": OLDEST_MS + 1}, "age_ms", "is a whole number between"),
        ({"age_ms": 5, "time": "2027-01-15T08:00:00Z"}, "age_ms", "give one of them"),
    ],
)
def test_a_fault_names_its_field(change, field, why):
    named, said = fault(VIEW | change)
    assert named == field
    assert why in said


@pytest.mark.parametrize(
    ("change", "moment"),
    [
        ({"age_ms": 1500}, "2027-01-15T07:59:58.500Z"),
        ({"time": "2027-01-15T09:30:00+02:00"}, "2027-01-15T07:30:00.000Z"),
    ],
)
def test_when_it_happened_is_written_in_utc(change, moment):
    [event] = taken(VIEW | change).good
    assert json.loads(event.value)["time"] == moment


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b"[NaN]", b"[" * 100_000, b"1" * 5000, b'{"a":Infinity}']
)
def test_a_body_that_is_no_list_of_events_is_refused_whole(body):
    with pytest.raises(Unreadable):
        read(body, most=9, received_ms=NOW_MS, new_id=lambda: "x")


def test_more_events_than_allowed_are_refused_whole():
    with pytest.raises(TooMany, match="3 events in one request: at most 2"):
        taken(VIEW, VIEW, VIEW, most=2)


JSON = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=80),
    st.just([]),
    st.just({"a": 1}),
    st.sampled_from(["2027-01-15T08:00:00Z", "2027-01-15", *KINDS]),
)
NAMES = sorted({one.name for kind in KINDS.values() for one in kind.fields} | {"kind", "age_ms"})


@settings(max_examples=examples(60))
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=8), max_size=4))
def test_whatever_is_in_an_event_it_is_taken_or_its_fault_named(events):
    try:
        batch = taken(*events)
    except Unreadable:
        assert not events
        return
    assert len(batch) == len(events)
    for one in batch.good:
        value = json.loads(one.value)
        [kind] = [kind for kind in KINDS.values() if kind.topic == one.topic]
        assert {f.name for f in kind.fields if f.needed} <= value.keys()
        assert value.keys() <= {f.name for f in kind.fields}


def test_times_before_1970_and_after_are_written_alike():
    assert time_text(0) == "1970-01-01T00:00:00.000Z"
    assert time_text(-1) == "1969-12-31T23:59:59.999Z"
