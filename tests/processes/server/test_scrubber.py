"""The scrub's process: it reads segments from the disk, reports damage, and ends."""

import itertools
import os

import pytest

from headrace.node.process.background.scrubber import ScrubberProcess
from headrace.node.process.background.scrubber_process import FileOnDisk
from headrace.node.storage.recovery.scrub import ClosedSegment
from tests.processes.server.conftest import UNLIMITED
from tests.unit.node.storage.a_compacted_log import ACompactedLog


class Told:
    def __init__(self):
        self.segments, self.end = {}, None

    def read(self, number, found):
        self.segments[number] = found

    def skipped(self, number, why):
        self.segments[number] = why

    def finished(self):
        self.end = "finished"

    def failed(self, reason):
        self.end = reason


@pytest.fixture
def log(tmp_path):
    log = ACompactedLog(tmp_path)
    for number in range(3):
        log.put((b"a", b"%d" % number), (b"b", b"%d" % number))
        log.roll()
    log.end_turn()
    return log


@pytest.fixture
def scrubber(loop):
    scrubber = ScrubberProcess()
    with loop.hears(scrubber.process):
        yield scrubber


def job_of(log):
    items = log.log.segments.items
    return [
        ClosedSegment(segment.path, segment.base_offset, behind.base_offset, segment.size)
        for segment, behind in itertools.pairwise(items)
    ]


def test_segments_are_read_in_another_process(log, loop, scrubber):
    job, told = job_of(log), Told()
    log.log.segments.items[1].open_file().write_at(b"!", 70)
    os.unlink(job[2].path)
    scrubber.start(job, UNLIMITED, told)
    loop.run()
    assert told.end == "finished"
    assert told.segments[0] == [] and told.segments[2] == ""
    [damage] = told.segments[1]
    assert (damage.position, damage.size, damage.offset) == (0, job[1].size, 2)
    assert "CRC" in damage.reason


def test_a_segment_that_grew_or_shrank_is_not_judged(log, loop, scrubber):
    [first, *_], told = job_of(log), Told()
    scrubber.start([first._replace(size=first.size - 1)], UNLIMITED, told)
    loop.run()
    assert told.segments == {0: ""}


def test_a_process_that_is_killed_is_noticed(log, loop, scrubber):
    told = Told()
    scrubber.start(job_of(log), 1.0, told)  # so slow that it never comes to an end
    os.kill(scrubber.process._processes[-1].pid, 9)
    loop.run()
    assert told.end == "its process ended early"


def test_a_file_is_read_as_it_is_at_the_pace_that_was_set(tmp_path):
    path, asked = tmp_path / "file", []
    path.write_bytes(bytes(range(256)) * 64)
    file = FileOnDisk(str(path), asked.append)
    assert file.read(100, 50) == path.read_bytes()[50:150]
    assert file.read(1 << 20, 16_000) == path.read_bytes()[16_000:], "only the end is short"
    assert asked == [100, 384]
