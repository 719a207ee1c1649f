"""The two hash functions that Kafka's users can see: murmur2 for keys, hashCode for group ids.

`partition_for_key` is what the Java producer does with a key; `string_hash` is Java's
`String.hashCode`, by which a group id finds its partition of `__consumer_offsets`.
"""

from __future__ import annotations

from struct import unpack_from

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """32-bit murmur2 with the seed of Kafka's Java client, as an unsigned number."""
    length = len(data)
    whole = length // 4
    h = _SEED ^ length
    for k in unpack_from(f"<{whole}I", data):
        k = (k * _MULTIPLIER) & _MASK
        k ^= k >> 24
        k = (k * _MULTIPLIER) & _MASK
        h = ((h * _MULTIPLIER) & _MASK) ^ k
    if rest := data[whole * 4 :]:
        h ^= int.from_bytes(rest, "little")
        h = (h * _MULTIPLIER) & _MASK
    h ^= h >> 13
    h = (h * _MULTIPLIER) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition that the Java producer's default partitioner picks for `key`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def string_hash(text: str) -> int:
    """Java's `String.hashCode`, a signed 32-bit number over UTF-16 units."""
    h = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for unit in unpack_from(f">{len(units) // 2}H", units):
        h = (h * 31 + unit) & _MASK
    return h - (1 << 32) if h >> 31 else h


def partition_for_group(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` (or `__transaction_state`) that holds `group_id`.

    The absolute value of the hash is used, unlike keys, whose sign bit is masked: a broker of
    Apache Kafka that takes over the folder computes the partition of each name in the same way
    (seen at 4.3.1).
    """
    found = abs(string_hash(group_id))
    return found % partitions if found < 1 << 31 else 0  # Java has no absolute value of its lowest
