"""Runs of records of one length in a batch, found without a step from one to the next.

Producers write alike: the records of a batch often have the same length for long stretches, as far
as the numbers in front of the key take the same number of bytes. A column (one byte of each record
of such a stretch) is one slice of the batch, so a run is found and checked by a few slices: about
a tenth of what it costs to walk. Whoever meets a run that is too short walks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

# Below this, slices cost more than steps.
SHORTEST_RUN = 8
MOST_LAYOUTS = 1_000


def alike(data: bytes, pos: int, end: int, most: int) -> tuple[int, int]:
    """The bytes that the record at `pos` takes with its length, and how many such follow one
    another from there, itself among them; 0 if there are too few."""
    length = data[pos]
    width = 1
    if length > 127:
        second = data[pos + 1]
        if second > 127:  # over 8 KiB: walking such records costs nothing
            return 0, 0
        length += (second << 7) - 128
        width = 2
    size = width + (length >> 1)
    count = min(most, (end - pos) // size)
    for byte in range(width):
        if count < SHORTEST_RUN:
            return size, 0
        count = _begins_alike(data[pos + byte : pos + count * size : size])
    return size, count if count >= SHORTEST_RUN else 0


def keys_alike(data: bytes, pos: int, size: int, count: int) -> tuple[int, int, int]:
    """Of such a run: where in a record its key begins, how long it is, and in how many records from
    the first on that is so. No records: it is not so, or the keys are long or missing."""
    stop = pos + count * size
    at = pos + (2 if data[pos] < 128 else 3)  # the length and the attributes
    for _ in ("timestamp", "offset"):
        while data[at] > 127:
            if min(data[at:stop:size]) < 128:
                return 0, 0, 0
            at += 1
        if not data[at:stop:size].isascii():
            return 0, 0, 0
        at += 1
    key_length = data[at]
    if key_length > 127 or key_length & 1:
        return 0, 0, 0
    count = _begins_alike(data[at:stop:size])
    at += 1
    key_length >>= 1
    if count < SHORTEST_RUN or at + key_length >= pos + size:
        return 0, 0, 0
    return at - pos, key_length, count


def _begins_alike(column: bytes) -> int:
    """How many bytes are the same as the first."""
    return len(column) - len(column.lstrip(column[:1]))


_unpackers: dict[tuple[int, int, int], Callable[[Any], Iterator[Any]]] = {}


def fields_at(
    data: bytes, pos: int, size: int, count: int, at: int, length: int
) -> Iterator[tuple[bytes]]:
    """The bytes of this length that begin at this place of every record of a run."""
    layout = (at, length, size)
    unpack = _unpackers.get(layout)
    if unpack is None:
        if len(_unpackers) >= MOST_LAYOUTS:
            _unpackers.clear()
        unpack = _unpackers[layout] = Struct(f"{at}x{length}s{size - at - length}x").iter_unpack
    return unpack(memoryview(data)[pos : pos + count * size])
