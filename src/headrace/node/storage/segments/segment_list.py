"""The segments of a log in the order of their offsets; the last one takes the appends."""

from __future__ import annotations

from bisect import bisect_right

from headrace.environment import FileSlice
from headrace.node.storage.compaction.compaction_gaps import CompactionGaps, Gap
from headrace.node.storage.durability.flush import Flushable
from headrace.node.storage.recovery.damage import TO_THE_END, Damage, DamagedRecords, damage_of
from headrace.node.storage.segments.batch_scan import DamagedRange
from headrace.node.storage.segments.segment import Segment
from headrace.node.storage.segments.segment_damage import is_still_damaged
from headrace.node.storage.segments.transaction_check import check_aborted
from headrace.node.storage.segments.transaction_index import Aborted


class SegmentList:
    """There is always at least one segment, except between taking all out and adding a new one."""

    __slots__ = ("items", "bases", "gaps")

    def __init__(self, segments: list[Segment], gaps: CompactionGaps) -> None:
        # Invariant: `bases[i]` is the base offset of `items[i]`, ascending; a plain list of
        # integers lets `bisect` search without calling into segments.
        self.items = segments
        self.bases = [segment.base_offset for segment in segments]
        self.gaps = gaps  # of all of them

    def __len__(self) -> int:
        return len(self.items)

    def number_at(self, offset: int) -> int:
        """Which segment would hold `offset`: the last that begins at or before it, or the first."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def find(self, offset: int) -> tuple[int, int, int] | None:
        """Segment number, position and size of the first batch that ends at or after `offset`."""
        # Mostly the first segment answers. After compaction a segment may hold no batch that
        # reaches `offset`; then the next record is in a later segment.
        for number in range(self.number_at(offset), len(self.items)):
            try:
                found = self.items[number].find(offset)
            except DamagedRecords as refusal:
                damage = refusal.damage
                if damage.next_offset == TO_THE_END:
                    damage = damage._replace(next_offset=self.bases[number + 1])
                raise DamagedRecords(damage, self.items[number].path) from None
            if found is not None:
                return number, *found
        return None

    def read(
        self, offset: int, max_bytes: int, up_to: int, log_end_offset: int, at_least_one: bool
    ) -> FileSlice | None:
        """The answer of `PartitionLog.read`, found by the indexes."""
        found = self.find(offset)
        if found is None:
            return None
        number, position, size = found
        segment = self.items[number]
        end = segment.size
        if up_to < self.end_of(number, log_end_offset):
            end = segment.position_before(up_to)
        # A slice never includes damaged bytes: it ends before them, and the next read, which begins
        # there, gets the error.
        for damage in segment.damage:
            if damage.position > position:
                end = min(end, damage.position)
                break
        length = end - position
        if length > max_bytes:
            length = max_bytes if size <= max_bytes else size if at_least_one else 0
        if position < segment.unread_to and length > 0:
            below = self.end_of(number, log_end_offset)
            sound = segment.sound_end(position, position + length, below) - position
            if sound < size:
                # The first batch, which the index has led to, contradicts its neighbours.
                segment.look_for_damage(below)
                return self.read(offset, max_bytes, up_to, log_end_offset, at_least_one)
            length = min(length, sound)
        return FileSlice(segment.open_file(), position, length) if length > 0 else None

    def read_behind_damage(
        self, offset: int, max_bytes: int, up_to: int, log_end_offset: int, at_least_one: bool
    ) -> FileSlice | None:
        """Read as `read` does, but skip damaged ranges: start with the next good batch."""
        while offset < up_to:
            try:
                return self.read(offset, max_bytes, up_to, log_end_offset, at_least_one)
            except DamagedRecords as refusal:
                self.items[0].findings.skipped(self.items[0].path, refusal.damage)
                offset = refusal.damage.next_offset
        return None

    def aborted_transactions(
        self, offset: int, records: FileSlice, up_to: int, log_end_offset: int
    ) -> list[tuple[int, int]]:
        """Producer id and first offset of each aborted transaction that `records`, which were read
        from `offset` on, may hold parts of."""
        first = number = self.number_at(offset)
        while self.items[number].file is not records.file and number + 1 < len(self.items):
            number += 1  # compaction left nothing between `offset` and the end of a segment
        holder = self.items[number]
        holder.load_indexes()
        end = holder.index.offset_from(records.position + records.length)
        if end is None:
            end = self.end_of(number, log_end_offset)
        found: list[Aborted] = []
        for number in range(first, len(self.items)):
            index = self.items[number].transaction_index
            if not index.is_checked:
                check_aborted(self, number, log_end_offset)
            if index.collect(offset, min(end, up_to), found):
                break
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    def check_aborted(self, log_end_offset: int) -> None:
        """Check the indexes of aborted transactions before they are read from their files."""
        for number in range(len(self.items)):
            check_aborted(self, number, log_end_offset)

    def unflushed_files(
        self, recovery_point: int, end_offset: int, *, active_too: bool
    ) -> list[Flushable]:
        """Returns the files of closed segments beyond the recovery point, and of the active one."""
        files: list[Flushable] = []
        for segment in self.items[self.number_at(recovery_point) :]:
            if segment is not self.items[-1]:
                files += segment.all_files()
            elif active_too and end_offset > recovery_point:
                files += [segment.open_file(), *segment.transaction_index.open_if_there()]
        return files

    def end_of(self, number: int, log_end_offset: int) -> int:
        """The offset at which the next segment begins, or the log ends."""
        return self.bases[number + 1] if number + 1 < len(self.bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        assert not self.bases or segment.base_offset > self.bases[-1], "segments ascend"
        segment.gaps = self.gaps
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
        new.gaps = self.gaps
        self.items[first : first + len(old)] = [new]
        self.bases[first : first + len(old)] = [new.base_offset]
        return True

    def note_gaps(self, gaps: list[Gap]) -> bool:
        """Compaction leaves, or has left, these gaps between segments of the log. Returns whether
        the file of them is new, so that its name has to be flushed."""
        return self.gaps.note(gaps, self.bases)

    def damage(self) -> list[Damage]:
        """The known damage, in the order of offsets."""
        return [damage for segment in self.items for damage in segment.damage]

    def note_damage(self, segment: Segment, found: list[DamagedRange]) -> int:
        """Note the damage that a reading of a whole closed segment has found; returns how many
        ranges are new. Known ranges stay, also where this reading found nothing."""
        behind = self.bases[self.number_at(segment.base_offset) + 1]
        found = [each._replace(next_offset=each.next_offset or behind) for each in found]
        new = [damage_of(segment.base_offset, each) for each in found]
        for known in segment.damage:
            new = [
                d for d in new
                if (d.end <= known.position or d.position >= known.end)
                and d[:3] != known[:3]
            ]  # fmt: skip
        segment.damage = sorted([*segment.damage, *new], key=lambda damage: damage.position)
        segment.findings.damaged(segment.path, new)
        return len(new)

    def confirm_damage(self) -> None:
        """Read the damaged ranges again and forget those that are good batches by now: a follower
        that truncates its log there would lose records that it has. Holes stay."""
        for number, segment in enumerate(self.items):
            if segment.damage:
                below = self.bases[number + 1] if number + 1 < len(self.bases) else None
                segment.damage = [
                    damage
                    for damage in segment.damage
                    if not damage.size or is_still_damaged(segment, damage, below)
                ]

    def first_damage(self, start_offset: int) -> int | None:
        """The first offset that is known to be unreadable, from where the log begins."""
        for segment in self.items:
            for damage in segment.damage:
                if damage.next_offset > start_offset:
                    return max(damage.first_offset, start_offset)
        return None

    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.items)
