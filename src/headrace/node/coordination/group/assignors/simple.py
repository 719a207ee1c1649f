"""The assignor of share groups: every member gets partitions, and members may share them (KIP-932).

With more members than partitions, several members get the same partition; with fewer, each gets
several. Members keep what they had as far as the shares stay even. If the members do not all read
the same topics, each topic is assigned by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest

from headrace.node.coordination.group.assignors.spec import Assignment

PartitionId = tuple[bytes, int]  # topic id and index


def assign_shares(
    read: Mapping[str, Collection[bytes]],
    before: Mapping[str, Assignment],
    partitions: Mapping[bytes, Collection[int]],
) -> dict[str, Assignment]:
    """`read` are the topics of each member, `partitions` those that can be assigned."""
    found: dict[str, set[PartitionId]] = {member: set() for member in read}
    everything = frozenset[bytes]().union(*read.values())
    if all(everything == frozenset(topics) for topics in read.values()):
        runs: Iterable[Collection[bytes]] = [everything]
    else:
        runs = [[topic] for topic in sorted(everything)]
    for topics in runs:
        of_topics = [
            (topic, index)
            for topic in sorted(topics)
            for index in sorted(partitions.get(topic, ()))
        ]
        readers = sorted(member for member in read if frozenset(topics) <= frozenset(read[member]))
        for member, given in _share_out(readers, of_topics, before).items():
            found[member] |= given
    return {member: _by_topic(given) for member, given in found.items()}


def _share_out(
    members: Sequence[str], partitions: Sequence[PartitionId], before: Mapping[str, Assignment]
) -> dict[str, set[PartitionId]]:
    if not members or not partitions:
        return {}
    holders_each = -(-len(members) // len(partitions))
    slots = holders_each * len(partitions)
    quotas = {
        member: -(-slots * (number + 1) // len(members)) + (-slots * number // len(members))
        for number, member in enumerate(members)
    }
    given: dict[str, set[PartitionId]] = {member: set() for member in members}
    holders = dict.fromkeys(partitions, 0)
    for member in members:
        for topic, indexes in before.get(member, {}).items():
            for index in sorted(indexes):
                partition = topic, index
                if holders.get(partition, holders_each) < holders_each and quotas[member]:
                    _give(partition, member, given, holders, quotas)
    # First one member for each partition, so that none is without one, whatever the members keep.
    for wanted in (1, holders_each):
        for partition in partitions:
            _fill(partition, wanted, given, holders, quotas)
    return given


def _fill(
    partition: PartitionId,
    wanted: int,
    given: dict[str, set[PartitionId]],
    holders: dict[PartitionId, int],
    quotas: dict[str, int],
) -> None:
    if holders[partition] >= wanted:
        return
    free = (member for member, left in quotas.items() if left and partition not in given[member])
    poorest = nsmallest(
        wanted - holders[partition], free, key=lambda member: (len(given[member]), -quotas[member])
    )
    for member in poorest:
        _give(partition, member, given, holders, quotas)


def _give(
    partition: PartitionId,
    member: str,
    given: dict[str, set[PartitionId]],
    holders: dict[PartitionId, int],
    quotas: dict[str, int],
) -> None:
    given[member].add(partition)
    holders[partition] += 1
    quotas[member] -= 1


def _by_topic(partitions: Iterable[PartitionId]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}
