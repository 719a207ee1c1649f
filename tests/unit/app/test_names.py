"""Topics of a topic and a group: legal, short enough, and different for different pairs."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from headrace.app.names import LONGEST, dead_topic, escaped, retry_topic, unescaped

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=240)


def test_usual_names_stay_readable() -> None:
    assert retry_topic("orders", "billing") == "orders.billing.retry"
    assert dead_topic("shop.orders", "order_service-2") == "shop.orders.order_service-2.dead"


def test_a_dot_in_a_group_is_not_taken_for_one_in_a_topic() -> None:
    assert retry_topic("a.b", "c") != retry_topic("a", "b.c")


def test_too_long_names_are_cut_and_stay_different() -> None:
    long = "t" * 240
    names = {retry_topic(long, group) for group in ("a", "b", "a" * 300)}
    assert len(names) == 3
    assert all(len(name) == LONGEST for name in names)


@given(TOPICS, st.text(min_size=1, max_size=300))
def test_every_name_is_one_that_kafka_takes(topic: str, group: str) -> None:
    for name in (retry_topic(topic, group), dead_topic(topic, group)):
        assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name)


@given(st.text("a_2EF5.é", max_size=12))
def test_escaping_can_be_undone_so_no_two_groups_meet(group: str) -> None:
    assert unescaped(escaped(group)) == group


@given(TOPICS, st.text(min_size=1, max_size=40), TOPICS, st.text(min_size=1, max_size=40))
def test_different_pairs_have_different_names(t1: str, g1: str, t2: str, g2: str) -> None:
    if (t1, g1) != (t2, g2):
        assert retry_topic(t1, g1) != retry_topic(t2, g2)
    assert retry_topic(t1, g1) != dead_topic(t2, g2)
