"""The fate of a record whose attempt failed: decided here, performed by the dispatcher.

    order of    the next attempt                           fate
    any         there is none                              DEAD_LETTER
    any         none, and no dead letters are wanted       DROPPED
    partition   after whatever wait                        WAITS_IN_PLACE
    key         after a short wait                         WAITS_IN_PLACE
    key         later                                      MOVES_WITH_ITS_KEY
    none        after a short wait, with room in memory    WAITS_IN_MEMORY
    none        later, with a delay service                DELAYED
    none        later, without one                         MOVES
    any         its partition is another's now             COMES_ELSEWHERE
    queue       after whatever wait                        RELEASED
    queue       after TryLater, with room in memory        WAITS_IN_MEMORY

With exactly once no record moves: a record that cannot be delayed waits in memory. Pure: the caller
gives the random number and whether there is room.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from headrace.app.decoding import Undecodable
from headrace.app.observation.observer import Outcome
from headrace.app.retry import Retry, TryLater
from headrace.app.subscription import SHORT_WAIT_MS, Subscription


class Fate(Enum):
    DEAD_LETTER = auto()  # a copy goes to the dead letters
    DROPPED = auto()
    WAITS_IN_PLACE = auto()  # and its lane behind it
    MOVES_WITH_ITS_KEY = auto()  # to the retry partition, with all later records of the key
    WAITS_IN_MEMORY = auto()  # while others go on
    DELAYED = auto()  # a copy goes to the retry topic through the delay service
    MOVES = auto()  # to the retry partition, alone
    COMES_ELSEWHERE = auto()  # its new owner reads it again
    RELEASED = auto()  # back to the queue after its wait: any worker of the group gets it


OUTCOMES: dict[Fate, Outcome] = {
    Fate.DEAD_LETTER: "parked",
    Fate.DROPPED: "dropped",
    Fate.WAITS_IN_PLACE: "retried",
    Fate.MOVES_WITH_ITS_KEY: "retried",
    Fate.WAITS_IN_MEMORY: "retried",
    Fate.DELAYED: "retried",
    Fate.MOVES: "retried",
    Fate.COMES_ELSEWHERE: "retried",
    Fate.RELEASED: "retried",
}


@dataclass(slots=True)
class Verdict:
    """The judgement of one error of one record."""

    made: int  # attempts that count
    wait_ms: int | None  # None: no other attempt
    counts: bool = True  # whether this attempt counts

    @property
    def waits_long(self) -> bool:
        return self.wait_ms is not None and self.wait_ms > SHORT_WAIT_MS


def verdict_on(error: BaseException, *, made_before: int, retry: Retry, chance: float) -> Verdict:
    """Judge the error; `chance` in [0, 1] places the wait in its spread."""
    if isinstance(error, TryLater):  # not a failure of the message: it does not count
        return Verdict(made_before, error.after_ms, counts=False)
    made = made_before + 1
    if isinstance(error, Undecodable) or not retry.again(error, made):
        return Verdict(made, None)
    return Verdict(made, retry.wait_ms(made, chance))


def fate_after(
    verdict: Verdict, subscription: Subscription, *, room: bool, delayed: bool, ours: bool
) -> Fate:
    """The fate of a record. `room`: memory has room for one more. `delayed`: there is a delay
    service. `ours`: the partition is still ours.
    """
    if not ours:
        return Fate.COMES_ELSEWHERE
    if verdict.wait_ms is None:
        return Fate.DEAD_LETTER if subscription.dead_letters else Fate.DROPPED
    if subscription.queue:
        # The broker counts each delivery; a failure that is not this record's fault should not
        # count.
        return Fate.WAITS_IN_MEMORY if room and not verdict.counts else Fate.RELEASED
    if subscription.order_by == "key" and verdict.waits_long:
        return Fate.MOVES_WITH_ITS_KEY
    if subscription.order_by is not None:
        return Fate.WAITS_IN_PLACE
    return _fate_without_order(verdict, subscription, room=room, delayed=delayed)


def _fate_without_order(
    verdict: Verdict, subscription: Subscription, *, room: bool, delayed: bool
) -> Fate:
    if room and not verdict.waits_long:
        return Fate.WAITS_IN_MEMORY
    if delayed:
        return Fate.DELAYED
    return Fate.WAITS_IN_MEMORY if subscription.exactly_once else Fate.MOVES
