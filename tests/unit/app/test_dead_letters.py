"""The story that a parked record carries, and what it carries through retries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.app import headers as names
from headrace.app.retries.carried_headers import carried_by
from headrace.app.retries.dead_letters import LONGEST_STACK, cut_end, cut_start, why_headers


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise ValueError("at the bottom " + "x" * 3000)


def test_the_end_of_a_long_stack_is_kept() -> None:
    try:
        deep(200)
    except ValueError as error:
        found = dict(
            why_headers(
                error,
                attempts=3,
                first_at_ms=1,
                last_at_ms=2,
                origin=("orders", 1, 42),
                group="billing",
            )
        )
    stack = found[names.DEAD_STACK]
    assert stack is not None and len(stack) <= LONGEST_STACK
    assert b"at the bottom" in stack
    assert found[names.DEAD_ERROR] == b"builtins.ValueError"
    assert found[names.DEAD_OFFSET] == b"42"
    assert found[names.DEAD_GROUP] == b"billing"


@given(st.text(), st.integers(0, 50))
def test_no_letter_is_torn(text: str, most: int) -> None:
    for cut in (cut_end(text, most), cut_start(text, most)):
        assert len(cut) <= most
        cut.decode()


@given(
    st.lists(st.tuples(st.sampled_from(sorted(names.RETRY)), st.binary(max_size=30) | st.none()))
)
def test_headers_that_somebody_else_wrote_harm_nobody(
    headers: list[tuple[str, bytes | None]],
) -> None:
    carried = carried_by(headers)
    assert carried.made >= 0 and carried.due_ms >= 0


def test_the_story_of_a_retry_is_read_back() -> None:
    carried = carried_by(
        [
            (names.ATTEMPT, b"3"),
            (names.ORIGIN, b"orders/1/42"),
            (names.ORIGIN_AT, b"99"),
            (names.CARRIED_ID, "b\u00e9".encode()),
            (names.DUE, b"1000"),
        ]
    )
    assert (carried.made, carried.origin, carried.origin_at_ms) == (3, ("orders", 1, 42), 99)
    assert (carried.message_id, carried.due_ms) == ("b\u00e9", 1000)
