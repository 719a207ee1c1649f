"""Decides whether two logs agree up to a point: Raft's log matching, in the form of KRaft's Fetch.

A follower names the end of its log and the epoch of the record before it. Offsets and epochs of
agreeing logs are equal, so the leader can tell from its own epochs alone.
"""

from __future__ import annotations

from typing import Protocol

from headrace.node.consensus.quorum.messages import OffsetAndEpoch
from headrace.node.consensus.snapshots import SnapshotId

# Formatting wrote it. It is not replicated: the first leader repeats its content in the log.
FORMATTED = SnapshotId(0, 0)


class Matching(Protocol):
    """The methods of a log that the comparison needs."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch not above `epoch` that the log knows, and where it ends."""
        ...

    def earliest_snapshot(self) -> SnapshotId | None: ...

    def latest_snapshot(self) -> SnapshotId | None: ...


def diverges(log: Matching, offset: int, last_epoch: int) -> OffsetAndEpoch | SnapshotId | None:
    """None: the logs agree up to `offset`. Else where they part, or the snapshot to begin with."""
    latest = log.latest_snapshot()
    if offset == 0 and latest is not None and latest != FORMATTED:
        return latest  # for an empty log a snapshot is less work than all records before it
    if offset == 0 and last_epoch == 0 and log.start_offset == 0:
        return None
    earliest = log.earliest_snapshot()
    if earliest is not None and _is_before(log, offset, last_epoch, earliest):
        return latest
    end = log.end_of_epoch(last_epoch)
    if end.epoch != last_epoch or end.offset < offset:
        return end
    return None


def _is_before(log: Matching, offset: int, last_epoch: int, earliest: SnapshotId) -> bool:
    """Returns whether the log begins after the point, so that it cannot decide whether the two
    agree."""
    if offset < log.start_offset or last_epoch < earliest.epoch:
        return True
    return offset == log.start_offset != 0 and last_epoch != earliest.epoch


def truncation_point(log: Matching, diverging: OffsetAndEpoch) -> int:
    """Returns up to where a follower may keep its log, given where the leader reports that the logs
    diverge."""
    mine = log.end_of_epoch(diverging.epoch)
    if mine.epoch == diverging.epoch:
        return min(mine.offset, diverging.offset)
    return mine.offset
