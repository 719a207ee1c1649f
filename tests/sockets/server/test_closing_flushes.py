"""The flushes of a clean end run side by side, and say how far they are when it takes long."""

import threading

import pytest

from headrace.node.process.flusher import FLUSHES_AT_ONCE, ClosingFlushes

NEVER = 600


def wait(waited_for) -> None:
    waited_for.wait(60)


def nobody_listens(done, all_of_them):
    raise AssertionError("there was no time to say anything")


def test_flushes_that_wait_for_each_other_end():
    everybody = threading.Barrier(FLUSHES_AT_ONCE)
    flushes = ClosingFlushes(lambda: FLUSHES_AT_ONCE, nobody_listens, every_s=NEVER)
    flushes([lambda: wait(everybody)] * FLUSHES_AT_ONCE)
    flushes([])
    assert flushes.done == FLUSHES_AT_ONCE


def test_what_the_disk_refuses_is_raised_when_all_have_ended():
    done = []

    def fails():
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        ClosingFlushes(lambda: 41, nobody_listens, every_s=NEVER)(
            [fails, *[lambda: done.append(1)] * 40]
        )
    assert len(done) == 40


def test_a_slow_disk_is_told_about_until_it_is_done():
    told, may_end = [], threading.Event()

    def say(done, all_of_them):
        told.append((done, all_of_them))
        if len(told) == 3:
            may_end.set()

    flushes = ClosingFlushes(lambda: 900, say, every_s=0.001)
    flushes([lambda: wait(may_end)])
    assert told[:3] == [(0, 900)] * 3
    assert flushes.done == 1


def test_many_quick_flushes_are_told_about_too():
    """Each call ends in less than a second; together they take longer."""
    now_s, told = [0.0], []

    def flush():
        now_s[0] += 0.4

    flushes = ClosingFlushes(
        lambda: 300, lambda *how_far: told.append(how_far), every_s=1.0, clock=lambda: now_s[0]
    )
    for _ in range(3):
        assert told == []
        flushes([flush])
    assert told == [(3, 300)]
