"""`uniform`: as even as can be over all topics together, and as little moved as can be.

Members keep what they have up to their fair share; the rest goes to those that have least. Where
members read different topics, a partition can only go to a reader of its topic: then those with
the fewest possible readers are given out first, and partitions are moved on from members with
two more than another reader of theirs has.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from headrace.coordination.group.assignors.spec import Assignment, MemberSpec

Partition = tuple[bytes, int]


def assign_uniformly(
    members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int]
) -> dict[str, Assignment]:
    if not members:
        return {}
    wanted = [spec.topics for spec in members.values()]
    if all(topics == wanted[0] for topics in wanted):
        given = _share_alike(members, partitions)
    else:
        given = _share_by_topic(members, partitions)
    return {name: _as_assignment(mine) for name, mine in given.items()}


def _as_assignment(mine: list[Partition]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic, index in mine:
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}


def _kept(
    members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int]
) -> tuple[dict[str, list[Partition]], list[Partition]]:
    """What each may keep, and what nobody has. A partition is nobody's twice."""
    kept: dict[str, list[Partition]] = {}
    owned: set[Partition] = set()
    for name, spec in members.items():
        mine = [
            (topic, index)
            for topic, indexes in spec.current.items()
            if topic in spec.topics
            for index in sorted(indexes)
            if index < partitions.get(topic, 0) and (topic, index) not in owned
        ]
        owned.update(mine)
        kept[name] = mine
    readable = {topic for spec in members.values() for topic in spec.topics}
    free = [
        (topic, index)
        for topic, count in partitions.items()
        if topic in readable
        for index in range(count)
        if (topic, index) not in owned
    ]
    return kept, free


def _share_alike(
    members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int]
) -> dict[str, list[Partition]]:
    """All read the same: everybody gets the quotient, some one more."""
    given, free = _kept(members, partitions)
    total = sum(map(len, given.values())) + len(free)
    least, extra = divmod(total, len(members))
    # Who has more than the others already is let have one of the larger shares.
    for name in sorted(given, key=lambda name: -len(given[name])):
        share = least + (extra > 0)
        extra -= extra > 0
        free += given[name][share:]
        del given[name][share:]
    extra = total - least * len(members) - sum(len(mine) > least for mine in given.values())
    for mine in given.values():
        share = least
        if len(mine) <= least and extra > 0:
            share, extra = least + 1, extra - 1
        while len(mine) < share and free:
            mine.append(free.pop(0))
    return given


def _share_by_topic(
    members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int]
) -> dict[str, list[Partition]]:
    given, free = _kept(members, partitions)
    readers = {
        topic: [name for name, spec in members.items() if topic in spec.topics]
        for topic in partitions
    }
    free.sort(key=lambda partition: len(readers[partition[0]]))
    for partition in free:
        name = min(readers[partition[0]], key=lambda name: len(given[name]))
        given[name].append(partition)
    _even_out(given, readers)
    return given


def _even_out(given: dict[str, list[Partition]], readers: Mapping[bytes, list[str]]) -> None:
    """Move from the fullest to the emptiest reader, while that makes them more alike."""
    heap = [(-len(mine), name) for name, mine in given.items()]
    heapify(heap)
    while heap:
        size, fullest = heappop(heap)
        if -size != len(given[fullest]):
            continue  # an older entry
        for partition in given[fullest]:
            name = min(readers[partition[0]], key=lambda name: len(given[name]))
            if len(given[name]) + 1 < len(given[fullest]):
                given[fullest].remove(partition)
                given[name].append(partition)
                heappush(heap, (-len(given[fullest]), fullest))
                heappush(heap, (-len(given[name]), name))
                break
