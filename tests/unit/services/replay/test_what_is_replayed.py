"""Which records are meant, how fast they go, and when they must not go again."""

from __future__ import annotations

import pytest

from headrace.app import headers as names
from headrace.app.triggers.filters import FilterRefused
from headrace.client.records import HeaderList, Record
from headrace.services.replay import selection
from headrace.services.replay.pace import Pace
from headrace.services.replay.retried import retried
from headrace.services.replay.selection import Selection
from headrace.services.replay.trail import MOST_REPLAYS, with_trail, would_loop
from headrace.wire.contract.headers import REPLAYED_FROM


def record(
    value: bytes | None = b"{}",
    *,
    key: bytes | None = None,
    headers: HeaderList | None = None,
    timestamp_ms: int | None = 1_000,
    offset: int = 5,
) -> Record:
    return Record("orders", 1, offset, timestamp_ms, "create", key, value, headers or [])


# ---- which


def test_every_condition_must_hold() -> None:
    wanted = Selection(
        since_ms=500, until_ms=2_000, key=b"tom", headers={"kind": "refund"}, where="value.n > 3"
    )
    right: HeaderList = [("kind", b"sale"), ("kind", b"refund")]
    assert wanted.accepts(record(b'{"n": 4}', key=b"tom", headers=right))
    assert not wanted.accepts(record(b'{"n": 3}', key=b"tom", headers=right))
    assert not wanted.accepts(record(b'{"n": 4}', key=b"ann", headers=right))
    assert not wanted.accepts(record(b'{"n": 4}', key=b"tom"))
    for timestamp_ms in (499, 2_000, None):
        late = record(b'{"n": 4}', key=b"tom", headers=right, timestamp_ms=timestamp_ms)
        assert not wanted.accepts(late)


def test_dead_letters_are_chosen_by_their_error() -> None:
    letter = record(headers=[(names.DEAD_ERROR, b"KeyError"), (names.DEAD_MESSAGE, b"no price")])
    assert Selection(error="KeyError").accepts(letter)
    assert Selection(error="no price").accepts(letter)
    assert not Selection(error="TimeoutError").accepts(letter)
    assert not Selection(error="KeyError").accepts(record())


def test_only_places_and_times_mean_whole_spans() -> None:
    assert Selection(since_ms=5).takes_whole_spans
    for one in (Selection(until_ms=5), Selection(key=b"a"), Selection(headers={"a": "b"})):
        assert not one.takes_whole_spans


def test_an_expression_that_is_none_is_refused_before_anything_is_read() -> None:
    with pytest.raises(FilterRefused):
        Selection(where="__import__('os')").check()
    Selection(where="value.n > 3").check()
    Selection().check()


def test_conditions_survive_the_journal() -> None:
    wanted = Selection(5, 9, b"\xff\x00", {"a": "b"}, "key == 'x'", "Boom")
    assert selection.from_json(selection.as_json(wanted)) == wanted
    assert selection.from_json({}) == Selection()


# ---- how fast


def test_a_rate_spreads_records_evenly() -> None:
    pace = Pace(rate=10)
    assert [round(pace.wait_s(None, 100.0), 3) for _ in range(3)] == [0.0, 0.1, 0.2]


def test_a_speed_follows_the_times_of_the_records() -> None:
    pace = Pace(speed=10)
    assert pace.wait_s(60_000, 0.0) == 0
    assert pace.wait_s(120_000, 0.0) == pytest.approx(6)
    assert pace.wait_s(None, 6.0) == 0
    assert pace.wait_s(30_000, 6.0) == 0  # out of order: at once


def test_what_was_held_up_is_made_up_for_by_a_second_at_most() -> None:
    pace = Pace(rate=1)
    assert pace.wait_s(None, 0.0) == 0
    assert pace.wait_s(None, 100.0) == 0
    waits = [pace.wait_s(None, 100.0) for _ in range(3)]
    assert waits == [pytest.approx(0), pytest.approx(1), pytest.approx(2)]


def test_without_a_pace_nothing_waits() -> None:
    pace = Pace()
    assert [pace.wait_s(10**12, 0.0) for _ in range(3)] == [0, 0, 0]


# ---- not again


def test_a_record_does_not_go_back_to_where_it_came_from() -> None:
    trail = with_trail(record())
    assert trail == [(REPLAYED_FROM, b"orders/1/5")]
    copied = record(headers=trail)
    assert would_loop(copied, "orders")
    assert not would_loop(copied, "elsewhere")
    assert not would_loop(record(), "orders")  # the first time, into its own topic


def test_a_record_that_was_replayed_too_often_stays() -> None:
    often: HeaderList = [(REPLAYED_FROM, b"t%d/0/0" % n) for n in range(MOST_REPLAYS)]
    assert would_loop(record(headers=often), "new")
    assert not would_loop(record(headers=often[1:]), "new")


# ---- to one group alone


def test_a_chosen_record_keeps_its_place_time_and_id_in_the_retry_topic() -> None:
    dress = retried("TOPICID", "orders.billing.retry", {1: 6}, new_ids=None)
    again = dress(record(b"v", key=b"k", headers=[("kind", b"x"), (names.ATTEMPT, b"3")]))
    assert again is not None
    assert (again.topic, again.partition, again.key, again.value) == (
        "orders.billing.retry", 1, b"k", b"v",
    )  # fmt: skip
    assert dict(again.headers) == {
        "kind": b"x",
        REPLAYED_FROM: b"orders/1/5",
        names.ORIGIN: b"orders/1/5",
        names.ORIGIN_AT: b"1000",
        names.CARRIED_ID: b"orders/1/5@TOPICID",
    }


def test_an_id_that_the_sender_gave_stays_unless_it_is_to_count_as_new() -> None:
    given = record(headers=[(names.MESSAGE_ID, b"bill-7")])
    same = retried("T", "r", {1: 6}, new_ids=None)(given)
    new = retried("T", "r", {1: 6}, new_ids="monday")(given)
    assert same is not None and new is not None
    assert dict(same.headers)[names.CARRIED_ID] == b"bill-7"
    assert dict(new.headers)[names.CARRIED_ID] == b"bill-7~replay~monday"


def test_what_the_group_has_not_read_yet_is_not_sent_to_it() -> None:
    dress = retried("T", "r", {1: 6}, new_ids=None)
    assert dress(record(offset=6)) is None
    assert dress(record(offset=5)) is not None
    assert retried("T", "r", {}, new_ids=None)(record()) is None


def test_a_leap_of_the_clock_holds_a_replay_up_for_a_while_only() -> None:
    pace = Pace(speed=1.0, longest_wait_s=60.0)
    assert pace.wait_s(0, 100.0) == 0
    assert pace.wait_s(1_790_000_000_000, 100.0) == 60  # from 1970 to 2026
    assert pace.shortened == 1
    assert pace.wait_s(1_790_000_002_000, 160.0) == 2
    assert pace.wait_s(5_000, 162.0) == 0  # back to 1970, and on from there
    assert pace.wait_s(8_000, 162.0) == 3
    assert pace.shortened == 1
