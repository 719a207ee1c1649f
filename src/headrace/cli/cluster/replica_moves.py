"""Moves of replicas, carried out some at a time, with a bar while they last.

Where nothing has ended for some seconds, a note says for what the moves wait.

The cluster goes on with what has begun if the command is stopped; the same command finds what is
under way, waits for it, and begins the rest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping

from headrace.cli import output
from headrace.client.admin.placement.reassignments import Reassignments
from headrace.client.admin.placement.replicas import PartitionReplicas, Replicas
from headrace.client.connection import ClientSettings
from headrace.client.records import TopicPartition

# So many partitions are filled at a time: the disks and the network have other work too.
MOVES_AT_ONCE = 50
LOOK_AGAIN_S = 0.5
SAY_WHY_AFTER_S = 10.0
MOST_NAMED = 3
BAR = 30


def carry_out(cluster: ClientSettings, moves: dict[TopicPartition, list[int]]) -> int:
    """Hand moves to the cluster and wait until the new replicas are in sync; how many."""
    reassignments = Reassignments(cluster)
    waiting = dict(moves)
    # Of a run that was stopped: they are under way, and only waited for.
    mine = {each.place for each in reassignments.all() if each.place in waiting}
    for place in mine:
        del waiting[place]
    patience = Patience(time.monotonic())
    try:
        while waiting or mine:
            room = MOVES_AT_ONCE - len(mine)
            if waiting and room > 0:
                some = {place: waiting.pop(place) for place in list(waiting)[:room]}
                reassignments.move(some)
                mine |= some.keys()
            _tell(len(moves) - len(waiting) - len(mine), len(moves))
            time.sleep(LOOK_AGAIN_S)
            under_way = {each.place: each.adding for each in reassignments.all()}
            mine &= under_way.keys()
            if patience.is_over(len(waiting) + len(mine), time.monotonic()):
                _wipe()
                _say_why(cluster, {place: under_way[place] for place in mine})
    except KeyboardInterrupt:
        _wipe()
        output.note("Moves that have begun continue; the same command does the rest.")
        raise
    _wipe()
    return len(moves)


class Patience:
    """How long nothing has ended. Pure: it is given the time."""

    def __init__(self, now_s: float) -> None:
        self._left: int | None = None
        self._since_s = now_s

    def is_over(self, left: int, now_s: float) -> bool:
        """True once for each SAY_WHY_AFTER_S in which `left` has stayed the same."""
        if left != self._left:
            self._left, self._since_s = left, now_s
            return False
        if not left or now_s - self._since_s < SAY_WHY_AFTER_S:
            return False
        self._since_s = now_s
        return True


def _say_why(cluster: ClientSettings, adding: Mapping[TopicPartition, list[int]]) -> None:
    partitions = Replicas(cluster).of({place.topic for place in adding})
    for sentence in reasons_to_wait(partitions, adding):
        output.note(sentence)


def reasons_to_wait(
    partitions: Iterable[PartitionReplicas], adding: Mapping[TopicPartition, list[int]]
) -> list[str]:
    """For what moves wait, with some partitions for each reason. Pure. `adding`: the replicas that
    each move adds."""
    places: dict[str, list[TopicPartition]] = {}
    for each in partitions:
        if each.place not in adding:
            continue
        behind = [broker for broker in adding[each.place] if broker not in each.isr]
        if each.leader is None:
            replicas = ", ".join(map(str, each.replicas))
            why = f"they have no leader: start one of the brokers {replicas}"
        elif behind:
            brokers = ", ".join(map(str, behind))
            why = f"the new replicas of broker {brokers} are not in sync yet"
        else:
            why = "the controller has not ended them yet"
        places.setdefault(why, []).append(each.place)
    return [
        f"{output.count(len(those), 'partition')} wait{'s' if len(those) == 1 else ''} "
        f"({', '.join(map(str, those[:MOST_NAMED]))}{', ...' if len(those) > MOST_NAMED else ''}): "
        f"{why}."
        for why, those in sorted(places.items())
    ]


def _tell(done: int, whole: int) -> None:
    if sys.stderr.isatty():
        filled = BAR * done // whole
        bar = "█" * filled + "░" * (BAR - filled)
        output.passing(f"{bar} {done:,} of {whole:,} partitions have their replicas")


def _wipe() -> None:
    if sys.stderr.isatty():
        output.passing("")
