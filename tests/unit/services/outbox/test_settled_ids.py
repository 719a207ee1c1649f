"""Which ids of PostgreSQL are decided, told from polls alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.outbox.stable_ids import MOST_PAIRS, XIDS, StableIds, precedes


def test_an_id_is_settled_when_all_transactions_before_its_look_have_ended() -> None:
    ids = StableIds()
    assert ids.saw(last_id=10, xid=105, oldest_open=101) == 0  # 101 may have drawn 10 and be open
    assert ids.saw(last_id=10, xid=None, oldest_open=104) == 0
    assert ids.saw(last_id=10, xid=None, oldest_open=105) == 10


def test_looks_queue_up_behind_a_long_transaction_and_settle_one_by_one() -> None:
    ids = StableIds()
    for look in range(3):
        ids.saw(last_id=10 + look, xid=200 + look, oldest_open=150)
    assert ids.saw(last_id=12, xid=None, oldest_open=201) == 11
    assert ids.saw(last_id=12, xid=None, oldest_open=202) == 12
    assert not ids.waits


def test_a_long_transaction_that_does_not_touch_the_outbox_is_not_waited_for() -> None:
    ids = StableIds()
    ids.saw(last_id=10, xid=200, oldest_open=150)
    assert ids.release([150]) == 0  # it holds the outbox's lock
    assert ids.release([201]) == 10  # a later one does: it cannot have drawn 10


def test_a_queue_that_is_full_keeps_the_oldest_looks_and_the_newest() -> None:
    ids = StableIds()
    for look in range(MOST_PAIRS * 2):
        ids.saw(last_id=10 + look, xid=200 + look, oldest_open=150)
    assert ids.saw(last_id=500, xid=None, oldest_open=10_000) == 10 + MOST_PAIRS * 2 - 1


@given(older=st.integers(3, 2**40), apart=st.integers(1, 2**30))
def test_transaction_ids_of_locks_are_compared_across_the_wraparound(
    older: int, apart: int
) -> None:
    assert precedes(older % XIDS, older + apart)
    assert not precedes((older + apart) % XIDS, older)
    assert not precedes(older % XIDS, older)


@given(st.lists(st.tuples(st.sampled_from(["begin", "draw", "end", "look"]), st.integers(0, 99))))
def test_no_undecided_id_is_ever_called_settled(story: list[tuple[str, int]]) -> None:
    """Whatever transactions do between the looks."""
    ids, drawn, xid = StableIds(), 0, 100
    open_: dict[int, set[int]] = {}
    for word, number in story:
        if word == "begin":
            open_[xid] = set()
            xid += 1
        elif word == "look":
            ids.saw(last_id=drawn, xid=xid, oldest_open=min(open_, default=xid))
            xid += 1
        elif open_:
            chosen = sorted(open_)[number % len(open_)]
            if word == "draw":
                drawn += 1
                open_[chosen].add(drawn)
            else:
                del open_[chosen]
        undecided = {id_ for found in open_.values() for id_ in found}
        assert all(id_ > ids.up_to for id_ in undecided)
        assert ids.up_to <= drawn
