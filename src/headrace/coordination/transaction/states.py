"""The states of a transactional id, as a table: what may follow what.

    Empty ------> Ongoing ------> PrepareCommit ------> CompleteCommit
      ^             ^   |                                 |   |
      |             |   +-------> PrepareAbort -------> CompleteAbort
      +-- a new producer ---- from both Complete states ---+   |
                    +-------- the next transaction ------------+

Once it is prepared a transaction is decided: markers follow until all partitions have theirs,
whatever happens to the client or the broker. With KIP-890 a client may also abort when nothing was
written, which raises its epoch. Dead is never in the log: the id is forgotten by a tombstone.
Numbers and names are Kafka's, from the log and from DescribeTransactions.
"""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7  # never kept: the epoch is raised together with PrepareAbort

    @property
    def title(self) -> str:
        return TITLES[self]


TITLES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
    State.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
BY_TITLE = {title: state for state, title in TITLES.items()}

NEXT_STATES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset(
        {State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD},
    ),
    State.COMPLETE_ABORT: frozenset(
        {State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD},
    ),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset(),
}

# Decided, but not every partition has its marker yet.
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
# Nothing is open: the id may be taken by a new producer, or forgotten after a time.
AT_REST = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
