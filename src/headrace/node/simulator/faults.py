"""Faults, drawn from the seed: what kind of trouble a run has, and the next blow.

Each seed has a character of its own, so that meetings of faults that are rare on the whole are
common in some runs: equal election timeouts, nodes that die right after they voted, slow disks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum, auto


class Moment(Enum):
    """Moments at which a sudden death hurts most."""

    STOOD = auto()
    VOTED = auto()
    ELECTED = auto()
    FLUSHED = auto()
    COMMITTED = auto()
    TRUNCATED = auto()


class Blow(Enum):
    """The possible next events of a run."""

    APPEND = auto()
    CRASH = auto()
    POWER_CUT = auto()  # all nodes crash at once
    PAUSE = auto()
    CUT_PAIR = auto()
    CUT_NODE = auto()
    CUT_ONE_WAY = auto()
    CUT_LEADER = auto()
    HEAL = auto()
    SNAPSHOT = auto()
    CHANGE_VOTERS = auto()
    LOSE_DISK = auto()
    RESIGN = auto()


@dataclass(slots=True)
class Character:
    voters: int = 3
    observers: int = 0
    loss: float = 0.0
    duplication: float = 0.0
    delays_ms: tuple[int, ...] = (1, 2)
    flush_ms: tuple[int, ...] = (1,)
    slow_flush_ms: tuple[int, ...] = (1,)  # of nodes with odd ids, whose disks are worse
    down_ms: int = 400  # how long a crashed node stays away, at most
    ties: float = 0.0  # the probability that chance gives no difference
    batches_per_read: int = 1_000
    moves: float = 0.0  # the probability that a node starts at another address
    deaths: dict[Moment, float] | None = None
    election_ms: int = 1_000
    only_repairs: bool = False  # voters are removed when their disks are lost, and added again
    changes_at_once: int = 1  # of the voters, at one leader, whatever it answers
    retries_per_election: int = 50  # as with Kafka's defaults; fewer make fewer events
    pace_ms: tuple[int, ...] = (5, 50, 300, 1_500)  # between blows
    blows: tuple[Blow, ...] = tuple(Blow)


def character(chance: random.Random) -> Character:
    drawn = chance.choice((_harsh, _contested, _administered, _worn))(chance)
    drawn.retries_per_election = 4
    return drawn


def _harsh(chance: random.Random) -> Character:
    often = (0.0, 0.0, 0.05, 0.3)
    very_often = (0.0, 0.1, 0.5)
    return Character(
        voters=chance.choice((3, 3, 4, 5)),
        observers=chance.choice((0, 0, 1, 2)),
        loss=chance.choice((0.0, 0.0, 0.05, 0.3)),
        duplication=chance.choice((0.0, 0.1, 0.3)),
        delays_ms=chance.choice(((1, 2), (1, 1, 2, 5, 40, 300), (1, 10, 100), (1, 1, 900))),
        flush_ms=chance.choice(((1,), (1, 3, 10, 200), (50, 2_000))),
        slow_flush_ms=chance.choice(((1,), (100,), (500,), (3_000,))),
        down_ms=chance.choice((5, 50, 400, 5_000)),
        ties=chance.choice((0.0, 0.5, 1.0)),
        batches_per_read=chance.choice((1, 1_000)),
        deaths={
            moment: chance.choice(very_often if moment in (Moment.VOTED, Moment.ELECTED) else often)
            for moment in Moment
        },
        election_ms=chance.choice((100, 1_000)),
        pace_ms=chance.choice(((5, 50, 300, 1_500), (1_000, 2_000), (20, 200))),
        blows=_blows(chance),
    )


def _blows(chance: random.Random) -> tuple[Blow, ...]:
    """Appends and ends of cuts always; of the others each may be absent, usual or frequent."""
    blows = [Blow.APPEND] * 5 + [Blow.HEAL] * 2
    for blow in Blow:
        blows += [blow] * chance.choice((0, 1, 1, 2))
    return tuple(blows)


def _contested(chance: random.Random) -> Character:
    """One election after the other: all begin at the same moment with equal timeouts, some do not
    receive each other's messages, and some die during it and restart before the votes are
    counted."""
    return Character(
        voters=chance.choice((3, 3, 3, 5)),
        # Some as long as elections, so that candidates meet.
        delays_ms=chance.choice(((20, 30), (1, 50), (1, 50), (1, 1, 1, 60))),
        slow_flush_ms=chance.choice(((1,), (60,))),
        down_ms=chance.choice((5, 20, 200)),
        ties=chance.choice((0.7, 0.95)),
        batches_per_read=1,
        deaths={
            Moment.STOOD: 0.05,
            Moment.VOTED: chance.choice((0.2, 0.5)),
            Moment.ELECTED: chance.choice((0.1, 0.5)),
            Moment.FLUSHED: chance.choice((0.3, 0.6)),
            Moment.COMMITTED: chance.choice((0.2, 0.5)),
        },
        election_ms=100,
        pace_ms=(100, 1_000, 2_500),
        blows=(
            *[Blow.APPEND] * 3,
            *[Blow.CUT_PAIR] * 3,
            *[Blow.HEAL] * 2,
            Blow.CRASH,
            Blow.POWER_CUT,
            Blow.CUT_LEADER,
        ),
    )


def _administered(chance: random.Random) -> Character:
    """Fewer faults and a busy administrator: snapshots, voters, new disks, other addresses."""
    return Character(
        voters=3,
        observers=chance.choice((1, 2)),
        duplication=chance.choice((0.0, 0.1)),
        delays_ms=chance.choice(((1, 2), (1, 10, 100))),
        slow_flush_ms=chance.choice(((1,), (100,))),
        down_ms=chance.choice((50, 3_000)),
        batches_per_read=chance.choice((1, 1_000)),
        moves=chance.choice((0.0, 0.5)),
        election_ms=chance.choice((100, 1_000)),
        pace_ms=(100, 500, 3_000),
        changes_at_once=chance.choice((1, 3)),
        blows=(
            *[Blow.APPEND] * 4,
            *[Blow.HEAL] * 3,
            *[Blow.CHANGE_VOTERS] * 6,
            *[Blow.SNAPSHOT] * 2,
            *[Blow.CUT_LEADER] * 2,
            Blow.LOSE_DISK,
            Blow.CRASH,
            Blow.POWER_CUT,
            Blow.RESIGN,
        ),
    )


def _worn(chance: random.Random) -> Character:
    """Disks are lost while one voter does not receive the leader's messages and lags behind."""
    return Character(
        delays_ms=chance.choice(((1, 2), (1, 10))),
        down_ms=chance.choice((20, 200)),
        only_repairs=True,
        election_ms=100,
        pace_ms=(1_000, 3_000),
        blows=(
            *[Blow.APPEND] * 4,
            *[Blow.CUT_PAIR] * 4,
            *[Blow.LOSE_DISK] * 4,
            *[Blow.HEAL] * 2,
            *[Blow.CHANGE_VOTERS] * 5,
        ),
    )
