"""A node that is killed between any two writes of a transaction: the outcome is one of two, whole.

The disk counts writes to `.log` and `.txnindex` files and kills the process before a given one.
What was written is in the page cache and stays, as with kill -9. `make full` tries every point,
each change every third: the four stories begin at different ones.
"""

from typing import Any

import pytest

from headrace.node.process.folders.real_disk import RealDisk, RealFile
from headrace.wire.protocol.errors import ErrorCode
from tests.effort import every
from tests.unit.node.broker import rig as rig_module
from tests.unit.node.broker.transactions.transaction_rig import TransactionRig


class Killed(BaseException):
    """Not an Exception: nothing in the node may catch it."""


class Countdown:
    def __init__(self):
        self.left = None

    def write(self):
        if self.left is None:
            return
        if self.left == 0:
            raise Killed
        self.left -= 1


class MortalFile(RealFile):
    __slots__ = ("countdown",)
    countdown: Any

    def append(self, data):
        if self.path.endswith((".log", ".txnindex")):
            self.countdown.write()
        super().append(data)


class MortalDisk(RealDisk):
    __slots__ = ("countdown",)

    def __init__(self, countdown):
        self.countdown = countdown

    def open(self, path, *, create=False):
        plain = super().open(path, create=create)
        file = MortalFile(path, plain._fd)
        plain._fd = -1
        file.countdown = self.countdown
        return file


@pytest.fixture
def countdown(monkeypatch):
    countdown = Countdown()
    monkeypatch.setattr(rig_module, "RealDisk", lambda: MortalDisk(countdown))
    return countdown


def scenario(rig, *, commit, bumps):
    """Two transactions over two partitions and a group's offsets; the first is committed."""
    producer = rig.producer("t", bumps=bumps)
    places = [("orders", 0), ("orders", 1)]
    for number in (1, 2):
        if not bumps:
            producer.add(*places)
            producer.add_offsets("g")
        producer.send("orders", f"{number}a", partition=0)
        producer.send("orders", f"{number}b", partition=1)
        producer.commit_offset("g", "input", number)
        yield number
        assert producer.end(True if number == 1 else commit) == ErrorCode.NONE
    yield "done"


def outcome(folder):
    """What is there after a restart, when whatever was left open has timed out."""
    rig = TransactionRig(folder, **FEW)
    rig.advance(200_000)
    state = rig.list().get("t", "Empty")
    seen = rig.committed("orders"), rig.committed("orders", partition=1)
    rig.produce("orders", "after", partition=0)
    rig.produce("orders", "after", partition=1)
    for partition in (0, 1):  # nobody is held back by a transaction that hangs
        assert rig.committed("orders", partition=partition)[-1] == "after"
    offset, code = rig.offset_of("g", "input", require_stable=True)
    assert code == ErrorCode.NONE
    return state, seen, offset


FEW = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
NOTHING = (([], []), -1)
FIRST = ((["1a"], ["1b"]), 1)
BOTH = ((["1a", "2a"], ["1b", "2b"]), 2)


@pytest.mark.parametrize("bumps", [True, False], ids=["since KIP-890", "before KIP-890"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_killed_before_any_write(tmp_path, countdown, commit, bumps):
    outcomes = []
    for left in range((2 * commit + bumps) % every(3), 60, every(3)):
        folder = tmp_path / str(left)
        countdown.left = None
        rig = TransactionRig(folder, **FEW)
        rig.create("orders", 2)
        rig.create("input")
        countdown.left = left
        reached = None
        try:
            for step in scenario(rig, commit=commit, bumps=bumps):
                reached = step
        except Killed:
            pass
        countdown.left = None
        state, seen, offset = outcome(folder)
        assert state in ("Empty", "CompleteCommit", "CompleteAbort")
        assert (seen, offset) in (NOTHING, FIRST, BOTH), f"torn by a kill before write {left}"
        # What the client was told stays so.
        if reached == 2:
            assert (seen, offset) != NOTHING
        if reached == "done":
            assert (seen, offset) == (BOTH if commit else FIRST)
            break
        outcomes.append((seen, offset))
    assert reached == "done", "the scenario has more writes than were tried"
    assert outcomes[0] == NOTHING
    assert FIRST in outcomes
