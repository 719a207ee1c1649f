"""Partitioners: functions that choose the partition of a record.

Strongest first: the partition given in `send`, then the producer's partitioner. Its default is
librdkafka's `murmur2_random`: keys are hashed as in the Java client, so that a key has the same
partition in all languages; records without a key stay with one partition for a batch. Any name of a
partitioner of librdkafka may be given; the ones here run in Python, after the serializers, and get
the key as bytes. Your own partitioner is a function of topic, key and number of partitions.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable

from confluent_kafka import murmur2 as murmur2_of

# (topic, serialized key, number of partitions) -> partition
Partitioner = Callable[[str, bytes | None, int], int]


class RoundRobin:
    """Sends each record to the next partition, whatever its key: evenly, no order by key."""

    def __init__(self) -> None:
        self._next: defaultdict[str, int] = defaultdict(int)

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int:
        turn = self._next[topic]
        self._next[topic] = turn + 1
        return turn % partitions


class Sticky:
    """Hashes keys by murmur2; records without a key stay with a partition for `records`, then move
    on.

    This makes fewer, larger batches than a random choice, as the Java client's since KIP-480.
    Larger `records` than librdkafka's own stickiness (10 ms) help compression at high rates.
    """

    def __init__(self, records: int = 500, *, seed: int | None = None) -> None:
        self._records = records
        self._chance = random.Random(seed)
        self._chosen: dict[str, tuple[int, int]] = {}  # topic -> partition, records left

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return murmur2_of(key, partitions)
        partition, left = self._chosen.get(topic, (0, 0))
        if left == 0 or partition >= partitions:
            partition, left = self._another(topic, partitions), self._records
        self._chosen[topic] = (partition, left - 1)
        return partition

    def _another(self, topic: str, partitions: int) -> int:
        last = self._chosen.get(topic)
        if last is None or partitions == 1:
            return self._chance.randrange(partitions)
        return (last[0] + 1 + self._chance.randrange(partitions - 1)) % partitions


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key in the Java client and in librdkafka's murmur2 partitioners."""
    return murmur2_of(key, partitions)


def murmur2(topic: str, key: bytes | None, partitions: int) -> int:
    """Hashes keys as the Java client does; all records without a key go to one partition."""
    return murmur2_of(key or b"", partitions)


def resolved(given: str | Partitioner) -> tuple[str, Partitioner | None]:
    """The setting for librdkafka, and the function that runs before it, if any."""
    if not isinstance(given, str):
        return "murmur2_random", given
    if given == "round_robin":
        return "murmur2_random", RoundRobin()
    if given == "sticky":
        return "murmur2_random", Sticky()
    return given, None  # librdkafka refuses a name that it does not know
