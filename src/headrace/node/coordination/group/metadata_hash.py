"""The hash by which a consumer group sees that its topics have changed, as in Apache Kafka 4.3.

It is recorded with the group's epoch, and while it stays the same there is no new assignment. As
both brokers compute the same hash, a data folder can move between them without a rebalance. A
topic's hash is the XXH3 (64 bits) of a zero byte, its id in two halves, its name, its number of
partitions, and for each the index and the racks of its replicas; a group's hash is that of its
topics' hashes in the order of their names. All in little-endian: a text is its UTF-16, then its
length; a rack also has its length before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct, pack

from xxhash import xxh3_64_intdigest

from headrace.node.metadata.image import MetadataImage, TopicImage

NOTHING = 0  # the hash of a group that reads no existing topic

_int = Struct("<i").pack


def metadata_hash(names: Iterable[str], image: MetadataImage) -> int:
    """The hash changes if a topic is created, deleted, created again with the same name, grows, or
    has its replicas in other racks."""
    topics = image.topics
    read = [topics[name] for name in sorted(names) if name in topics]
    if not read:
        return NOTHING
    racks = {one.id: one.rack for one in image.brokers.values() if one.rack is not None}
    numbers = pack(f"<{len(read)}Q", *(_topic_hash(topic, racks) for topic in read))
    found = xxh3_64_intdigest(numbers)
    return found - (1 << 64) if found >> 63 else found  # as stored in a record


def _topic_hash(topic: TopicImage, racks: Mapping[int, str]) -> int:
    count = len(topic.partitions)
    parts = [b"\0", topic.id[7::-1], topic.id[:7:-1], _text(topic.name), _int(count)]
    if not racks:
        parts.append(_indexes(count))
    else:
        known: dict[tuple[int, ...], bytes] = {}  # most partitions have the same racks as others
        for index, (replicas, *_) in enumerate(topic.partitions):
            if replicas not in known:
                known[replicas] = _racks_of(replicas, racks)
            parts += _int(index), known[replicas]
    return xxh3_64_intdigest(b"".join(parts))


def _racks_of(replicas: Iterable[int], racks: Mapping[int, str]) -> bytes:
    found = [racks[one] for one in replicas if one in racks]
    found.sort(key=lambda rack: rack.encode("utf-16-be"))  # Java compares UTF-16
    return b"".join(text[-4:] + text for text in map(_text, found))


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le")
    return units + _int(len(units) // 2)


@lru_cache(maxsize=64)
def _indexes(count: int) -> bytes:
    return pack(f"<{count}i", *range(count))
