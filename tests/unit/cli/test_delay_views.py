"""What `headrace delay` makes of numbers: moments, waits, percentiles, partitions."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from headrace.cli.delayed.moments import away, clock, moment_ms
from headrace.cli.delayed.pending_view import cron_text
from headrace.cli.delayed.stats_view import (
    NOBODY,
    as_document,
    lateness_text,
    owned_text,
    percentiles,
    problems,
)
from headrace.client.delay.instances import Instance
from headrace.operations.delayed import Lateness, report_of

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", NOW_MS),
        ("+10m", NOW_MS + 600_000),
        ("-1h30m", NOW_MS - 5_400_000),
        ("5", 5),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:00.5+01:00", 500),
    ],
)
def test_a_moment_is_read(text: str, wanted: int) -> None:
    assert moment_ms(text, now_ms=NOW_MS, option="--from") == wanted


@pytest.mark.parametrize("text", ["", "soon", "+soon", "2026-13-01", "99999-01-01"])
def test_what_is_no_moment_is_told(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        moment_ms(text, now_ms=NOW_MS, option="--from")


@pytest.mark.parametrize(
    ("left_ms", "words"),
    [
        (-250, "0.2 s late"),
        (0, "in 0.0 s"),
        (9_940, "in 9.9 s"),
        (59_999, "in 59s"),
        (29 * 60_000 + 58_000, "in 29m58s"),
        (3_600_000 + 59_000, "in 1h"),
        (3 * 86_400_000 + 4 * 3_600_000 + 5, "in 3d4h"),
    ],
)
def test_a_wait_is_told_no_finer_than_it_matters(left_ms: int, words: str) -> None:
    assert away(NOW_MS + left_ms, NOW_MS) == words


def test_a_time_beyond_all_calendars_is_shown_as_a_number() -> None:
    assert clock(10**18) == str(10**18)


def test_percentiles_are_upper_bounds() -> None:
    lateness: Lateness = {5: 90, 10: 9, None: 1}
    assert percentiles(lateness) == {"count": 100, "p50": 5, "p99": 10, "p99.9": None}
    assert "p99 <= 10 ms, p99.9 > 1 min" in lateness_text(percentiles(lateness))
    assert "nothing was delivered" in lateness_text(percentiles({}))


def test_partitions_are_told_in_runs() -> None:
    assert owned_text({"orders": [5, 0, 2, 1], "bills": [0]}) == "bills 0; orders 0-2,5"
    assert owned_text({}) == ""


def answer(instance: str, topic: str, *partitions: dict[str, Any]) -> tuple[Instance, Any]:
    told = {"topic": topic, "pending": 2, "due_next_minute": 1, "partitions": list(partitions)}
    numbers = dict.fromkeys(("delivered", "outcomes", "rejected", "aborted"), 0)
    return Instance(instance, "127.0.0.1", "127.0.0.1:9095"), {
        "instance": instance,
        "now_ms": 10,
        "started_at_ms": 4,
        "topics": [told],
        "lateness_ms": [[5, 3], [None, 1]],
        "problem": None,
        **numbers,
    }


def test_instances_are_put_together_by_topic() -> None:
    report = report_of(
        [
            answer("b", "orders", {"partition": 1, "state": "rebuilding", "problem": None}),
            answer("a", "orders", {"partition": 0, "state": "waiting", "problem": "create it"}),
        ],
        ["idle", "orders"],
    )
    document = as_document(report)
    idle, orders = document["topics"]
    assert (idle["topic"], idle["state"]) == ("idle", NOBODY)
    assert (orders["pending"], orders["due_next_minute"]) == (4, 2)
    assert orders["state"] == "rebuilding, waiting"
    assert [p["instance"] for p in orders["partitions"]] == ["a", "b"]
    assert document["instances"][0]["partitions"] == {"orders": [1]}
    assert report.lateness == {5: 6, None: 2}
    assert problems(document) == ["orders: create it"]


def test_a_schedule_as_it_was() -> None:
    daily = {"expression": "0 9 * * *", "zone": "UTC", "until_ms": None, "count": 3}
    assert cron_text(daily) == "0 9 * * * in UTC, 3 times in all"
