"""Durations as people write them in a header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.contract import durations


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0", 0),
        ("0ms", 0),
        ("500ms", 500),
        ("1500", 1_500),
        ("30s", 30_000),
        ("30m", 1_800_000),
        ("1h30m", 5_400_000),
        (" 2d ", 172_800_000),
        ("1w1d1h1m1s1ms", 694_861_001),
        ("90m", 5_400_000),
        ("1s500ms", 1_500),
    ],
)
def test_what_people_write(text: str, duration_ms: int) -> None:
    assert durations.parse(text) == duration_ms


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "-5s", "+5s", "1.5h", "5 m", "m", "30M", "1y", "30m1h", "5s5s", "1h30", "٣s"]
    + ["9" * 19, "9" * 5_000 + "s", "5s\x00"],
)
def test_what_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        durations.parse(text)


@given(st.integers(0, durations.LONGEST_DELAY_MS))
def test_written_and_read_again(duration_ms: int) -> None:
    assert durations.parse(durations.write(duration_ms)) == duration_ms


def test_the_shortest_way_to_write_it() -> None:
    assert durations.write(5_400_000) == "1h30m"
    assert durations.write(0) == "0ms"
    with pytest.raises(ValueError, match="not negative"):
        durations.write(-1)
