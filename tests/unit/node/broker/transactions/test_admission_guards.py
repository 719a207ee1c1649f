"""A marker refuses those who wait to write in the transaction that it ends, and nobody else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.node.broker.coordinators.admission_ahead import Guards
from headrace.node.coordination.transaction.machine import Producer

ID = 7


def leader() -> Any:
    return SimpleNamespace(topic="orders", index=0, led_since=1)


@pytest.mark.parametrize(
    ("waits_with", "marker", "bumps_epoch", "holds"),
    [
        (5, 6, True, False),  # the end of its own transaction
        (5, 5, True, True),  # of the one before, whose end gave this epoch to the producer
        (5, 4, True, True),
        (5, 5, False, False),  # a client older than KIP-890 keeps its epoch
        (5, 6, False, False),
        (5, 4, False, True),
    ],
)
def test_whose_transaction_a_marker_ends(
    waits_with: int, marker: int, bumps_epoch: bool, holds: bool
) -> None:
    guards = Guards()
    guard = guards.take(leader(), Producer(ID, waits_with))
    guards.marker_written("orders", 0, Producer(ID, marker), bumps_epoch=bumps_epoch)
    assert guard.holds is holds
    guards.give_back(guard)


def test_markers_of_others_break_nothing() -> None:
    guards = Guards()
    guard = guards.take(leader(), Producer(ID, 5))
    guards.marker_written("orders", 1, Producer(ID, 6), bumps_epoch=True)
    guards.marker_written("orders", 0, Producer(ID + 1, 6), bumps_epoch=True)
    assert guard.holds


def test_an_epoch_that_is_over_cannot_hold_beside_a_newer_one() -> None:
    guards = Guards()
    older = guards.take(leader(), Producer(ID, 5))
    newer = guards.take(leader(), Producer(ID, 6))
    late = guards.take(leader(), Producer(ID, 5))
    assert (older.holds, newer.holds, late.holds) == (False, True, False)
    guards.give_back(late)
    guards.give_back(older)
    assert guards.take(leader(), Producer(ID, 6)) is newer


def test_a_guard_that_nobody_uses_is_forgotten() -> None:
    guards = Guards()
    one = guards.take(leader(), Producer(ID, 5))
    assert guards.take(leader(), Producer(ID, 5)) is one
    guards.give_back(one)
    guards.give_back(one)
    assert guards.take(leader(), Producer(ID, 5)) is not one
