"""The segments of a log in the order of their offsets; the last one takes the appends."""

from __future__ import annotations

from bisect import bisect_right

from headrace.storage.segment import Segment


class SegmentList:
    """There is always at least one segment, except between taking all out and adding a new one."""

    __slots__ = ("items", "bases")

    def __init__(self, segments: list[Segment]) -> None:
        self.items = segments
        self.bases = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self.items)

    def number_at(self, offset: int) -> int:
        """Which segment would hold `offset`: the last that begins at or before it, or the first."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def find(self, offset: int) -> tuple[int, int, int] | None:
        """Segment number, position and size of the first batch that ends at or after `offset`."""
        for number in range(self.number_at(offset), len(self.items)):
            found = self.items[number].find(offset)
            if found is not None:
                return number, *found
        return None

    def end_of(self, number: int, log_end_offset: int) -> int:
        """The offset at which the next segment begins, or the log ends."""
        return self.bases[number + 1] if number + 1 < len(self.bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        assert not self.bases or segment.base_offset > self.bases[-1], "segments ascend"
        self.items.append(segment)
        self.bases.append(segment.base_offset)

    def take_out(self, first: int, last: int | None) -> list[Segment]:
        taken = self.items[first:last]
        del self.items[first:last], self.bases[first:last]
        return taken

    def replace(self, old: list[Segment], new: Segment) -> bool:
        """Put one segment in the place of neighbours; False if they are not all there any more."""
        first = self.number_at(old[0].base_offset)
        if self.items[first : first + len(old)] != old:
            return False
        self.items[first : first + len(old)] = [new]
        self.bases[first : first + len(old)] = [new.base_offset]
        return True

    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.items)
