"""Which records are about one message, and what each tells; headers that anybody may write."""

from __future__ import annotations

import pytest

from headrace.client.records import Record
from headrace.console.access.life import Life, Searched, _messages
from headrace.console.life.identity import Identity, record_id_in
from headrace.console.life.steps import group_of, step_of
from headrace.console.views.life import limits_in_words

Headers = dict[str, str]


def record(
    topic: str, offset: int = 0, told: Headers | None = None, **more: bytes | None
) -> Record:
    headers = [(name, text.encode()) for name, text in (told or {}).items()]
    key, value = more.get("key", b"k"), more.get("value", b"v")
    return Record(topic, 0, offset, 1_700_000_000_000 + offset, "create", key, value, headers)


@pytest.mark.parametrize(
    "said",
    ["", "orders", "orders/0", "orders/0/x", "orders/0/1/2", "a b/0/1", "orders/0/" + "9" * 30],
)
def test_a_place_that_makes_no_sense_is_no_link(said: str) -> None:
    assert record_id_in(said) is None
    stranger = record("orders.billing.retry", told={"headrace-retry-origin": said})
    assert not Identity({("orders", 0, 1)}).holds(stranger)


def test_records_know_each_other_by_places_ids_and_schedules() -> None:
    waits = record("orders.delay", 4, {"headrace-id": "bill-7", "headrace-delay": "5m"})
    delivered = record(
        "orders", 9, {"headrace-source": "orders.delay/0/4", "headrace-message-id": "bill-7@17"}
    )
    failed = record("orders.b.retry", 1, {"headrace-retry-message-id": "bill-7@17"})
    done = record("headrace.outbox.confirmations", value=b'{"outbox": "o", "id": "bill-7@17"}')
    cancel = record("orders.delay", 5, {"headrace-cancel": "bill-7"})
    other = record("orders.delay", 6, {"headrace-cancel": "bill-7"}, key=b"another key")
    found = Identity()
    for each in (waits, delivered, failed, done, cancel):
        assert each is waits or found.holds(each), each
        found.add(each)
    assert not found.holds(other)
    # In any order: the one in the middle joins what seemed two messages.
    assert len(_messages([waits, failed])) == 2
    assert len(_messages([waits, failed, delivered])) == 1


def test_the_entry_of_a_letter_is_found_by_the_letter() -> None:
    letter = record("orders.b.dead", 3, {"headrace-dead-topic": "orders"})
    entry = record("headrace.dead-letters.settled", key=b"orders.b.dead/0/3")
    found = Identity()
    found.add(letter)
    assert found.holds(entry)
    assert not found.holds(record("headrace.dead-letters.settled", key=b"\xff"))


@pytest.mark.parametrize(
    ("topic", "told", "title"),
    [
        ("orders", {}, "Produced"),
        ("orders.delay", {"headrace-cron": "* * * * *"}, "Sent, to be delivered later"),
        ("orders.delay", {"headrace-cancel": "x"}, "Asked to be cancelled"),
        (
            "orders.delay.rejected",
            {"headrace-rejected-reason": "no"},
            "Rejected by the delay service",
        ),
        ("orders.delay.outcomes", {"headrace-outcome": "?"}, "Outcome: ?"),
        ("orders.b.retry", {"headrace-retry-attempt": "2"}, "Attempt 2 failed"),
        ("orders.b.retry", {"headrace-retry-attempt": "-2"}, "Waits behind an earlier message"),
        ("orders.b.retry", {"headrace-redrives": "1"}, "Given to the group again"),
        ("orders.b.dead", {"headrace-dead-error": "E"}, "Dead letter after 0 attempts"),
        ("orders.b.dead", {}, "Produced"),
        ("headrace.dead-letters.settled", {}, "An entry that cannot be read"),
        ("headrace.outbox.confirmations", {}, "Handled and confirmed"),
    ],
)
def test_every_record_is_a_step_whatever_its_headers_say(
    topic: str, told: Headers, title: str
) -> None:
    assert step_of(record(topic, told=told)).title == title


def test_a_group_is_named_by_its_topics() -> None:
    assert [group_of(f"orders.bill{end}") for end in (".retry", ".dead", ".retry.delay")] == [
        "bill"
    ] * 3


def test_nothing_is_left_out_silently() -> None:
    life = Life(
        "orders",
        since_ms=1_700_000_000_000,
        searched=[
            Searched("orders", [7], 63, 10, True, {}),
            Searched("orders.b.dead", [0], 0, 50_000, False, {}),
            Searched("orders.b.retry", [0], 0, 1, False, {0: "its leader does not answer"}),
        ],
        topics_left_out=["orders.c.dead"],
        groups_missing="Only 500 of 900 groups were asked.",
        steps_left_out=2,
    )
    said = " ".join(limits_in_words(life))
    for part in (
        "Nothing before 2023-11-1",
        "only partition 7 was searched, not 63 more",
        "orders.b.dead stopped at its limit, after 50\u202f000 messages",
        "orders.b.retry, partition 0: its leader does not answer",
        "no time for orders.c.dead",
        "Only 500 of 900 groups",
        "2 more steps not shown",
    ):
        assert part in said
