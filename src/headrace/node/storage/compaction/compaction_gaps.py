"""Where compaction has left gaps in the offsets of a log, and the file `compaction-gaps`.

A log that was never compacted has no gaps: a batch begins where the one before it ended, and a
segment where the one before it ended. Compaction removes batches, so gaps inside its segments are
correct. Gaps between two segments are noted in the file, one line `END NEXT` each: the last batch
of a segment ends before END, and the next segment begins at NEXT. So a segment that is missing can
be told from one that compaction has shortened (`recovery/holes.py`).

A compacted log has the file from its creation or its first compaction on. A compacted log of Apache
Kafka or of an older version has none: its gaps are noted as they are found at its first start. The
file is written and, if it names gaps, flushed before the change that needs it; its name is flushed
with the log's next flush.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headrace.environment import Disk

GAPS = "compaction-gaps"

Gap = tuple[int, int]  # where a segment ends, and where the next one begins


class CompactionGaps:
    __slots__ = ("path", "noted", "may_be", "_disk")

    def __init__(self, disk: Disk, folder: str) -> None:
        self.path = f"{folder}/{GAPS}"
        self.may_be = True  # batches of this log may leave gaps
        self.noted: set[Gap] | None = None  # between segments; None: the file does not exist
        self._disk = disk

    @property
    def gapless(self) -> bool:
        return not self.may_be

    def load(self, *, exists: bool, was_compacted: bool) -> None:
        """`was_compacted`: the log has gaps for all that is known besides the file."""
        if exists:
            self.noted = gaps_from_bytes(self._disk.read_file(self.path))
        self.may_be = exists or was_compacted

    def note(self, gaps: Iterable[Gap], bases: Collection[int]) -> bool:
        """Add gaps between segments, and forget those before segments that the log, whose segments
        begin at `bases`, no longer has. Returns whether the file was written."""
        kept = {gap for gap in self.noted or () if gap[1] in bases} | set(gaps)
        self.may_be = True
        if self.noted is not None and kept <= self.noted:
            return False
        self._disk.write_file(self.path, [gaps_to_bytes(kept)], flush=bool(kept))
        self.noted = kept
        return True

    def is_noted(self, gap: Gap) -> bool:
        return self.noted is not None and gap in self.noted


def gaps_to_bytes(gaps: Iterable[Gap]) -> bytes:
    lines = [f"{end} {following}" for end, following in sorted(gaps)]
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def gaps_from_bytes(data: bytes) -> set[Gap] | None:
    """None if the file cannot be read: then the gaps are noted as they are found."""
    try:
        version, count, *lines = data.decode().splitlines()
        found = {(int(end), int(following)) for end, following in map(str.split, lines)}
    except ValueError:
        return None
    return found if version == "0" and count == str(len(lines)) else None
