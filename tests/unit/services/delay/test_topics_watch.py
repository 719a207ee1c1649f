"""The thread that knows the delayed topics: poison and bugs do not end it."""

from __future__ import annotations

import logging
import threading

import pytest

from headrace.services.delay import topics as watched
from headrace.services.delay.topics import Topics
from headrace.wire.contract import delay_topics
from headrace.wire.contract.own_records import OwnRecords


def a_watch() -> Topics:
    """Without a cluster: only the parts that the tests use."""
    watch = object.__new__(Topics)
    watch.problem = None
    watch.registrations = OwnRecords(delay_topics.REGISTRY, logging.getLogger("tests.watch"))
    watch._registered, watch._only = {}, lambda target: True
    watch._registry, watch._troubles = None, []
    watch._stopping = threading.Event()
    return watch


def test_poison_in_the_registry_is_skipped_and_the_next_pair_is_served() -> None:
    watch = a_watch()
    good = delay_topics.register("orders", 5)
    assert not watch._register(b"orders", b"[" * 100_000, 0, 0)
    assert watch._register(good.key, good.value, 0, 1)
    assert watch._registered == {"orders": "orders.delay"}
    assert watch.registrations.skipped == 1


def test_a_bug_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, turns = a_watch(), []

    def turn() -> None:
        turns.append(watch.problem)
        if len(turns) < 3:
            raise KeyError("a bug")
        watch._stopping.set()

    monkeypatch.setattr(watched, "AFTER_A_BUG_S", 0)
    monkeypatch.setattr(Topics, "_turn", lambda self: turn())
    watch._run()
    assert len(turns) == 3 and "a bug" in str(turns[1]) and watch.problem is None
