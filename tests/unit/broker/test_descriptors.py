"""A node that runs out of file descriptors waits for some; its disk has not failed."""

import errno
import gc
import os
import resource
from contextlib import ExitStack, contextmanager

import pytest

from headrace.protocol.messages import metadata
from headrace.server.real_disk import RealDisk
from headrace.storage.durability import MOST_FLUSHES_UNDER_WAY
from tests.unit.broker import bench as bench_module
from tests.unit.broker.bench import Bench


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


def ask_for(bench, names):
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names])
    request.allow_auto_topic_creation = True
    return bench.ask(metadata, request, version=9)


def test_hundreds_of_new_topics_need_few_descriptors_for_their_flushes(tmp_path):
    bench = Bench(tmp_path / "data", open_files=60)
    with descriptors_left(60 + 2 * MOST_FLUSHES_UNDER_WAY):
        answer = ask_for(bench, [f"t{number}" for number in range(400)])
        assert {topic.error_code for topic in answer.topics} == {0}
        assert bench.node.failure is None and bench.node.durability.shortages == 0
        assert bench.produce("t399", "a").error_code == 0
        bench.stop()


def test_a_log_that_finds_no_descriptor_takes_one_from_another(tmp_path):
    """The limit of the cache allows more files than the system grants."""
    bench = Bench(tmp_path / "data", open_files=1_000)
    with descriptors_left(60):
        answer = ask_for(bench, [f"t{number}" for number in range(200)])
        assert {topic.error_code for topic in answer.topics} == {0}
        for number in range(200):
            assert bench.produce(f"t{number}", "a").error_code == 0
            assert bench.fetch(f"t{number}").error_code == 0
        assert bench.node.partitions.open_files.shortages > 0
        assert bench.node.broker.disk_refusals == 0


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
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_module, "RealDisk", Scarce)
    monkeypatch.setattr(Scarce, "is_short", False)
    monkeypatch.setattr(Scarce, "code", errno.EMFILE)
    return Bench(tmp_path / "data")


def test_a_flush_without_a_descriptor_is_tried_again(bench, monkeypatch, caplog):
    monkeypatch.setattr(Scarce, "is_short", True)
    bench.create("orders")
    assert bench.node.failure is None
    assert bench.node.durability.shortages == 1
    assert "a flush waits for a free descriptor" in caplog.text
    bench.advance(1_000)
    assert bench.node.durability.shortages == 2
    monkeypatch.setattr(Scarce, "is_short", False)
    bench.advance(1_000)
    assert bench.node.durability.shortages == 2
    assert not bench.node.durability._delayed and not bench.node.durability._flushing
    assert bench.produce("orders", "a").error_code == 0
    bench.stop()


def test_a_flush_that_the_disk_refuses_still_ends_the_node(bench, monkeypatch):
    monkeypatch.setattr(Scarce, "is_short", True)
    monkeypatch.setattr(Scarce, "code", errno.EIO)
    bench.create("orders")
    assert bench.node.failure is not None and bench.node.failure.errno == errno.EIO


class Unopenable:
    """A log whose file cannot be opened for its flush."""

    def flush_target(self):
        raise OSError(errno.EIO, "Input/output error")


def test_a_file_that_cannot_be_opened_for_a_flush_leaves_no_turn(bench):
    """The error takes the way of a flush that failed: no exception gets past the end of a turn."""
    bench.flushes_wait = True
    bench.node.durability.log_flushes.append(Unopenable())
    assert bench.node.end_turn() and bench.node.failure is None
    bench.run_background()
    assert bench.node.failure is not None
