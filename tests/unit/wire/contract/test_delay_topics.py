"""Names of a delayed topic's companions, and its entry in the registry."""

from __future__ import annotations

import json

import pytest

from headrace.wire.contract import delay_topics


def test_companions_and_back() -> None:
    assert delay_topics.companion_of("orders") == "orders.delay"
    assert delay_topics.rejected_of("orders") == "orders.delay.rejected"
    assert delay_topics.outcomes_of("orders") == "orders.delay.outcomes"
    assert delay_topics.target_of("orders.delay") == "orders"
    for name in ("orders", ".delay", "orders.delay.rejected"):
        with pytest.raises(ValueError, match="not a companion"):
            delay_topics.target_of(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "a b", "ä", "x" * 235, "orders.delay", "orders.delay.rejected"]
    + ["orders.delay.outcomes", "__consumer_offsets", delay_topics.REGISTRY, delay_topics.FAR],
)
def test_topics_that_cannot_have_delayed_messages(name: str) -> None:
    with pytest.raises(ValueError, match="'"):
        delay_topics.require_target_name(name)


def test_the_longest_name_leaves_room_for_its_companions() -> None:
    name = "x" * delay_topics.LONGEST_TARGET_NAME
    delay_topics.require_target_name(name)
    assert len(delay_topics.outcomes_of(name)) == 249


def test_a_registration_written_and_read() -> None:
    written = delay_topics.register("orders", enabled_at_ms=5)
    assert delay_topics.read_registration(written.key, written.value) == written
    assert json.loads(written.value) == {"companion": "orders.delay", "enabled_at_ms": 5}
    more = json.dumps({"companion": "orders.delay", "enabled_at_ms": 5, "later": 1}).encode()
    assert delay_topics.read_registration(b"orders", more) == written


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"[]", b"{}", b'{"companion": "orders.delay"}']
    + [b'{"companion": "payments", "enabled_at_ms": 5}', b"\xff"],
)
def test_a_registration_that_is_none(value: bytes) -> None:
    """Above all: a companion never leads to another target."""
    with pytest.raises(ValueError):
        delay_topics.read_registration(b"orders", value)
