"""Damaged ranges of a partition's log: the facts about them, and how they are stored.

Damage below the recovery point is kept, for those bytes were flushed and may be the only copy.
Reads of it are refused with CORRUPT_MESSAGE, unless the topic has `headrace.skip.damaged`; the
records before and after it are served. `damaged-ranges` in the partition's folder keeps the damage
that a recovery or a lookup found, so that a clean start need not read everything again. It is a
list for the node itself: without it damage is found again, at the latest when a client reads it. A
range of the list counts only if it is still damaged when it is read again. A missing segment is a
range of size 0 (`holes.py`). A follower truncates to `first_offset` of the first range and fetches
from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.environment import Disk
from headrace.wire.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.node.storage.segments.batch_scan import DamagedRange

log = logging.getLogger(__name__)

DAMAGED_RANGES = "damaged-ranges"
# No good batch follows in the segment: the damage ends where the next segment begins.
TO_THE_END = 1 << 62


class Damage(NamedTuple):
    """Bytes of a segment that are not good batches, and the offsets that are missing because of
    that."""

    segment: int  # base offset of the segment that holds it
    position: int
    size: int
    first_offset: int
    next_offset: int  # of the good batch behind it, or TO_THE_END
    reason: str = ""

    @property
    def end(self) -> int:
        return self.position + self.size


def damage_of(segment: int, found: DamagedRange) -> Damage:
    following = TO_THE_END if found.next_offset is None else found.next_offset
    return Damage(segment, found.position, found.size, found.offset, following, found.reason)


def sound_ranges(damaged: list[Damage], position: int, end: int) -> Iterator[tuple[int, int]]:
    """The bytes from `position` to `end` that are not known to be damaged."""
    for damage in damaged:
        if damage.end > position:
            if damage.position > position:
                yield position, min(damage.position, end)
            position = damage.end
    if position < end:
        yield position, end


class DamagedRecords(KafkaError):
    """The offset that was asked for is in a damaged range."""

    def __init__(self, damage: Damage, path: str) -> None:
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"offsets {damage.first_offset} to {damage.next_offset - 1} are damaged "
            f"({damage.size} bytes at {damage.position} of {path}"
            f"{'' if damage.size else ': ' + damage.reason}); "
            "headrace.skip.damaged=true on the topic lets readers continue after them",
        )
        self.damage = damage


class Cut(NamedTuple):
    """The part that a start has cut from the end of a log."""

    first_offset: int
    size: int  # of all removed bytes


class Findings:
    """The damage that the logs of one node found since its start, for its metrics."""

    __slots__ = (
        "cuts",
        "cut_bytes",
        "damaged_ranges",
        "indexes_rebuilt",
        "ranges_skipped",
        "_said",
    )

    def __init__(self) -> None:
        self.cuts = 0
        self.cut_bytes = 0
        self.damaged_ranges = 0
        self.indexes_rebuilt = 0
        self.ranges_skipped = 0  # reads that went on behind damage
        self._said: set[tuple[str, int, int]] = set()

    def count_cut(self, size: int) -> None:
        self.cuts += 1
        self.cut_bytes += size

    def cut(self, folder: str, cut: Cut, reason: str) -> None:
        self.count_cut(cut.size)
        log.warning(
            "%s: cut %d bytes from offset %d on, which were never vouched for: %s",
            folder, cut.size, cut.first_offset, reason,
        )  # fmt: skip

    def damaged(self, path: str, found: Iterable[Damage]) -> None:
        for damage in found:
            self.damaged_ranges += 1
            log.error(
                "%s: offsets %d to %s are damaged (%d bytes at %d): %s; they are kept, and reads "
                "of them are refused with CORRUPT_MESSAGE",
                path,
                damage.first_offset,
                "the end" if damage.next_offset == TO_THE_END else damage.next_offset - 1,
                damage.size,
                damage.position,
                damage.reason,
            )

    def skipped(self, folder: str, damage: Damage) -> None:
        """Count a reader that continues after damage; logged once for each range."""
        self.ranges_skipped += 1
        known = (folder, damage.segment, damage.position)
        if known not in self._said:
            self._said.add(known)
            log.warning(
                "%s: a reader continues at offset %d: %d to %d are damaged, and the topic has "
                "headrace.skip.damaged=true",
                folder, damage.next_offset, damage.first_offset, damage.next_offset - 1,
            )  # fmt: skip

    def index_rebuilt(self, path: str) -> None:
        self.indexes_rebuilt += 1
        log.warning("%s: an index was wrong and was rebuilt from the log", path)


def ranges_to_bytes(found: list[Damage]) -> bytes:
    """Returns the file's bytes in the form of the checkpoints: a version, a count, an entry per
    line; the reason comes last."""
    lines = [" ".join(map(str, damage)) for damage in found]
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def ranges_from_bytes(data: bytes) -> list[Damage]:
    """Returns nothing from a malformed file: its contents can be found again."""
    try:
        version, count, *lines = data.decode().splitlines()
        found = []
        for line in lines:
            segment, position, size, first_offset, next_offset, reason = line.split(" ", 5)
            found.append(
                Damage(
                    int(segment),
                    int(position),
                    int(size),
                    int(first_offset),
                    int(next_offset),
                    reason,
                )
            )
    except ValueError:
        return []
    return found if version == "0" and count == str(len(found)) else []


def save_repaired(disk: Disk, folder: str, found: list[Damage]) -> bool:
    """The log was cut, and maybe damage with it: a later start must not find that in the list.
    Returns whether there was a list."""
    if not disk.exists(f"{folder}/{DAMAGED_RANGES}"):
        return False
    save_ranges(disk, folder, found)
    return True


def save_ranges(disk: Disk, folder: str, found: list[Damage]) -> None:
    """Save the damaged ranges; without any the file is removed. Holes are left out: every start
    looks for them."""
    found = [damage for damage in found if damage.size]
    path = f"{folder}/{DAMAGED_RANGES}"
    if found:
        disk.write_file(path, [ranges_to_bytes(found)], flush=False)
    else:
        disk.remove(path)
