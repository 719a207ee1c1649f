"""Moves of replicas, carried out some at a time, with a bar while they last.

The cluster goes on with what has begun if the command is stopped; the same command finds what is
under way, waits for it, and begins the rest.
"""

from __future__ import annotations

import sys
import time

from headrace.cli import output
from headrace.client.admin.placement.reassignments import Reassignments
from headrace.client.connection import ClientSettings
from headrace.client.records import TopicPartition

# So many partitions are filled at a time: the disks and the network have other work too.
MOVES_AT_ONCE = 50
LOOK_AGAIN_S = 0.5
BAR = 30


def carry_out(cluster: ClientSettings, moves: dict[TopicPartition, list[int]]) -> int:
    """Hand moves to the cluster and wait until the new replicas are in sync; how many."""
    reassignments = Reassignments(cluster)
    waiting = dict(moves)
    # Of a run that was stopped: they are under way, and only waited for.
    mine = {each.place for each in reassignments.all() if each.place in waiting}
    for place in mine:
        del waiting[place]
    try:
        while waiting or mine:
            room = MOVES_AT_ONCE - len(mine)
            if waiting and room > 0:
                some = {place: waiting.pop(place) for place in list(waiting)[:room]}
                reassignments.move(some)
                mine |= some.keys()
            _tell(len(moves) - len(waiting) - len(mine), len(moves))
            time.sleep(LOOK_AGAIN_S)
            mine &= {each.place for each in reassignments.all()}
    except KeyboardInterrupt:
        _wipe()
        output.note("Moves that have begun continue; the same command does the rest.")
        raise
    _wipe()
    return len(moves)


def _tell(done: int, whole: int) -> None:
    if sys.stderr.isatty():
        filled = BAR * done // whole
        bar = "█" * filled + "░" * (BAR - filled)
        output.passing(f"{bar} {done:,} of {whole:,} partitions have their replicas")


def _wipe() -> None:
    if sys.stderr.isatty():
        output.passing("")
