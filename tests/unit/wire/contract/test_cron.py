"""Repeating schedules: time zones, daylight saving, ends, and missed runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.wire.contract.cron import Run, first_run, last_run_by, read, run_after


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def runs(expression: str, zone: str, start: str, count: int, **ends: int) -> list[str]:
    """In UTC."""
    cron = read(expression, zone, ends.get("until_ms"), ends.get("runs"))
    run = first_run(cron, ms(start))
    found = []
    while run is not None and len(found) < count:
        found.append(datetime.fromtimestamp(run.due_ms / 1000, UTC).strftime("%m-%d %H:%M"))
        run = run_after(run, run.due_ms)
    return found


def test_every_morning_in_berlin_follows_the_clocks_of_berlin() -> None:
    """Summer time began on 29 March 2026 and ended on 25 October."""
    spring = runs("0 8 * * *", "Europe/Berlin", "2026-03-28T00:00:00+00:00", 3)
    assert spring == ["03-28 07:00", "03-29 06:00", "03-30 06:00"]
    autumn = runs("0 8 * * *", "Europe/Berlin", "2026-10-24T00:00:00+00:00", 3)
    assert autumn == ["10-24 06:00", "10-25 07:00", "10-26 07:00"]


def test_a_run_in_the_hour_that_is_missing_is_made_when_it_is_over() -> None:
    found = runs("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+00:00", 2)
    assert found == ["03-29 01:00", "03-30 00:30"]


def test_a_run_in_the_hour_that_comes_twice_is_made_once() -> None:
    found = runs("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+00:00", 2)
    assert found == ["10-25 00:30", "10-26 01:30"]
    # Asked for in the second of the two hours, the next one is the day after, not an hour ago.
    cron = read("30 2 * * *", "Europe/Berlin", None, None)
    run = first_run(cron, ms("2026-10-25T01:15:00+00:00"))
    assert run is not None
    assert run.due_ms == ms("2026-10-26T01:30:00+00:00")


def test_each_minute_goes_through_both_hours() -> None:
    start = "2026-10-25T00:00:00+00:00"
    found = runs("*/30 * * * *", "Europe/Berlin", start, 4)
    assert found == ["10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00"]


def test_it_ends_after_its_number_of_runs_or_its_last_moment() -> None:
    start = "2026-01-01T00:00:00+00:00"
    assert len(runs("0 * * * *", "UTC", start, 100, runs=5)) == 5
    until = runs("0 * * * *", "UTC", start, 100, until_ms=ms("2026-01-01T03:00:00+00:00"))
    assert until == ["01-01 01:00", "01-01 02:00", "01-01 03:00"]


def test_missed_runs_count_as_planned_ones() -> None:
    cron = read("0 * * * *", "UTC", None, 5)
    run = first_run(cron, ms("2026-01-01T00:00:00+00:00"))
    assert run is not None
    after_three = run_after(run, ms("2026-01-01T03:00:00+00:00"))
    assert after_three is not None
    assert after_three.cron.number == 4
    assert run_after(run, ms("2026-01-01T05:00:00+00:00")) is None
    assert last_run_by(run, ms("2027-01-01T00:00:00+00:00")).due_ms == ms(
        "2026-01-01T05:00:00+00:00"
    )


@pytest.mark.parametrize("expression", ["* * * * *", "7 */6 * * *", "0 8 1 * MON", "0 0 29 2 *"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("gap", [timedelta(minutes=90), timedelta(days=100), timedelta(days=3650)])
def test_the_last_missed_run_is_the_one_before_the_next(
    expression: str, zone: str, gap: timedelta
) -> None:
    cron = read(expression, zone, None, None)
    run = first_run(cron, ms("2026-02-20T23:30:00+00:00"))
    assert run is not None
    now_ms = run.due_ms + round(gap.total_seconds() * 1000)
    last = last_run_by(run, now_ms)
    assert run.due_ms <= last.due_ms <= now_ms
    following = run_after(Run(last.due_ms, last.cron), last.due_ms)
    assert following is not None
    assert following.due_ms > now_ms


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Niue"])
@pytest.mark.parametrize("hours", [-15, -1, 0, 1, 15, 10**9])
def test_where_calendars_end_there_is_no_run(zone: str, hours: int) -> None:
    """In the year 9999, in some zones a few hours sooner; not an error that stops a partition."""
    cron = read("0 0 1 1 *", zone, None, None)
    assert first_run(cron, ms("9999-12-31T23:00:00+00:00") + hours * 3_600_000) is None
