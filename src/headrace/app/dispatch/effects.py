"""The effects that a dispatcher asks for: copies to be written, and the consequences of a failure.

Plain data. The runner performs the effects and reports the results back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.app.dispatch.record_in_hand import RecordInHand
from headrace.app.observation.observer import Outcome
from headrace.app.retries.failure_fate import OUTCOMES, Fate, Verdict
from headrace.client.records import Outgoing


@dataclass(slots=True)
class HeldLane:
    """A lane that continues when so many writes are confirmed."""

    lane: Hashable
    writes: int


@dataclass(slots=True, eq=False)
class Write:
    """A copy of a record. The record counts as under way until the copy is written."""

    record: RecordInHand
    fate: Fate  # DEAD_LETTER or DELAYED
    error: BaseException
    made: int
    failed_ms: int
    due_ms: int = 0  # of DELAYED
    held: HeldLane | None = None
    outgoing: Outgoing[Any, Any] | None = None  # made once, by the runner


@dataclass(slots=True)
class Move:
    """A record whose offset is committed when its replacements are written, in one transaction with
    them.

    The replacement is a copy of itself for the retry partition, or the results of its handler.
    """

    record: RecordInHand
    made: int = 0
    due_ms: int = 0
    results: list[Outgoing[Any, Any]] | None = None  # None: the copy
    of: Transacted | None = None
    given_up: bool = False  # the results are its dead letter instead


@dataclass(slots=True)
class Transacted:
    """Results in a transaction, for which a slot waits (exactly once); the runner calls `then` at
    the end."""

    left: int
    then: Callable[[], None]


@dataclass(slots=True)
class Failure:
    """The consequences of a failed attempt."""

    fate: Fate
    verdict: Verdict
    goes_on: bool  # whether the rest of the run is handled now
    writes: Sequence[Write] = ()
    ready: int = 0  # runs that may begin by it

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES[self.fate]

    @property
    def moves(self) -> bool:
        """Whether the failure needs a transaction."""
        return self.fate is Fate.MOVES or self.fate is Fate.MOVES_WITH_ITS_KEY


def ended_by(moves: Iterable[Move]) -> list[Transacted]:
    """The transactions that have ended with these moves, for slots that wait for them."""
    ended = []
    for move in moves:
        if move.of is not None:
            move.of.left -= 1
            if not move.of.left:
                ended.append(move.of)
    return ended
