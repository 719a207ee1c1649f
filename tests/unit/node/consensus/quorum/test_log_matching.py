"""Whether a follower's log agrees with the leader's, and how far it is cut if not."""

from __future__ import annotations

from headrace.node.consensus.quorum.log_matching import diverges, truncation_point
from headrace.node.consensus.quorum.messages import OffsetAndEpoch
from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.simulator.memory_log import MemoryLog, StoredBatch


def log(*epochs: int, start: int = 0, snapshots: tuple[SnapshotId, ...] = ()) -> MemoryLog:
    """One record per epoch named."""
    made = MemoryLog()
    made.start_offset = start
    made.batches = [StoredBatch(at, at + 1, epoch, b"") for at, epoch in enumerate(epochs, start)]
    made.snapshots = dict.fromkeys(snapshots, b"")
    return made


def test_equal_logs_agree() -> None:
    leader = log(1, 1, 2)
    assert diverges(leader, 0, 0) is None
    assert diverges(leader, 2, 1) is None
    assert diverges(leader, 3, 2) is None


def test_a_follower_with_a_longer_tail_is_told_where_the_epoch_ends() -> None:
    leader = log(1, 1, 3)
    assert diverges(leader, 5, 1) == OffsetAndEpoch(2, 1)
    assert diverges(leader, 4, 2) == OffsetAndEpoch(2, 1)


def test_a_follower_keeps_what_both_have() -> None:
    assert truncation_point(log(1, 1, 1, 1), OffsetAndEpoch(2, 1)) == 2
    assert truncation_point(log(1, 2, 2), OffsetAndEpoch(5, 1)) == 1
    assert truncation_point(log(2, 2), OffsetAndEpoch(5, 1)) == 0


def test_a_log_that_begins_later_answers_with_its_latest_snapshot() -> None:
    older, newer = SnapshotId(4, 2), SnapshotId(6, 3)
    leader = log(2, 3, 3, start=4, snapshots=(older, newer))
    assert diverges(leader, 3, 2) == newer
    assert diverges(leader, 4, 1) == newer, "it ends at the same offset in another epoch"
    assert diverges(leader, 4, 2) is None
    assert diverges(leader, 5, 1) == newer, "nobody knows any more where epoch 1 ended"


def test_an_empty_follower_gets_a_snapshot_but_not_that_of_formatting() -> None:
    assert diverges(log(1, 1, snapshots=(SnapshotId(2, 1),)), 0, 0) == SnapshotId(2, 1)
    assert diverges(log(1, 1, snapshots=(SnapshotId(0, 0),)), 0, 0) is None
