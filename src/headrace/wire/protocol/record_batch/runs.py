"""Runs of records of one shape in a batch, found without a step from one to the next.

Producers write alike: the records of a batch often have the same length for long stretches, with a
key of one length at one place, as far as the numbers in front of it take the same number of bytes.
A column (one byte of each record of such a stretch) is one slice of the batch, so a run is found
and checked by a few slices: about a tenth of what it costs to walk. The next batch mostly looks the
same, so the runs of the last one are tried first. A run is found only where every length in it is
the same (of records, keys, values and headers), so records of a run are as whole as a walk finds
them. A run that is too short is walked record by record.
"""

from __future__ import annotations

from struct import Struct

from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.primitives import LARGEST_VARINT
from headrace.wire.protocol.record_batch.fast_walks import skip_bytes, skip_headers
from headrace.wire.protocol.record_batch.records import read_varint

# Below this, slices cost more than steps.
SHORTEST_RUN = 8
LONGEST_RUN = 1_000  # bounds the format of its fields
LARGEST_VARLONG = 10  # bytes


class Run:
    """So many records of one size that follow one another, all with their keys at one place."""

    __slots__ = (
        "count", "size", "key_at", "key_length", "is_of_tombstones", "_same", "_low", "_high",
        "_keys",
    )  # fmt: skip

    def __init__(
        self,
        data: bytes,
        pos: int,
        size: int,
        count: int,
        key: tuple[int, int],
        behind_key: list[int],
    ) -> None:
        self.count = count
        self.size = size
        self.key_at, self.key_length = key
        # All values of a run are equally long, or there are none.
        self.is_of_tombstones = bool(data[pos + self.key_at + self.key_length] & 1)
        width = 1 if data[pos] < 128 else 2
        # Columns of one number: all lengths, of the record, the key, the value and the headers.
        same = [*range(width), self.key_at - 1, *behind_key]
        numbers = range(width + 1, self.key_at - 1)  # timestamp and offset, of any value
        self._same = [(at, data[pos + at : pos + at + 1] * count) for at in same]
        self._low = [at for at in numbers if data[pos + at] < 128]
        self._high = [at for at in numbers if data[pos + at] > 127]
        rest = size - self.key_at - self.key_length
        # One format for the whole run takes a sixth of the time of one for each record.
        self._keys = Struct(f"{self.key_at}x{self.key_length}s{rest}x" * count).unpack_from

    def is_at(self, data: bytes, pos: int) -> bool:
        size = self.size
        stop = pos + self.count * size
        for at, column in self._same:
            if data[pos + at : stop : size] != column:
                return False
        for at in self._low:
            if not data[pos + at : stop : size].isascii():
                return False
        return all(min(data[pos + at : stop : size]) > 127 for at in self._high)

    def keys(self, data: bytes, pos: int) -> tuple[bytes, ...]:
        return self._keys(data, pos)


Runs = tuple[Run, ...]
_latest: tuple[int, int, Runs] = (-1, -1, ())  # of a batch of runs alone: records, bytes, runs


def runs_at(data: bytes, pos: int, end: int, count: int) -> Runs:
    """The runs that a batch of so many records between two positions begins with. The records after
    them must be walked."""
    global _latest
    records, size, runs = _latest
    if records == count and size == end - pos and _are_at(runs, data, pos):
        return runs
    found, left, at = [], count, pos
    while left >= SHORTEST_RUN:
        run = _run_at(data, at, end, min(left, LONGEST_RUN))
        if run is None:
            break
        found.append(run)
        left -= run.count
        at += run.count * run.size
    runs = tuple(found)
    if not left and at == end:
        _latest = count, end - pos, runs
    return runs


def _are_at(runs: Runs, data: bytes, pos: int) -> bool:
    for run in runs:
        if not run.is_at(data, pos):
            return False
        pos += run.count * run.size
    return True


def _run_at(data: bytes, pos: int, end: int, most: int) -> Run | None:
    size, count = alike(data, pos, end, most)
    if not count:
        return None
    at, length, count = keys_alike(data, pos, size, count)
    if not count:
        return None
    behind_key, count = rest_alike(data, pos, size, count, at + length)
    return Run(data, pos, size, count, (at, length), behind_key) if count else None


def alike(data: bytes, pos: int, end: int, most: int) -> tuple[int, int]:
    """The bytes that the record at `pos` takes with its length, and how many such follow one
    another from there, itself among them; 0 if there are too few."""
    length = data[pos]
    width = 1
    if length & 1:  # a negative length
        return 0, 0
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
    """Returns where the key begins in each record of such a run, its length, and for how many
    records from the first on this holds; 0 records if the keys are long, missing or not alike."""
    stop = pos + count * size
    at = pos + (2 if data[pos] < 128 else 3)  # the length and the attributes
    for longest in (LARGEST_VARLONG, LARGEST_VARINT):  # timestamp, offset
        begin = at
        while data[at] > 127:
            if at - begin + 1 >= longest:
                return 0, 0, 0
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


def rest_alike(
    data: bytes, pos: int, size: int, count: int, value_at: int
) -> tuple[list[int], int]:
    """Returns the positions in a record of the lengths of its value and of its headers, and in how
    many records of such a run they are the same; 0 if there are too few, or if the first record is
    not whole."""
    try:
        _, behind = skip_bytes(data, pos + value_at)
        _, value_from = read_varint(data, pos + value_at)
        at_bytes = [*range(pos + value_at, value_from), *skip_headers(data, behind, pos + size)]
    except MalformedMessage:
        return [], 0  # who walks says what is wrong
    stop = pos + count * size
    for at_byte in at_bytes:
        count = _begins_alike(data[at_byte:stop:size])
        if count < SHORTEST_RUN:
            return [], 0
        stop = pos + count * size
    return [at_byte - pos for at_byte in at_bytes], count


def _begins_alike(column: bytes) -> int:
    """Returns how many bytes at the beginning are the same."""
    return len(column) - len(column.lstrip(column[:1]))
