"""The flushes of a clean end run side by side, and one that fails makes the end unclean."""

import threading

import pytest

from headrace.server.flusher import FLUSHES_AT_ONCE, at_once


def test_flushes_wait_for_the_disk_side_by_side():
    """Each waits for all the others: one after the other, none would end."""
    everybody = threading.Barrier(FLUSHES_AT_ONCE)
    at_once([lambda: everybody.wait(60)] * FLUSHES_AT_ONCE)
    assert not everybody.broken


def test_one_that_fails_is_told_when_all_have_ended():
    done = []

    def fails():
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        at_once([fails, *[lambda: done.append(1)] * 40])
    assert len(done) == 40


def test_nothing_to_flush_needs_no_thread():
    at_once([])
