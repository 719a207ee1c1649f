"""A letter goes back to the group whose dead letters it is among, whatever its headers say."""

from __future__ import annotations

import pytest

from headrace.app.names import dead_topic, retry_topic, wide_topic
from headrace.app.retries.dead_letters import why_headers
from headrace.client.records import Record
from headrace.services.redrive.letters import DeadLetter, dead_letter, without_copies
from headrace.services.redrive.redriven_letter import NotRedrivable, again
from headrace.wire.contract.headers import DEAD_CUT, DEAD_ID


def letter(lies_in: str, *, topic: str, group: str) -> DeadLetter:
    why = why_headers(
        ValueError("x"),
        attempts=1,
        first_at_ms=1,
        last_at_ms=2,
        origin=(topic, 0, 5),
        group=group,
    )
    return dead_letter(Record(lies_in, 0, 7, 1, "create", b"k", b"v", why))


@pytest.mark.parametrize("group", ["billing", "a.b", "é", "g" * 250])
def test_a_letter_goes_to_the_retry_topic_of_its_group(group: str) -> None:
    of_a_wide_topic = dead_topic(wide_topic("orders", group), group)
    for place in (dead_topic("orders", group), of_a_wide_topic):
        sent = again(letter(place, topic="orders", group=group), value=b"v")
        assert sent.topic == retry_topic("orders", group)


@pytest.mark.parametrize(("topic", "group"), [("secrets", "app"), ("mine", "billing")])
def test_a_letter_that_names_another_group_is_refused(topic: str, group: str) -> None:
    """Who may write to `mine.app.dead` would write to any retry topic, by the hands of an
    operator who sends its letters again."""
    forged = letter(dead_topic("mine", "app"), topic=topic, group=group)
    with pytest.raises(NotRedrivable, match="not among its dead letters"):
        again(forged, value=b"v")


def test_a_letter_that_holds_a_part_of_a_record_is_sent_with_a_new_value_only() -> None:
    cut = letter(dead_topic("orders", "app"), topic="orders", group="app")
    cut.headers.append((DEAD_CUT, b'{"bytes": 5000000, "sha256": "9f86"}'))
    with pytest.raises(NotRedrivable, match="the record is orders/0/5"):
        again(cut, value=cut.value)
    assert again(cut, value=b"mended").value == b"mended"


def test_of_copies_of_a_letter_the_first_counts() -> None:
    """A broker that is killed after it wrote a letter of a share group writes it again."""
    made = [letter(dead_topic("orders", "app"), topic="orders", group="app") for _ in range(4)]
    for number, dead_id in ((0, b"a"), (1, b"b"), (2, b"a")):
        made[number].headers.append((DEAD_ID, dead_id))
        made[number].offset = number
    assert [each.offset for each in without_copies(made)] == [0, 1, 7]


def test_a_letter_that_a_broker_wrote_is_sent_again_without_its_reason() -> None:
    sent = letter(dead_topic("orders", "app"), topic="orders", group="app")
    sent.headers.append((DEAD_ID, b"a"))
    assert not [name for name, _ in again(sent, value=b"v").headers if "-dead-" in name]
