"""Partitions as runs of numbers."""

from __future__ import annotations

from headrace.operations.partition_runs import run_in_digits, runs_of


def test_neighbours_become_one_run_in_any_order() -> None:
    places = [("orders", 7), ("orders", 1), ("bills", 0), ("orders", 0), ("orders", 2)]
    assert runs_of(places) == {"bills": [(0, 0)], "orders": [(0, 2), (7, 7)]}
    assert [run_in_digits(run) for run in runs_of(places)["orders"]] == ["0-2", "7"]
    assert runs_of([]) == {}
