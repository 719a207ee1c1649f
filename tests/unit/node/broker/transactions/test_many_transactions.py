"""Thousands of small transactions that time out together end between other requests."""

import pytest

from headrace.node.broker.coordinators import coordinators, transaction_markers
from headrace.node.coordination.transaction import machine as transaction_machine
from tests.unit.node.broker.transactions.transaction_rig import TransactionRig

TRANSACTIONS = 12
AT_ONCE = 3


@pytest.fixture
def rig(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinators, "WORK_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(transaction_machine, "PARTITIONS_AT_ONCE", 2)
    rig = TransactionRig(tmp_path / "data")
    rig.create("orders", 1)
    return rig


@pytest.fixture
def ended(monkeypatch):
    """Ids in the order in which their markers are written."""
    found = []
    write_marker = transaction_markers.TransactionMarkers._write_marker

    def note(self, ending, leader):
        found.append(ending.decided.id)
        return write_marker(self, ending, leader)

    monkeypatch.setattr(transaction_markers.TransactionMarkers, "_write_marker", note)
    return found


def pass_time(rig, milliseconds):
    rig.now.monotonic_ms += milliseconds
    rig.now.wall_ms += milliseconds


def ongoing(rig):
    machines = rig.node.broker.transactions.machines(rig.now)
    return sum(len(machine._ongoing) for machine in machines)


def test_those_that_time_out_together_are_aborted_between_other_requests(rig, ended):
    """2,000 of them, over all partitions of the log, held the loop for 200 ms."""
    for number in range(TRANSACTIONS):
        assert rig.producer(f"t{number}").send("orders", "a") == 0
    pass_time(rig, 100_000)
    before = ongoing(rig)
    rig.node.broker.coordinators_tick()
    assert before - ongoing(rig) <= AT_ONCE and ended == []
    for _ in range(10 * TRANSACTIONS):
        open_before, ended_before = ongoing(rig), len(ended)
        rig.node.work(lambda: True)
        assert open_before - ongoing(rig) <= 2 and len(ended) - ended_before <= 1
        rig.node.broker.coordinators_tick()
    for _ in range(TRANSACTIONS):
        pass_time(rig, 10_000)
        rig.node.broker.coordinators_tick()
        rig.until_idle()
    assert sorted(ended) == sorted(f"t{number}" for number in range(TRANSACTIONS))
    assert {each.transaction_state for each in map(rig.describe, ended)} == {"CompleteAbort"}
