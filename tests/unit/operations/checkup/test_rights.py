"""The doctor compares who may write now with who may write later."""

from __future__ import annotations

from headrace.client.admin.acls import Acl
from headrace.operations.checkup.finding import FindingState
from headrace.operations.checkup.rights import check_delayed_writes, writers_of

TOPICS = ["orders", "orders.delay", "lonely.delay", "orders.delay.rejected"]


def writes(who: str, resource: str, **changes: str) -> Acl:
    said = {"pattern": "literal", "host": "*", "operation": "write", "permission": "allow"}
    return Acl("topic", resource, principal=f"User:{who}", **said | changes)


def test_who_may_write_later_and_not_now_is_named() -> None:
    [finding] = check_delayed_writes(TOPICS, [writes("eve", "orders.delay")])
    assert finding.state == FindingState.WATCH
    assert "User:eve may write to orders.delay, and so with a delay to orders" in finding.found


def test_a_refusal_on_the_topic_alone_leaves_the_companion_open() -> None:
    entries = [writes("eve", "ord", pattern="prefixed"), writes("eve", "orders", permission="deny")]
    [finding] = check_delayed_writes(TOPICS, entries)
    assert finding.state == FindingState.WATCH and "User:eve" in finding.found


def test_the_same_rights_on_both_are_good_and_more_on_the_topic_too() -> None:
    entries = [writes("shop", "orders"), writes("shop", "orders.delay"), writes("boss", "orders")]
    [finding] = check_delayed_writes(TOPICS, entries)
    assert finding.state == FindingState.GOOD
    assert check_delayed_writes(["orders"], entries) == []


def test_everybody_and_all_operations() -> None:
    entries = [
        writes("*", "*"),
        writes("bob", "orders", permission="deny", operation="all"),
        writes("al", "orders", operation="read"),
    ]
    assert writers_of("orders", entries) == {"User:*", "User:al"}
