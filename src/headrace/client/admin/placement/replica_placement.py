"""Chooses brokers for more replicas of partitions that have few. Pure.

The existing replicas of a partition stay. So does its preferred leader, unless that broker is the
preferred leader of more partitions than a new one: then the new one comes first, so that the broker
which had all partitions alone does not lead them all for ever. A new replica goes to a rack that
has none of the partition yet, if there is one, and there to the broker with the fewest replicas;
among equals to the next one in a circle, so that followers of one leader spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headrace.client.admin.placement.replicas import PartitionReplicas
from headrace.client.errors import ClientError
from headrace.client.records import TopicPartition


def more_replicas(
    partitions: Sequence[PartitionReplicas], racks: Mapping[int, str | None], count: int
) -> dict[TopicPartition, list[int]]:
    """The new replicas of the partitions that have fewer than `count`. `racks` by broker."""
    if count > len(racks):
        brokers = "1 broker is" if len(racks) == 1 else f"{len(racks)} brokers are"
        raise ClientError(f"Only {brokers} alive: {count} replicas have no room.")
    held = Counter({broker: 0 for broker in racks})
    for each in partitions:
        held.update(broker for broker in each.replicas if broker in racks)
    preferred = Counter(each.replicas[0] for each in partitions)
    moves: dict[TopicPartition, list[int]] = {}
    for each in partitions:
        if len(each.replicas) >= count:
            continue
        chosen = list(each.replicas)
        while len(chosen) < count:
            broker = _next(chosen, racks, held)
            held[broker] += 1
            chosen.append(broker)
        moves[each.place] = _led_evenly(chosen, len(each.replicas), preferred)
    return moves


def _led_evenly(chosen: list[int], had: int, preferred: Counter[int]) -> list[int]:
    """Put one of the new replicas first if it is the preferred leader of at least two partitions
    fewer."""
    first = chosen[0]
    new = min(chosen[had:], key=lambda broker: preferred[broker])
    if preferred[first] - preferred[new] < 2:
        return chosen
    preferred[first] -= 1
    preferred[new] += 1
    return [new, *(broker for broker in chosen if broker != new)]


def _next(chosen: list[int], racks: Mapping[int, str | None], held: Counter[int]) -> int:
    used = {racks.get(broker) for broker in chosen} - {None}
    around = max(racks) + 1

    def cost(broker: int) -> tuple[bool, int, int]:
        return racks[broker] in used, held[broker], (broker - chosen[-1]) % around

    return min((broker for broker in sorted(racks) if broker not in chosen), key=cost)
