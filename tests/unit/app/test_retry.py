"""When a failed attempt is made again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.app.retry import Retry


def test_waits_double_up_to_the_longest() -> None:
    retry = Retry(attempts=8, first="1s", longest="10s", jitter=0)
    assert [retry.wait_ms(made, chance=0.5) for made in range(1, 8)] == [
        1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000,
    ]  # fmt: skip


def test_fatal_and_unlisted_errors_are_not_tried_again() -> None:
    retry = Retry(attempts=3, retriable=(OSError, ValueError), fatal=(FileNotFoundError,))
    assert retry.again(ConnectionError(), 1)
    assert retry.again(ConnectionError(), 2)
    assert not retry.again(ConnectionError(), 3)
    assert not retry.again(FileNotFoundError(), 1)
    assert not retry.again(KeyError(), 1)


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0, 1), st.floats(1, 10))
def test_a_wait_lies_within_the_jitter_of_what_was_asked(
    made: int, chance: float, jitter: float, factor: float
) -> None:
    retry = Retry(attempts=20_000, first="1s", longest="1h", jitter=jitter, factor=factor)
    wait = retry.wait_ms(made, chance)
    assert 1_000 * (1 - jitter) - 1 <= wait <= 3_600_000 * (1 + jitter) + 1
    assert wait <= retry.longest_wait_ms + 1 or made >= retry.attempts


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"first": "1 hour"},
        {"first": "1m", "longest": "1s"},
        {"factor": 0.5},
        {"jitter": 2},
        {"time_limit": "0ms"},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Retry(**wrong)  # type: ignore[arg-type]
