"""What a member of the quorum has noted on its disk, and whether the disk takes writes.

Two things: the epoch with its vote and leader (`quorum-state`), and whether this member is a voter
that was removed (`removed-voter`).

With a full disk a member still follows, resigns and waits: if it has not voted in that epoch, a
restart loses only the number of the epoch, which other members know. Two leaders in one epoch need
a voter that votes twice, and a vote that cannot be written is not given.
"""

from __future__ import annotations

from headrace.node.consensus.quorum.messages import ReplicaKey
from headrace.node.consensus.quorum.quorum_log import Election, StateFile
from headrace.node.storage.durability.open_files import is_full


class NotedElection:
    __slots__ = ("has_no_room", "was_removed", "_state_file", "_noted")

    def __init__(self, state_file: StateFile) -> None:
        # True if the disk has refused a write since the last successful one. A member that cannot
        # write does not become a candidate.
        self.has_no_room = False
        # True if this member was a voter and an operator removed it: it never asks by itself to
        # become one again.
        self.was_removed = state_file.read_removal()
        self._state_file = state_file
        self._noted: Election | None = None  # as the file has it

    def read(self) -> Election | None:
        """Returns None without a file: this member is new, or its file is lost."""
        self._noted = self._state_file.read()
        return self._noted

    def note(self, election: Election, *, promises: bool) -> None:
        """`promises`: others will rely on it, as on a vote. OSError: nothing has changed."""
        if election == self._noted:
            return
        if (before := self._noted) is not None:
            assert election.epoch >= before.epoch, "an epoch never goes back"
            votes = before.voted, election.voted
            assert election.epoch > before.epoch or _are_one(*votes), "one vote in an epoch"
        try:
            self._state_file.write(election)
        except OSError as problem:
            self.has_no_room = True
            if promises or not is_full(problem):
                raise
        else:
            self._noted = election

    def note_removal(self, *, removed: bool) -> None:
        """With a full disk it is known until the next start, which finds it in the log again."""
        self.was_removed = removed
        try:
            self._state_file.write_removal(removed=removed)
        except OSError as problem:
            if not is_full(problem):
                raise

    def find_room(self, election: Election) -> bool:
        """Returns whether the disk takes writes again; tries it by writing the present state."""
        try:
            self._state_file.write(election)
        except OSError as problem:
            if not is_full(problem):
                raise
            return False
        self._noted = election
        self.has_no_room = False
        return True


def _are_one(first: ReplicaKey | None, second: ReplicaKey | None) -> bool:
    """None: no vote, or it is not needed any more, as the epoch has a leader."""
    return first is None or second is None or first.covers(second)
