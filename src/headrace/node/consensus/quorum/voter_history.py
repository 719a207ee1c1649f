"""The voters and kraft.version by offset, as the log and its snapshots name them.

A VotersRecord counts from the moment it is in the log, committed or not (KIP-853), and is undone
when the log is truncated below it. At most one is uncommitted: the leader sees to that.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.node.consensus.batches import Batch
from headrace.node.consensus.quorum.messages import ReplicaKey
from headrace.node.consensus.snapshots import Snapshot
from headrace.node.consensus.voters import Voter, voters_in
from headrace.wire.protocol.messages.kraft_version_record import KRaftVersionRecord
from headrace.wire.protocol.messages.voters_record import VotersRecord

BEFORE_THE_LOG = -1


class Entry(NamedTuple):
    offset: int  # of the record; -1: configured, or written by formatting
    voters: tuple[Voter, ...]
    kraft_version: int


class VoterHistory:
    __slots__ = ("_entries",)

    def __init__(self, voters: tuple[Voter, ...] = (), kraft_version: int = 0) -> None:
        """`voters`: the configured ones (kraft.version 0), the ones that formatting named, or
        none."""
        self._entries = [Entry(BEFORE_THE_LOG, voters, kraft_version)]

    @property
    def latest(self) -> tuple[Voter, ...]:
        return self._entries[-1].voters

    @property
    def kraft_version(self) -> int:
        return self._entries[-1].kraft_version

    @property
    def latest_offset(self) -> int:
        """The offset of the latest record of voters; -1 if the log has none."""
        return self._entries[-1].offset

    @property
    def previous(self) -> tuple[Voter, ...]:
        """The voters before the latest record; none if that is not known any more."""
        return self._entries[-2].voters if len(self._entries) > 1 else ()

    def before(self, offset: int) -> Entry:
        """The voters at the end of a snapshot that ends at `offset`."""
        return next(entry for entry in reversed(self._entries) if entry.offset < offset)

    def note(self, batch: Batch) -> None:
        """A batch that was appended to the log."""
        if not batch.is_control:
            return
        for offset, record in enumerate(batch.records, start=batch.base_offset):
            if isinstance(record, VotersRecord):
                self._add(Entry(offset, voters_in(record), self.kraft_version))
            elif isinstance(record, KRaftVersionRecord):
                self._add(Entry(offset, self.latest, record.kraft_version))

    def _add(self, entry: Entry) -> None:
        assert entry.offset > self.latest_offset, "voters come in the order of the log"
        self._entries.append(entry)

    def truncate(self, to_offset: int) -> None:
        while self._entries[-1].offset >= to_offset:
            self._entries.pop()

    def forget_before(self, offset: int) -> None:
        """A snapshot that ends at `offset` makes older entries superfluous."""
        while len(self._entries) > 1 and self._entries[1].offset < offset:
            del self._entries[0]

    def begin_with(self, end_offset: int, snapshot: Snapshot) -> None:
        """A snapshot has replaced the log. With kraft.version 0 it names no voters."""
        voters = snapshot.voters if snapshot.kraft_version else self._entries[0].voters
        self._entries = [Entry(end_offset - 1, voters, snapshot.kraft_version)]

    def has_named(self, replica: ReplicaKey) -> bool:
        """Returns whether the replica is or was a voter, as far back as the entries go."""
        return any(find(entry.voters, replica) is not None for entry in self._entries)

    def is_voter(self, replica: ReplicaKey) -> bool:
        return find(self.latest, replica) is not None


def key_of(voter: Voter) -> ReplicaKey:
    return ReplicaKey(voter.id, voter.directory_id)


def find(voters: tuple[Voter, ...], replica: ReplicaKey) -> Voter | None:
    for voter in voters:
        if voter.id == replica.id and key_of(voter).covers(replica):
            return voter
    return None


def majority_of(voters: tuple[Voter, ...]) -> int:
    return len(voters) // 2 + 1
