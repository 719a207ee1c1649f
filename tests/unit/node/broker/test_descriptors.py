"""A node that runs out of file descriptors waits for some; its disk has not failed."""

import errno
import gc
import os
import resource
from contextlib import ExitStack, contextmanager

import pytest

from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage.durability.durability import MOST_FLUSHES_UNDER_WAY
from headrace.wire.protocol.messages import metadata
from tests.unit.node.broker import rig as rig_module
from tests.unit.node.broker.rig import Rig


@contextmanager
def descriptors_left(number):
    """The system grants this process so many more files, no matter who opens them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what earlier tests have left open is closed now or never
    with ExitStack() as held:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        while (filler := os.open(os.devnull, os.O_RDONLY)) < highest:  # numbers that are free below
            held.callback(os.close, filler)
        held.callback(os.close, filler)
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + number, hard))
        yield


def ask_for(rig, names):
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names])
    request.allow_auto_topic_creation = True
    return rig.ask(metadata, request, version=9)


def test_hundreds_of_new_topics_need_few_descriptors_for_their_flushes(tmp_path):
    rig = Rig(tmp_path / "data", open_files=60)
    with descriptors_left(60 + 2 * MOST_FLUSHES_UNDER_WAY):
        answer = ask_for(rig, [f"t{number}" for number in range(400)])
        assert {topic.error_code for topic in answer.topics} == {0}
        assert rig.node.failure is None and rig.node.durability.shortages == 0
        assert rig.produce("t399", "a").error_code == 0
        rig.stop()


def test_a_log_that_finds_no_descriptor_takes_one_from_another(tmp_path):
    """The limit of the cache allows more files than the system grants."""
    rig = Rig(tmp_path / "data", open_files=1_000)
    with descriptors_left(60):
        answer = ask_for(rig, [f"t{number}" for number in range(200)])
        assert {topic.error_code for topic in answer.topics} == {0}
        for number in range(200):
            assert rig.produce(f"t{number}", "a").error_code == 0
            assert rig.fetch(f"t{number}").error_code == 0
        assert rig.node.partitions.open_files.shortages > 0
        assert rig.node.broker.disk_refusals == 0


class Scarce(RealDisk):
    """A disk under a system that has no free descriptor for whoever flushes."""

    __slots__ = ()
    is_short = False
    code = errno.EMFILE

    def flush_folder(self, path):
        if Scarce.is_short:
            raise OSError(Scarce.code, os.strerror(Scarce.code))
        super().flush_folder(path)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    monkeypatch.setattr(rig_module, "RealDisk", Scarce)
    monkeypatch.setattr(Scarce, "is_short", False)
    monkeypatch.setattr(Scarce, "code", errno.EMFILE)
    return Rig(tmp_path / "data")


def test_a_flush_without_a_descriptor_is_tried_again(rig, monkeypatch, caplog):
    monkeypatch.setattr(Scarce, "is_short", True)
    rig.create("orders")
    assert rig.node.failure is None
    assert rig.node.durability.shortages == 1
    assert "a flush waits for a free descriptor" in caplog.text
    rig.advance(1_000)
    assert rig.node.durability.shortages == 2
    monkeypatch.setattr(Scarce, "is_short", False)
    rig.advance(1_000)
    assert rig.node.durability.shortages == 2
    assert not rig.node.durability._delayed and not rig.node.durability._flushing
    assert rig.produce("orders", "a").error_code == 0
    rig.stop()


def test_a_flush_that_the_disk_refuses_still_ends_the_node(rig, monkeypatch):
    monkeypatch.setattr(Scarce, "is_short", True)
    monkeypatch.setattr(Scarce, "code", errno.EIO)
    rig.create("orders")
    assert rig.node.failure is not None and rig.node.failure.errno == errno.EIO


class Unopenable:
    """A log whose file cannot be opened for its flush."""

    def flush_target(self):
        raise OSError(errno.EIO, "Input/output error")


def test_a_file_that_cannot_be_opened_for_a_flush_leaves_no_turn(rig):
    """The error takes the way of a flush that failed: no exception gets past the end of a turn."""
    rig.flushes_wait = True
    rig.node.durability.log_flushes.append(Unopenable())
    assert rig.node.end_turn() and rig.node.failure is None
    rig.run_background()
    assert rig.node.failure is not None
