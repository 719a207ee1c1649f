"""The invariants of every run, whatever the faults. A checker sees all nodes at once.

QuorumChecker: one leader per epoch; one value per offset, on every node that reports it as
committed; nothing acknowledged is lost; a snapshot replaces exactly the records before its end; all
nodes name the same voters at the same committed offset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from headrace.node.consensus.voters import Voter
from headrace.node.simulator.memory_log import StoredBatch


class Violation(AssertionError):
    """A promise was broken."""


class QuorumChecker:
    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}  # epoch -> node
        self._committed: dict[int, StoredBatch] = {}  # by base offset, as first reported
        self._digests: dict[int, bytes] = {0: b""}  # of everything before an offset
        self._acknowledged: dict[int, StoredBatch] = {}
        self._voters: dict[int, tuple[Voter, ...]] = {}  # by committed offset

    @property
    def committed_end(self) -> int:
        return max(self._digests)

    def elected(self, node: int, epoch: int) -> None:
        leader = self._leaders.setdefault(epoch, node)
        if leader != node:
            raise Violation(f"nodes {leader} and {node} both lead epoch {epoch}")

    def committed(
        self, node: int, batches: Sequence[StoredBatch], applied: int, high_watermark: int
    ) -> int:
        """Check the committed batches that a node applies; returns the offset up to which it has
        applied them."""
        for batch in batches:
            if batch.end_offset <= applied or batch.end_offset > high_watermark:
                continue
            if batch.base_offset != applied:
                raise Violation(f"node {node} applies {batch.base_offset} after {applied}")
            known = self._committed.setdefault(batch.base_offset, batch)
            if known != batch:
                raise Violation(f"node {node} has another batch at offset {applied}")
            before = self._digests[applied]
            digest = hashlib.blake2s(before + batch.data, digest_size=16).digest()
            applied = batch.end_offset
            self._digests.setdefault(applied, digest)
        if applied != high_watermark:
            raise Violation(f"node {node} has {applied} and not the committed {high_watermark}")
        return applied

    def voters_known(self, node: int, committed: int, voters: tuple[Voter, ...]) -> None:
        known = self._voters.setdefault(committed, voters)
        if known != voters:
            ids = [[voter.id for voter in each] for each in (known, voters)]
            raise Violation(
                f"at offset {committed} the voters are {ids[0]}, at node {node} {ids[1]}"
            )

    def acknowledge(self, batch: StoredBatch) -> None:
        self._acknowledged[batch.base_offset] = batch

    def is_acknowledged(self, batch: StoredBatch) -> bool:
        return self._acknowledged.get(batch.base_offset) == batch

    def digest_at(self, offset: int) -> bytes:
        return self._digests[offset]

    def snapshot_loaded(self, node: int, end_offset: int, digest: bytes) -> None:
        if self._digests.get(end_offset) != digest:
            raise Violation(f"the snapshot of node {node} at {end_offset} is of other records")

    def finish(self) -> None:
        for offset, batch in self._acknowledged.items():
            if self._committed.get(offset) != batch:
                raise Violation(f"offset {offset} was acknowledged and is lost")
