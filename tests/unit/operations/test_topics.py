"""Which topics are people's own."""

from __future__ import annotations

from headrace.client.admin.topics import TopicSummary
from headrace.operations.topics import grouped


def topic(name: str, *, internal: bool = False) -> TopicSummary:
    return TopicSummary(name, partitions=1, replication=1, internal=internal)


def test_companions_stand_beside_their_topic_and_others_topics_are_left_out() -> None:
    names = ("orders", "orders.delay", "orders.billing.dead", "bills", "headrace.audit")
    offsets = topic("__consumer_offsets", internal=True)
    found = grouped([*map(topic, names), offsets])
    assert [each.name for each in found.own] == ["orders", "bills"]
    assert found.companions["orders"] == [".billing.dead", ".delay"]
    assert found.services == 1
    assert offsets in grouped([offsets], internal=True).own
