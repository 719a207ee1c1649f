"""The cleaner's process: it compacts, reports, keeps to its pace and ends when nobody waits."""

import os
import socket

import pytest

from headrace.node.process.background import background_process
from headrace.node.process.background.background_job import NobodyWaits, Pace
from headrace.node.process.background.cleaner import CleanerProcess
from headrace.node.storage.compaction.compaction import clean
from tests.processes.server.conftest import UNLIMITED
from tests.unit.node.storage.a_compacted_log import ACompactedLog
from tests.unit.node.storage.a_log import NOW


class Told:
    def __init__(self):
        self.groups, self.end = [], None

    def cleaned(self, group):
        self.groups.append(group)

    def finished(self, cleaned_to):
        self.end = cleaned_to

    def failed(self, reason, *, damaged):
        self.end = (reason, damaged)


@pytest.fixture
def log(tmp_path):
    log = ACompactedLog(tmp_path)
    for number in range(50):
        log.put((b"a", b"%d" % number), (b"b", b"%d" % number))
    log.roll()
    log.end_turn()
    return log


@pytest.fixture
def process(loop):
    cleaner = CleanerProcess()
    with loop.hears(cleaner.process):
        yield cleaner


def test_a_log_is_compacted_in_another_process(log, loop, process):
    told = Told()
    os.utime(log.log.segments.items[0].path, (NOW // 1000, NOW // 1000))
    process.start(log.job(), UNLIMITED, told)
    loop.run()
    assert told.end == 100
    [group] = told.groups
    assert log.swap_in(group)
    assert log.records() == [(98, b"a", b"49"), (99, b"b", b"49")]
    assert log.open_files.disk.modified_ms(log.log.segments.items[0].path) == NOW


def test_a_damaged_log_is_reported_as_such(log, loop, process):
    log.log.segments.items[0].open_file().write_at(b"!", 70)
    told = Told()
    process.start(log.job(), UNLIMITED, told)
    loop.run()
    reason, damaged = told.end
    assert damaged and "is damaged" in reason


def test_missing_files_are_reported_and_one_can_go_on(log, loop, process):
    told = Told()
    job = log.job()
    job.folder += "-gone"
    process.start(job, UNLIMITED, told)
    loop.run()
    assert told.end[1] is False
    process.start(log.job(), UNLIMITED, told)
    loop.run()
    assert told.end == 100


def test_a_process_that_is_killed_is_noticed(log, loop, process):
    told = Told()
    process.start(log.job(), 1.0, told)  # so slow that it never comes to an end
    os.kill(process.process._processes[-1].pid, 9)
    loop.run()
    assert told.end == ("its process ended early", False)


def test_it_ends_when_nobody_waits_also_in_the_middle_of_a_wait(log, loop, process, monkeypatch):
    monkeypatch.setattr(background_process, "LAST_WAIT_S", 300)  # a busy machine starts it slowly
    told = Told()
    process.start(log.job(), 1.0, told)
    [child] = process.process._processes
    process.process.close()
    assert child.returncode == 0  # by itself: a kill would be -9
    assert told.end is None


def test_the_pace_keeps_to_the_limit():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pace = Pace(theirs, 1e6)
        before = pace._free_at
        for _ in range(10):
            pace(10_000)
        assert pace._free_at - before >= 0.1
        ours.close()
        with pytest.raises(NobodyWaits):
            pace(1)


def test_stopping_in_the_middle_leaves_the_log_as_it_was(log):
    def stop(length):
        raise NobodyWaits

    before = log.records()
    with pytest.raises(NobodyWaits):
        clean(log.open_files.disk, log.job(), stop, lambda group: None)
    assert log.records() == before
