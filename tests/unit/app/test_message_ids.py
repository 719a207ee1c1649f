"""Ids that name a record by its place hold the topic's id; the form they had before is found."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.app.once.message_ids import (
    CLOCKS_DIFFER_MS,
    UPGRADE_TAKES_MS,
    former_id,
    may_be_known_formerly,
    place_id,
    remembered_as,
    sent_id,
    was_this,
)
from headrace.wire.contract.headers import MESSAGE_ID, SOURCE

TOPIC_ID = "vPeOCWypqUOSepEvx0cbog"


def test_two_topics_of_one_name_have_different_ids():
    assert place_id("orders/0/5", TOPIC_ID) == f"orders/0/5@{TOPIC_ID}"
    assert place_id("orders/0/5", TOPIC_ID) != place_id("orders/0/5", TOPIC_ID[::-1])
    assert place_id("orders/0/5", None) == place_id("orders/0/5", "") == "orders/0/5"


def test_the_former_id_is_the_place_alone():
    assert former_id(f"orders/0/5@{TOPIC_ID}") == "orders/0/5"
    assert former_id(f"orders/0/5@{TOPIC_ID}~billing~0~mail~1") == "orders/0/5~billing~0~mail~1"


def test_an_id_that_its_sender_gave_has_no_other_form():
    for given_id in (
        *("order-7", "orders/0/5", "reminder-7@1700000000000", f"order@{TOPIC_ID}"),
        *(f"orders/0/5@{TOPIC_ID}x", f"orders/0/5@{TOPIC_ID[:-1]}", f"a@b/0/5@{TOPIC_ID}"),
    ):
        assert former_id(given_id) is None, given_id


def test_the_same_id_in_another_topic_is_another_message():
    assert remembered_as("orders", "7") == "orders//7" != remembered_as("refunds", "7")
    assert former_id("orders//7") == "7"
    assert former_id("orders//a\nb//c") == "a\nb//c"


def test_a_place_names_its_topic_already():
    for place in (
        *("orders/0/5", f"orders/0/5@{TOPIC_ID}", f"orders/0/5@{TOPIC_ID}~billing~0"),
        f"orders.delay/0/5@{TOPIC_ID}",
    ):
        assert remembered_as("orders", place) == place


def test_ids_of_other_bytes_are_other_ids():
    raw = (b"7", b"\x80", b"\x81", b"\xff\xfe", b"\xff\xff", "\ufffd".encode(), b"\\x80")
    ids = [sent_id([(MESSAGE_ID, each)]) for each in raw]
    assert len(set(ids)) == len(raw) and ids[0] == "7"


def test_an_empty_id_names_nothing():
    assert sent_id([(MESSAGE_ID, b"")]) is sent_id([(MESSAGE_ID, None)]) is None
    assert sent_id([(MESSAGE_ID, b""), (SOURCE, b"orders.delay/0/5")]) == "orders.delay/0/5"


@given(st.text())
def test_any_text_may_be_asked_for(text):
    former = former_id(text)
    assert former is None or "//" in text or former_id(former) is None
    assert remembered_as("orders", text) in (text, f"orders//{text}")


def test_only_a_record_from_before_the_upgrade_can_have_been_handled_then():
    since_ms = 1_000_000_000
    assert may_be_known_formerly(None, since_ms)
    assert may_be_known_formerly(since_ms + UPGRADE_TAKES_MS, since_ms)
    assert not may_be_known_formerly(since_ms + UPGRADE_TAKES_MS + 1, since_ms)


def test_what_was_handled_before_it_was_written_was_another_record():
    assert was_this(None, 0)
    assert was_this(1_000, 1_000)
    assert was_this(1_000 + CLOCKS_DIFFER_MS, 1_000)
    assert not was_this(1_001 + CLOCKS_DIFFER_MS, 1_000)
