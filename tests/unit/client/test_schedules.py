"""`delay=` and its kin: what they become on the way out, and what is refused before it is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from headrace.client.delay.schedules import cancelling, delayed, schedule_headers, to_companion
from headrace.client.errors import Misuse
from headrace.client.records import Outgoing

LONDON = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("when", "header", "written"),
    [
        ({"delay": timedelta(minutes=30)}, "headrace-delay", b"1800000"),
        ({"delay": timedelta(0)}, "headrace-delay", b"0"),
        ({"delay": timedelta(microseconds=1)}, "headrace-delay", b"1"),  # never early
        ({"delay": "1h30m"}, "headrace-delay", b"1h30m"),
        ({"deliver_at": 1_800_000_000_000}, "headrace-deliver-at", b"1800000000000"),
        ({"deliver_at": "2030-01-01T00:00:00Z"}, "headrace-deliver-at", b"2030-01-01T00:00:00Z"),
        ({"deliver_at": datetime(1970, 1, 1, 1, tzinfo=LONDON)}, "headrace-deliver-at", b"0"),
        (
            {"deliver_at": datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)},
            "headrace-deliver-at",
            b"1",
        ),
        ({"id": "order-42"}, "headrace-id", b"order-42"),
    ],
)
def test_a_time_becomes_a_header(when: Any, header: str, written: bytes) -> None:
    assert schedule_headers(when) == [(header, written)]


def test_a_schedule_that_repeats_has_its_zone_and_its_end() -> None:
    said = schedule_headers(
        {
            "cron": "*/5 * * * *",
            "cron_zone": "Europe/Berlin",
            "cron_until": 5,
            "cron_count": 3,
            "id": "report",
        }
    )
    assert dict(said) == {
        "headrace-id": b"report",
        "headrace-cron": b"*/5 * * * *",
        "headrace-cron-zone": b"Europe/Berlin",
        "headrace-cron-until": b"5",
        "headrace-cron-count": b"3",
    }


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ({"delay": "soon"}, "not a duration"),
        ({"delay": timedelta(seconds=-1)}, "cannot be negative"),
        ({"delay": timedelta(days=3654)}, "ten years"),
        ({"delay": "3654d"}, "ten years"),
        ({"delay": 30}, "a timedelta or a text"),
        ({"deliver_at": datetime(2030, 1, 1)}, "no time zone"),
        ({"deliver_at": True}, "not a time"),
        ({"delay": "1s", "deliver_at": 5}, "delay or deliver_at"),
        ({"delay": "1s", "cron": "* * * * *"}, "delay or cron"),
        ({"cron_zone": "UTC"}, "belongs to cron"),
        ({"id": ""}, "An id is a text"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(when: Any, why: str) -> None:
    with pytest.raises(Misuse, match=why):
        schedule_headers(when)


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ({"cron": "every day", "id": "a"}, "'every day' does not have the five fields minute,"),
        ({"cron": "99 9 * * *", "id": "a"}, "'99 9 \\* \\* \\*' is not a cron expression"),
        ({"cron": "0 0 30 2 *", "id": "a"}, "is not a cron expression|has no run in its time"),
        (
            {"cron": "0 9 * * *", "cron_zone": "Mars/Base", "id": "a"},
            "'Mars/Base' is not a known time zone",
        ),
        ({"cron": "0 9 * * *", "cron_until": 5, "id": "a"}, "has no run in its time"),
        ({"cron": "0 9 * * *", "cron_count": 0, "id": "a"}, "a whole number from 1 to 10000"),
        ({"cron": "0 9 * * *"}, "A cron needs an id"),
        ({"deliver_at": "tomorrow"}, "milliseconds since 1970 or a time like"),
        ({"deliver_at": "2030-02-30T00:00:00Z"}, "no such time"),
        ({"deliver_at": 99_999_999_999_999}, "more than ten years ahead"),
        ({"delay": "1s", "id": "x" * 513}, "513 characters"),
    ],
)
def test_what_the_service_would_reject_is_refused_before_it_is_sent(when: Any, why: str) -> None:
    with pytest.raises(Misuse, match=why):
        delayed(Outgoing("orders", b"v", b"k"), when)


def test_a_misspelt_header_beside_a_delay_is_refused_before_it_is_sent() -> None:
    with pytest.raises(Misuse, match="No header headrace-delayed exists"):
        delayed(Outgoing("orders", b"v", b"k", [("headrace-delayed", b"1s")]), {"delay": "1s"})


def test_an_argument_that_send_does_not_have_is_told_like_any_other() -> None:
    with pytest.raises(TypeError, match="no argument 'dely'"):
        schedule_headers({"dely": None})  # type: ignore[typeddict-unknown-key]


def test_a_delayed_record_goes_to_the_companion_and_keeps_its_own_headers() -> None:
    given = [("trace", b"7"), ("headrace-delay", b"of an earlier life")]
    record = delayed(Outgoing("orders", b"v", b"k", given), {"delay": "5s"})
    assert record.topic == "orders.delay"
    assert record.headers == [("trace", b"7"), ("headrace-delay", b"5s")]


def test_none_is_the_same_as_not_given() -> None:
    record = delayed(Outgoing("orders", b"v"), {"delay": None, "id": None})
    assert (record.topic, record.headers) == ("orders", [])


def test_an_id_and_a_cancel_need_to_know_where() -> None:
    with pytest.raises(Misuse, match="give the record a key"):
        delayed(Outgoing("orders", b"v"), {"id": "a"})
    with pytest.raises(Misuse, match="with the key"):
        cancelling("orders", "a", None, None)
    wish = cancelling("orders", "a", b"k", None)
    assert (wish.topic, wish.value, wish.key) == ("orders.delay", None, b"k")
    assert wish.headers == [("headrace-cancel", b"a")]


def test_a_time_of_ones_own_is_refused() -> None:
    with pytest.raises(Misuse, match="leave timestamp_ms away"):
        delayed(Outgoing("orders", b"v", timestamp_ms=5), {"delay": "1s"})


def test_a_schedule_is_added_unchecked_and_replaces_an_older_one() -> None:
    given = [("headrace-deliver-at", b"1"), ("headrace-delayed", b"a name that `delayed` refuses")]
    record = to_companion(
        Outgoing("orders", b"v", headers=given), schedule_headers({"delay": "5s"})
    )
    assert (record.topic, record.headers) == ("orders.delay", [*given, ("headrace-delay", b"5s")])
    again = Outgoing("orders", b"v", headers=given)
    assert to_companion(again, schedule_headers({"deliver_at": 7})).headers == [
        given[1],
        ("headrace-deliver-at", b"7"),
    ]
