"""Moves leaders away from a broker that keeps its replicas, and back. Pure.

Only the order of the replicas changes, so no data is copied: the first in sync is the leader that
is preferred, and stays it over elections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from headrace.client.admin.placement.replicas import PartitionReplicas
from headrace.client.records import TopicPartition


def leaders_away(
    broker: int, partitions: Sequence[PartitionReplicas], alive: Collection[int]
) -> dict[TopicPartition, list[int]]:
    """New orders in which the broker comes last, and the one that is preferred the least often
    comes first. Partitions without another replica in sync are left out."""
    preferred = Counter(each.replicas[0] for each in partitions)
    moves: dict[TopicPartition, list[int]] = {}
    for each in partitions:
        others = [b for b in each.replicas if b != broker and b in alive and b in each.isr]
        if broker not in (each.replicas[0], each.leader) or not others:
            continue
        first = each.replicas[0]
        if first not in others:
            first = min(others, key=lambda other: (preferred[other], each.replicas.index(other)))
            preferred[first] += 1
        rest = [b for b in each.replicas if b not in (first, broker)]
        moves[each.place] = [first, *rest, broker]
    return moves


def leaders_back(
    broker: int, partitions: Sequence[PartitionReplicas], alive: Collection[int]
) -> dict[TopicPartition, list[int]]:
    """New orders that give the broker its share of the leaders, from those that have most."""
    preferred = Counter(each.replicas[0] for each in partitions)
    share = len(partitions) // max(1, len(alive))
    held = [each for each in partitions if broker in each.replicas[1:] and broker in each.isr]
    moves: dict[TopicPartition, list[int]] = {}
    while preferred[broker] < share and held:
        each = max(held, key=lambda each: (preferred[each.replicas[0]], each.place))
        held.remove(each)
        if preferred[each.replicas[0]] <= preferred[broker] + 1:
            break  # the others have no more than this one
        preferred[each.replicas[0]] -= 1
        preferred[broker] += 1
        moves[each.place] = [broker, *(b for b in each.replicas if b != broker)]
    return moves


def led_alone(broker: int, partitions: Sequence[PartitionReplicas]) -> list[TopicPartition]:
    """Partitions that this broker leads and no other one can."""
    return [each.place for each in partitions if each.leader == broker and each.isr == [broker]]
