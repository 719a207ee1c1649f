"""What records ask for, and with which sentence they are rejected."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_instructions import (
    LEVELS_MS,
    Cancel,
    IntakeRecord,
    Rejected,
    Schedule,
    read_instruction,
)
from headrace.wire.contract.durations import LONGEST_DELAY_MS

APPENDED_MS = 1_800_000_000_000


def asked(*given: tuple[str, bytes | None], value: bytes | None = b"body") -> object:
    return read_instruction(IntakeRecord(7, APPENDED_MS, b"key", value, list(given)))


def due_ms(*given: tuple[str, bytes | None]) -> int:
    schedule = asked(*given)
    assert isinstance(schedule, Schedule), schedule
    return schedule.due_ms


def test_the_delay_counts_from_the_append_time() -> None:
    assert due_ms((names.DELAY, b"30m")) == APPENDED_MS + 1_800_000
    assert due_ms((names.DELAY, b"1500")) == APPENDED_MS + 1_500
    assert due_ms((names.DELAY, b"0")) == APPENDED_MS
    assert due_ms((names.DELAY, b"3653d")) == APPENDED_MS + LONGEST_DELAY_MS
    assert due_ms((names.DELAY, b"%d" % LONGEST_DELAY_MS)) == APPENDED_MS + LONGEST_DELAY_MS


def test_without_an_instruction_it_is_due_at_once() -> None:
    assert due_ms() == APPENDED_MS
    assert due_ms(("trace", b"1")) == APPENDED_MS
    assert read_instruction((7, APPENDED_MS, None, None, None)) == Schedule(APPENDED_MS, None)


def test_a_moment_is_milliseconds_or_rfc_3339_and_never_rounded_down() -> None:
    assert due_ms((names.DELIVER_AT, b"1800000000001")) == 1_800_000_000_001
    assert due_ms((names.DELIVER_AT, b"0")) == 0
    moment = datetime(2027, 6, 1, 10, 0, tzinfo=UTC).timestamp() * 1000
    assert due_ms((names.DELIVER_AT, b"2027-06-01T10:00:00Z")) == moment
    assert due_ms((names.DELIVER_AT, b"2027-06-01T12:00:00+02:00")) == moment
    assert due_ms((names.DELIVER_AT, b"2027-06-01t10:00:00.0001z")) == moment + 1


def test_levels_are_those_of_rocketmq() -> None:
    assert len(LEVELS_MS) == 18
    assert due_ms((names.DELAY_LEVEL, b"1")) == APPENDED_MS + 1_000
    assert due_ms((names.DELAY_LEVEL, b"18")) == APPENDED_MS + 7_200_000


def test_other_headers_are_handed_on_and_ours_are_not() -> None:
    schedule = asked(
        ("a", b"1"),
        (names.DELAY, b"5s"),
        ("a", None),
        (names.SOURCE, b"orders.delay/0/3"),
        (names.DUE_AT, b"5"),
        (names.DUE_AT, b"6"),
        ("headrace-attempt", b"2"),
        (names.PARTITION, b"12"),
        (names.ID, b"order-42"),
    )
    assert schedule == Schedule(
        APPENDED_MS + 5_000,
        [("a", b"1"), ("a", None), ("headrace-attempt", b"2")],
        partition=12,
        id="order-42",
    )


def test_a_cancel_names_an_id_and_has_a_null_value() -> None:
    assert asked((names.CANCEL, b"order-42"), ("trace", b"1"), value=None) == Cancel("order-42")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([(names.DELAY, b"soon")], "is not a duration"),
        ([(names.DELAY, b"")], "is not a duration"),
        ([(names.DELAY, None)], "has no value"),
        ([(names.DELAY, b"\xff\xfe")], "not UTF-8"),
        ([(names.DELAY, b"3654d")], "longer than ten years"),
        ([(names.DELAY, b"999999999999")], "longer than ten years"),
        ([(names.DELAY, b"5s"), (names.DELAY, b"5s")], "there twice"),
        ([(names.DELAY, b"5s"), (names.DELIVER_AT, b"1")], "contradict"),
        ([(names.DELAY, b"5s"), (names.CRON, b"* * * * *")], "contradict"),
        ([(names.DELIVER_AT, b"tomorrow")], "milliseconds since 1970"),
        ([(names.DELIVER_AT, b"2027-06-01T10:00:00")], "offset"),
        ([(names.DELIVER_AT, b"2027-02-30T10:00:00Z")], "no such time"),
        ([(names.DELIVER_AT, b"1960-01-01T00:00:00Z")], "before 1970"),
        ([(names.DELIVER_AT, b"2999-01-01T00:00:00Z")], "ten years"),
        ([(names.DELAY_LEVEL, b"0")], "from 1 to 18"),
        ([(names.DELAY_LEVEL, b"19")], "from 1 to 18"),
        ([(names.DELAY_LEVEL, b"high")], "from 1 to 18"),
        ([(names.PARTITION, b"-1")], "whole number"),
        ([(names.ID, b"")], "0 characters"),
        ([(names.ID, b"x" * 513)], "513 characters"),
        ([(names.CANCEL, b"a")], "null value"),
        ([("headrace-dely", b"5s"), ("headrace-delay-lvl", b"3")], "no header"),
        ([(names.CRON_ZONE, b"UTC")], "nothing without"),
        ([(names.CRON, b"* * * *")], "five fields"),
        ([(names.CRON, b"0 * * * * *")], "five fields"),
        ([(names.CRON, b"61 * * * *")], "not a cron expression"),
        ([(names.CRON, b"0 0 30 2 *")], "not a cron expression"),
        (
            [(names.CRON, b"0 0 * * * "), (names.CRON_ZONE, b"Mars/Olympus")],
            "not a known time zone",
        ),
        (
            [(names.CRON, b"0 0 * * *"), (names.CRON_ZONE, b"../../etc/passwd")],
            "not a known time zone",
        ),
        ([(names.CRON, b"0 0 * * *"), (names.CRON_COUNT, b"0")], "from 1 to"),
        ([(names.CRON, b"0 0 * * *"), (names.CRON_UNTIL, b"5")], "no run in its time"),
    ],
)
def test_nonsense_is_rejected_with_a_sentence(
    given: list[tuple[str, bytes | None]], words: str
) -> None:
    rejected = asked(*given)
    assert isinstance(rejected, Rejected), rejected
    assert words in rejected.reason


def test_a_cancel_with_other_instructions_is_rejected() -> None:
    rejected = asked((names.CANCEL, b"a"), (names.DELAY, b"5s"), value=None)
    assert isinstance(rejected, Rejected)
    assert names.DELAY in rejected.reason


@pytest.mark.parametrize("zone", [b"UTC", b"Pacific/Kiritimati"])
def test_a_repetition_that_begins_where_calendars_end_is_rejected(zone: bytes) -> None:
    asked = [(names.CRON, b"0 0 1 1 *"), (names.CRON_ZONE, zone)]
    for appended_ms in (253_402_300_799_000, 253_402_250_000_000, 2**62):
        rejected = read_instruction((0, appended_ms, None, b"", asked))
        assert isinstance(rejected, Rejected)
        assert "no run in its time" in rejected.reason


def test_a_record_without_an_append_time_is_rejected() -> None:
    assert isinstance(read_instruction((0, -1, None, b"", [])), Rejected)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(names.NOT_HANDED_ON)) | st.text(max_size=20),
            st.none() | st.binary(max_size=30) | st.text(max_size=30).map(str.encode),
        ),
        max_size=5,
    ),
    st.none() | st.binary(max_size=5),
)
def test_no_header_makes_it_stumble(
    given: list[tuple[str, bytes | None]], value: bytes | None
) -> None:
    instruction = asked(*given, value=value)
    if isinstance(instruction, Schedule):
        assert 0 <= instruction.due_ms <= APPENDED_MS + LONGEST_DELAY_MS
    else:
        assert isinstance(instruction, Cancel | Rejected)


def test_a_message_keeps_the_id_that_its_sender_gave_unless_a_schedule_names_it() -> None:
    own = (names.MESSAGE_ID, b"bill-7")
    plain = asked((names.DELAY, b"1s"), own)
    assert isinstance(plain, Schedule) and plain.headers == [own]
    for named in ((names.ID, b"order-42"), (names.CRON, b"0 9 * * *")):
        schedule = asked(named, own)
        assert isinstance(schedule, Schedule) and not schedule.headers
