"""Data folders whose disks refuse appends: what puts one on the list, and what takes it off."""

import errno
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.environment import Now
from headrace.node.broker.folders.refusing_folders import RefusingFolders

FOLDER = "/data"
FULL = OSError(errno.ENOSPC, "No space left on device")


class Disk:
    def __init__(self):
        self.room = 0
        self.files = []

    def write_file(self, path, pieces, *, flush):
        self.files.append(path)
        if sum(map(len, pieces)) > self.room:
            raise FULL

    def remove(self, path):
        self.files.remove(path)


class Folders:
    """A list for one data folder of one of three brokers, and its world."""

    def __init__(self):
        self.disk = Disk()
        self.now = Now(1_000_000, 0)
        self.submitted = []  # work for another thread, and who is told of its end
        self.this = SimpleNamespace(refusing={}, brokers={1, 2, 3}, looks_soon=False)
        given: list[Any] = [self.disk, self.now, [FOLDER], self.this, self.submit]
        self.all = RefusingFolders(*given)

    def submit(self, work, done):
        self.submitted.append((work, done))

    def run_submitted(self):
        submitted, self.submitted = self.submitted, []
        for work, done in submitted:
            problem = None
            try:
                work()
            except OSError as refused:
                problem = refused
            done(problem)

    def refused(self, problem=FULL):
        self.all.refused(f"{FOLDER}/orders-0", problem)

    def pass_s(self, seconds):
        for _ in range(seconds):
            self.now.monotonic_ms += 1_000
            self.all.look()
            self.run_submitted()


@pytest.fixture
def folders():
    return Folders()


def test_many_refusals_are_said_once(folders, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            folders.refused()
            folders.pass_s(20)
        assert folders.this.looks_soon and FOLDER in folders.this.refusing
        folders.disk.room = 1 << 30
        folders.pass_s(20)
    assert folders.this.refusing == {}
    assert caplog.text.count("refuses appends") == 1
    assert caplog.text.count("takes appends again") == 1


def test_a_disk_that_was_just_refusing_is_left_alone(folders):
    folders.disk.room = 1 << 30
    folders.refused()
    folders.pass_s(4)
    assert FOLDER in folders.this.refusing
    folders.pass_s(1)
    assert folders.this.refusing == {}


def test_room_for_a_few_records_is_not_enough(folders):
    folders.refused()
    folders.disk.room = 100_000
    folders.pass_s(60)
    assert FOLDER in folders.this.refusing


def test_a_probe_leaves_no_file(folders):
    folders.refused()
    folders.pass_s(10)
    assert folders.disk.files == []
    folders.disk.room = 1 << 30
    folders.pass_s(10)
    assert folders.disk.files == []


def test_a_shortage_of_descriptors_is_not_a_refusal(folders):
    folders.refused(OSError(errno.EMFILE, "Too many open files"))
    assert folders.this.refusing == {} and not folders.this.looks_soon
