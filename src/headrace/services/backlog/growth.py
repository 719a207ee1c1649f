"""The effect of more partitions on the order of keys: which keys move, and which groups are behind.
Pure.

A key lives in the partition that its hash chooses among all of them. With more partitions most keys
move: their new records go elsewhere while their old ones stay, so until a group has read what was
there, it may see a key's new records before its old ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.client.producer.partitioners import partition_of

MOST_SHOWN = 10


@dataclass(slots=True)
class Growth:
    partitions: int
    wanted: int
    keys: int  # looked at
    moving: int  # of them
    examples: list[tuple[bytes, int, int]] = field(default_factory=list)  # key, from, to


def growth(keys: Iterable[bytes], *, partitions: int, wanted: int) -> Growth:
    """As the Java client and librdkafka's murmur2 partitioners place keys."""
    found = Growth(partitions, wanted, 0, 0)
    for key in dict.fromkeys(keys):
        now, then = partition_of(key, partitions), partition_of(key, wanted)
        found.keys += 1
        if now != then:
            found.moving += 1
            if len(found.examples) < MOST_SHOWN:
                found.examples.append((key, now, then))
    return found
