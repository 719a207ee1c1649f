"""`uniform`: as even as possible over all topics together, with as few moves as possible.

Members keep what they have up to their fair share; the rest goes to those that have least. If
members read different topics, a partition can only go to a reader of its topic: then partitions
with the fewest possible readers are assigned first, and partitions are moved from a member to
another reader that has at least two fewer. A member whose partitions do not change keeps the same
assignment object: members of a large group come one by one, and each new member should cost only
what it moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, groupby, islice
from operator import itemgetter

from headrace.node.coordination.group.assignors.spec import Assignment, MemberSpec

Partition = tuple[bytes, int]


def assign_uniformly(
    members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int]
) -> dict[str, Assignment]:
    if not members:
        return {}
    read = {spec.topics for spec in members.values()}
    if len(read) == 1:
        [topics] = read
        return share_alike(
            {name: spec.current for name, spec in members.items()},
            {topic: count for topic, count in partitions.items() if topic in topics},
        )
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
    """Returns the partitions that each member may keep, and the unassigned ones. No partition has
    two members."""
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
    readable = frozenset[bytes]().union(*{spec.topics for spec in members.values()})
    free = [
        (topic, index)
        for topic, count in partitions.items()
        if topic in readable
        for index in range(count)
        if (topic, index) not in owned
    ]
    return kept, free


def share_alike(
    current: Mapping[str, Assignment], partitions: Mapping[bytes, int]
) -> dict[str, Assignment]:
    """All members read all of these topics: each gets the quotient, some get one more."""
    given = dict(current)
    free = _free(given, partitions)
    if free is None:
        topics = frozenset(partitions)
        members = {name: MemberSpec(None, topics, mine) for name, mine in current.items()}
        kept, free = _kept(members, partitions)
        given = {name: _as_assignment(mine) for name, mine in kept.items()}
    sizes = {name: sum(map(len, mine.values())) for name, mine in given.items()}
    least, extra = divmod(sum(partitions.values()), len(given))
    # A member that already has more than the others gets one of the larger shares.
    for position, name in enumerate(sorted(sizes, key=sizes.__getitem__, reverse=True)):
        share = least + (position < extra)
        if sizes[name] <= least:
            break
        if sizes[name] > share:
            mine = _listed(given[name])
            free += mine[share:]
            given[name] = _as_assignment(mine[:share])
            sizes[name] = share
    extra -= sum(size > least for size in sizes.values())
    left = iter(free)
    for name, size in sizes.items():
        share = least
        if size <= least and extra > 0:
            share, extra = least + 1, extra - 1
        if size < share:
            given[name] = _as_assignment([*_listed(given[name]), *islice(left, share - size)])
    return given


def _free(
    given: Mapping[str, Assignment], partitions: Mapping[bytes, int]
) -> list[Partition] | None:
    """Returns the unassigned partitions; None if a member has a partition that does not exist, or
    that another member has too."""
    taken: dict[bytes, list[frozenset[int]]] = {topic: [] for topic in partitions}
    for mine in given.values():
        for topic, indexes in mine.items():
            if topic not in taken:
                return None
            taken[topic].append(indexes)
    free: list[Partition] = []
    for topic, parts in taken.items():
        count = partitions[topic]
        all_taken = frozenset[int]().union(*parts)
        if len(all_taken) != sum(map(len, parts)) or max(all_taken, default=-1) >= count:
            return None
        if len(all_taken) < count:
            free += [(topic, index) for index in range(count) if index not in all_taken]
    return free


def _listed(mine: Assignment) -> list[Partition]:
    return [(topic, index) for topic, indexes in mine.items() for index in sorted(indexes)]


def _share_by_topic(
    members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int]
) -> dict[str, list[Partition]]:
    given, free = _kept(members, partitions)
    sizes = {name: len(mine) for name, mine in given.items()}
    readers = readers_of(members, partitions)
    free.sort(key=lambda partition: len(readers[partition[0]]))
    for topic, of_topic in groupby(free, key=itemgetter(0)):
        heap = [(sizes[name], position, name) for position, name in enumerate(readers[topic])]
        heapify(heap)
        for partition in of_topic:
            size, position, name = heap[0]
            given[name].append(partition)
            sizes[name] = size + 1
            heapreplace(heap, (size + 1, position, name))
    _even_out(given, sizes, readers)
    return given


def readers_of(
    members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int]
) -> dict[bytes, list[str]]:
    """Returns the members that read each topic, in their order. Members that read the same topics
    are handled in one step: most members of a group do."""
    alike: dict[frozenset[bytes], list[int]] = {}
    for position, spec in enumerate(members.values()):
        alike.setdefault(spec.topics, []).append(position)
    found: dict[bytes, list[list[int]]] = {topic: [] for topic in partitions}
    for topics, positions in alike.items():
        for topic in topics:
            if topic in found:
                found[topic].append(positions)
    names = list(members)
    lists: dict[tuple[int, ...], list[str]] = {}  # topics of the same readers share a list
    readers: dict[bytes, list[str]] = {}
    for topic, parts in found.items():
        key = tuple(map(id, parts))
        if key not in lists:
            lists[key] = [names[at] for at in sorted(chain.from_iterable(parts))]
        readers[topic] = lists[key]
    return readers


def _even_out(
    given: dict[str, list[Partition]], sizes: dict[str, int], readers: Mapping[bytes, list[str]]
) -> None:
    """Move partitions from the fullest to the emptiest reader, while that makes them more even."""
    heap = [(-size, name) for name, size in sizes.items()]
    heapify(heap)
    emptiest: dict[bytes, str] = {}  # of a topic's readers, since the last move
    while heap:
        size, fullest = heappop(heap)
        if -size != sizes[fullest]:
            continue  # an outdated entry
        for partition in given[fullest]:
            topic = partition[0]
            if topic not in emptiest:
                emptiest[topic] = min(readers[topic], key=sizes.__getitem__)
            name = emptiest[topic]
            if sizes[name] + 1 < sizes[fullest]:
                given[fullest].remove(partition)
                given[name].append(partition)
                sizes[fullest] -= 1
                sizes[name] += 1
                emptiest.clear()
                heappush(heap, (-sizes[fullest], fullest))
                heappush(heap, (-sizes[name], name))
                break
