"""`range`: each topic's partitions in order, cut into as many pieces as it has readers.

Partition n of two topics with as many partitions goes to the same member, so that it can join them.
Members are in the order of their instance ids, then of their own: the same each time.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.node.coordination.group.assignors.spec import Assignment, MemberSpec


def assign_ranges(
    members: Mapping[str, MemberSpec], partitions: Mapping[bytes, int]
) -> dict[str, Assignment]:
    ordered = sorted(members, key=lambda name: _order(name, members[name]))
    given: dict[str, dict[bytes, frozenset[int]]] = {name: {} for name in members}
    for topic, count in partitions.items():
        readers = [name for name in ordered if topic in members[name].topics]
        start = 0
        for position, name in enumerate(readers):
            share = count // len(readers) + (position < count % len(readers))
            if share:
                given[name][topic] = frozenset(range(start, start + share))
            start += share
    return dict(given)


def _order(name: str, member: MemberSpec) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or name
