"""The scrub of one segment: what counts as damage."""

import os

from headrace.node.process.folders.real_disk import RealDisk, RealFile
from headrace.node.storage.recovery.scrub import ClosedSegment, damage_in
from tests.unit.node.storage.a_compacted_log import ACompactedLog


class ForgetfulFile(RealFile):
    """Gives the first reader a wrong bit; memory does such things, rarely."""

    __slots__ = ()
    is_wrong = True

    def read(self, length, position):
        data = bytearray(super().read(length, position))
        if ForgetfulFile.is_wrong:
            data[70] ^= 1
            ForgetfulFile.is_wrong = False
        return bytes(data)


def a_segment(tmp_path):
    log = ACompactedLog(tmp_path)
    log.put((b"a", b"1"), (b"b", b"1"))
    log.roll()
    log.end_turn()
    first, behind = log.log.segments.items
    return ClosedSegment(first.path, first.base_offset, behind.base_offset, first.size)


def test_what_only_one_of_two_readings_finds_is_no_damage(tmp_path):
    opened = []

    def open_file(path):
        opened.append(path)
        return ForgetfulFile(path, os.open(path, os.O_RDONLY))

    ForgetfulFile.is_wrong = True
    assert damage_in(a_segment(tmp_path), open_file) == []
    assert len(opened) == 2, "a second reading has judged the first"


def test_a_flipped_bit_is_found_by_both(tmp_path):
    segment = a_segment(tmp_path)
    RealDisk().open(segment.path).write_at(b"!", 70)
    [damage] = damage_in(segment, RealDisk().open)
    assert (damage.offset, damage.next_offset, damage.size) == (0, None, segment.size)
