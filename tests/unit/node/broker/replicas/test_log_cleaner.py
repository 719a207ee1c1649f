"""The log cleaner on the loop: which log, when, and what becomes of the result."""

from typing import Any

import pytest

from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.process.metrics.metrics import cleaner_families
from headrace.node.storage.compaction.compaction import clean
from headrace.prometheus_text import render
from headrace.wire.protocol.messages import fetch
from headrace.wire.protocol.record_batch import (
    LENGTH_AT,
    LENGTH_OVERHEAD,
    Record,
    build,
    headers_in,
    seal,
    walk,
)
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.rig import Rig, fetch_request, only_partition

BACKOFF = 15_000
BROKER = 4  # as a kind of what has settings


class InThisProcess:
    """A runner whose work is done when the story says so."""

    def __init__(self):
        self.job: Any = None
        self.stops = 0

    def start(self, job, bytes_per_second, reports):
        assert self.job is None
        self.job, self.reports = job, reports
        self.bytes_per_second = bytes_per_second

    def stop(self):
        self.stops += 1
        self.job = None

    def run(self):
        groups = []
        cleaned_to = clean(RealDisk(), self.job, lambda length: None, groups.append)
        self.job = None
        for group in groups:
            self.reports.cleaned(group)
        self.reports.finished(cleaned_to)


@pytest.fixture
def runner():
    return InThisProcess()


@pytest.fixture
def rig(tmp_path, runner):
    return Rig(tmp_path / "data", compaction=runner)


SMALL = {"cleanup_policy": "compact", "segment_ms": 1000, "min_cleanable_dirty_ratio": 0.1}


def put(rig, topic, *records):
    data = build([Record(k, v, timestamp=rig.now.wall_ms) for k, v in records])
    answer = rig.produce(topic, records=data)
    assert answer.error_code == 0
    return answer.base_offset


def closed_segment(rig, topic, *records):
    """These records in a segment of their own, which is closed; `z` begins the next one."""
    put(rig, topic, *records)
    rig.advance(2000)
    put(rig, topic, (b"z", b"%d" % rig.now.wall_ms))


def records(rig, topic):
    """Read on until the end; an answer has the batches of one segment."""
    found, offset = [], 0
    while data := only_partition(rig.ask(fetch, fetch_request(topic, offset), version=12)).records:
        for position, header in headers_in(data):
            batch = data[position : position + header.size]
            found += [(r.offset, r.key, r.value) for r in walk(batch, 1 << 20)]
            offset = header.last_offset + 1
    return found


def log_of(rig, topic):
    return rig.node.broker.topics.by_name[topic].replicas[0].log


def test_a_dirty_log_is_compacted_and_readers_see_the_rest(rig, runner):
    rig.create("t", **SMALL)
    closed_segment(rig, "t", (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    rig.advance(BACKOFF)
    slow = log_of(rig, "t").read(0, 10_000, up_to=4, at_least_one=True)
    before = slow.file.read(slow.length, slow.position)
    runner.run()
    assert [record[:2] for record in records(rig, "t")] == [(1, b"b"), (2, b"a"), (3, b"z")]
    # A socket that still sends from the old file gets the old bytes.
    assert slow.file.read(slow.length, slow.position) == before
    cleaner = rig.node.cleaner
    assert (cleaner.rounds, cleaner.failures) == (1, 0)
    assert 0 < cleaner.bytes_written < cleaner.bytes_read
    rig.until_idle()
    checkpoint = rig.folder / "cleaner-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\nt 0 3\n"


def test_old_files_go_after_their_delay(rig, runner):
    rig.create("t", **SMALL, file_delete_delay_ms=5000)
    closed_segment(rig, "t", (b"a", b"1"), (b"a", b"2"))
    rig.advance(BACKOFF)
    runner.run()
    rig.until_idle()
    there = list((rig.folder / "t-0").glob("*.deleted"))
    assert there
    rig.advance(5000)
    assert not list((rig.folder / "t-0").glob("*.deleted"))


def test_the_dirtiest_log_comes_first(rig, runner):
    for topic in ("little", "much"):
        rig.create(topic, **SMALL)
        closed_segment(rig, topic, *[(b"%d" % n, b"x") for n in range(20)])
    for _ in range(2):
        rig.advance(BACKOFF)
        runner.run()
    put(rig, "little", (b"a", b"1"))
    put(rig, "much", *[(b"%d" % n, b"x") for n in range(9)])
    rig.advance(2000)
    put(rig, "little", (b"z", b"1"))
    put(rig, "much", (b"z", b"1"))
    rig.advance(BACKOFF)
    assert runner.job.folder.endswith("much-0")
    assert rig.node.cleaner.dirtiest_ratio > 0.2


def test_a_log_that_is_clean_enough_is_left_alone(rig, runner):
    rig.create("t", cleanup_policy="compact", segment_ms=1000, min_cleanable_dirty_ratio=0.9)
    closed_segment(rig, "t", *[(b"%d" % n, b"x") for n in range(20)])
    rig.advance(BACKOFF)
    runner.run()
    closed_segment(rig, "t", (b"a", b"1"))
    rig.advance(BACKOFF)
    assert runner.job is None


def test_where_a_log_is_clean_is_known_after_a_restart(rig, runner, tmp_path):
    rig.create("t", **SMALL)
    closed_segment(rig, "t", (b"a", b"1"), (b"a", b"2"))
    rig.advance(BACKOFF)
    runner.run()
    rig.stop()
    again = InThisProcess()
    rig = Rig(tmp_path / "data", compaction=again)
    rig.advance(BACKOFF)
    assert again.job is None
    closed_segment(rig, "t", (b"a", b"3"))
    rig.advance(BACKOFF)
    job: Any = again.job
    assert job.first_dirty == 2


def test_a_damaged_log_is_left_alone_and_others_are_not(rig, runner):
    rig.create("bad", **SMALL)
    closed_segment(rig, "bad", (b"a", b"1"))
    rig.advance(BACKOFF)
    runner.reports.failed("the batch at 0 is damaged", damaged=True)
    runner.job = None
    rig.create("good", **SMALL)
    closed_segment(rig, "good", (b"a", b"1"))
    rig.advance(BACKOFF)
    assert runner.job.folder.endswith("good-0")
    assert len(rig.node.cleaner.uncleanable) == 1


def test_after_a_failure_it_rests_and_tries_again(rig, runner):
    rig.create("t", **SMALL)
    closed_segment(rig, "t", (b"a", b"1"))
    rig.advance(BACKOFF)
    runner.reports.failed("no space", damaged=False)
    runner.job = None
    rig.advance(BACKOFF - 1000)
    assert runner.job is None
    rig.advance(1000)
    assert runner.job is not None


def test_a_process_that_cannot_be_started_is_a_failure(rig, runner):
    def start(job, bytes_per_second, reports):
        raise OSError(11, "no more processes")

    runner.start = start
    rig.create("t", **SMALL)
    closed_segment(rig, "t", (b"a", b"1"))
    rig.advance(BACKOFF)
    assert rig.node.cleaner.failures == 1
    del runner.start
    rig.advance(BACKOFF)
    assert runner.job is not None


def test_a_topic_that_is_deleted_meanwhile(rig, runner):
    rig.create("t", **SMALL)
    closed_segment(rig, "t", (b"a", b"1"), (b"a", b"2"))
    rig.advance(BACKOFF)
    groups = []
    clean(RealDisk(), runner.job, lambda length: None, groups.append)
    rig.delete("t")
    runner.reports.cleaned(groups[0])
    assert runner.stops == 1
    assert rig.node.cleaner.failures == 1


def test_retention_waits_for_the_round(rig, runner):
    rig.create("t", **{**SMALL, "cleanup_policy": "compact,delete"}, retention_ms=60_000)
    closed_segment(rig, "t", (b"a", b"1"), (b"a", b"2"))
    rig.advance(BACKOFF)
    assert runner.job is not None
    rig.advance(300_000)
    assert log_of(rig, "t").segments.bases[0] == 0
    runner.run()  # and is not put off again, or rounds that follow one another would starve it
    assert log_of(rig, "t").segments.bases[0] > 0


def test_the_settings_of_the_moment_count(rig, runner):
    rig.create("t", **SMALL)
    closed_segment(rig, "t", (b"a", b"1"))
    rig.alter(
        BROKER,
        "1",
        log_cleaner_io_max_bytes_per_second=1000,
        log_cleaner_dedupe_buffer_size=2 << 20,
        log_cleaner_backoff_ms=100,
    )
    rig.advance(BACKOFF)
    assert runner.bytes_per_second == 1000
    assert runner.job.memory == 2 << 20
    runner.run()
    closed_segment(rig, "t", (b"a", b"2"))
    rig.advance(1000)
    assert runner.job is not None, "it does not rest for longer than it is told"


def test_it_can_be_switched_off(tmp_path):
    rig = Rig(tmp_path / "data", compaction=InThisProcess(), log_cleaner_enable="false")
    assert rig.node.cleaner is None


def test_the_end_of_the_node_ends_the_round(rig, runner):
    rig.create("t", **SMALL)
    closed_segment(rig, "t", (b"a", b"1"))
    rig.advance(BACKOFF)
    rig.stop()
    assert runner.stops == 1


def test_committed_offsets_are_compacted_and_found_again(tmp_path, runner):
    rig = GroupRig(tmp_path / "data", compaction=runner, offsets_topic_num_partitions="1")
    rig.create("t")
    rig.find("readers")  # makes the topic of offsets
    for offset in range(50):
        rig.commit("readers", "t", offset)
        rig.commit(f"others-{offset % 3}", "t", offset)
    log = log_of(rig, "__consumer_offsets")
    log.roll(wall_ms=rig.now.wall_ms)
    size = log.size_bytes
    rig.advance(BACKOFF)
    runner.run()
    assert log.size_bytes < size / 5
    assert log.end_offset >= 100
    rig.commit("readers", "t", 50)
    rig.stop()
    again = GroupRig(tmp_path / "data", offsets_topic_num_partitions="1")
    assert again.committed("readers", "t") == 50
    assert [again.committed(f"others-{n}", "t") for n in range(3)] == [48, 49, 47]


def test_a_topic_that_was_made_again_is_dirty_from_its_beginning(rig, runner, tmp_path):
    rig.create("t", **SMALL)
    closed_segment(rig, "t", (b"a", b"1"), (b"a", b"2"))
    rig.advance(BACKOFF)
    runner.run()
    rig.delete("t")
    rig.create("t", **SMALL)  # before the cleaner looks again
    closed_segment(rig, "t", *[(b"b", b"%d" % number) for number in range(5)])
    rig.advance(BACKOFF)
    assert runner.job.first_dirty == 0
    runner.run()
    assert [record[:2] for record in records(rig, "t")] == [(4, b"b"), (5, b"z")]
    rig.delete("t")
    rig.advance(BACKOFF)
    assert (rig.folder / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


def test_a_damaged_log_that_is_deleted_is_not_counted_any_more(rig, runner):
    rig.create("bad", **SMALL)
    closed_segment(rig, "bad", (b"a", b"1"))
    rig.advance(BACKOFF)
    runner.reports.failed("the batch at 0 is damaged", damaged=True)
    runner.job = None
    assert len(rig.node.cleaner.uncleanable) == 1
    rig.delete("bad")
    rig.advance(BACKOFF)
    assert rig.node.cleaner.uncleanable == set()


def test_a_log_that_cannot_be_compacted_now_does_not_keep_others_from_it(rig, runner):
    for topic in ("unreadable", "good"):
        rig.create(topic, **SMALL)
        closed_segment(rig, topic, (b"a", b"1"))
    rig.advance(BACKOFF)
    assert runner.job.folder.endswith("unreadable-0")
    runner.reports.failed("input/output error", damaged=False)
    runner.job = None
    rig.advance(BACKOFF)
    assert runner.job.folder.endswith("good-0")
    runner.run()
    assert runner.job.folder.endswith("unreadable-0"), "it is tried again"


def test_a_log_without_room_for_a_new_index_does_not_keep_others_from_it(
    rig, runner, tmp_path, monkeypatch
):
    for topic in ("wanting", "whole"):
        rig.create(topic, **SMALL, min_compaction_lag_ms=1)
        closed_segment(rig, topic, (b"a", b"1"), (b"a", b"2"))
    rig.stop()
    index = tmp_path / "data" / "wanting-0" / f"{0:020d}.timeindex"
    index.write_bytes(index.read_bytes() + bytes(120))
    again = Rig(tmp_path / "data", compaction=runner)
    again.now.monotonic_ms, again.now.wall_ms = rig.now.monotonic_ms, rig.now.wall_ms
    make = RealDisk.open

    def no_room(disk, path, *, create=False):
        if path.endswith(".tmp"):
            raise OSError(28, "No space left on device")
        return make(disk, path, create=create)

    monkeypatch.setattr(RealDisk, "open", no_room)
    again.advance(BACKOFF)
    assert runner.job.folder.endswith("whole-0")
    runner.run()
    monkeypatch.undo()
    again.advance(BACKOFF)
    assert runner.job.folder.endswith("wanting-0")


def test_a_tick_that_comes_a_little_early_counts(tmp_path):
    runner = InThisProcess()
    rig = Rig(tmp_path / "data", compaction=runner, log_cleaner_backoff_ms="1000")
    rig.create("t", **SMALL)
    rig.advance(1000)  # nothing is due yet: it rests for a second
    put(rig, "t", (b"a", b"1"))
    log_of(rig, "t").roll(wall_ms=rig.now.wall_ms)
    rig.now.monotonic_ms += 998
    rig.node.cleaner.tick()
    assert runner.job is not None


def test_the_metrics_tell_of_rounds_and_of_logs_that_are_left_alone(rig, runner):
    for topic in ("good", "bad"):
        rig.create(topic, **SMALL)
        closed_segment(rig, topic, (b"a", b"1"), (b"a", b"2"))
    rig.advance(BACKOFF)
    runner.run()
    runner.reports.failed("the batch at 0 is damaged", damaged=True)
    cleaner = rig.node.cleaner
    told = dict(
        line.split() for line in render(cleaner_families(cleaner)).splitlines() if line[0] != "#"
    )
    told = {name.removeprefix("headrace_log_cleaner_"): float(n) for name, n in told.items()}
    assert (told["rounds_total"], told["failures_total"]) == (1, 1)
    assert told["uncleanable_partitions"] == 1
    assert 0 < told["written_bytes_total"] < told["read_bytes_total"]
    assert told["max_dirty_ratio"] == 1
    assert list(cleaner_families(None)) == [], "nothing is compacted here"


def test_a_batch_whose_records_cannot_be_read_is_said_and_counted(rig, runner, caplog):
    """Its producer wrote a byte too many, and a version before took it."""
    rig.create("t", **SMALL)
    put(rig, "t", (b"a", b"1"))
    batch = bytearray(build([Record(b"b", b"1")], base_offset=1, leader_epoch=0) + b"!")
    batch[LENGTH_AT:LENGTH_OVERHEAD] = (len(batch) - LENGTH_OVERHEAD).to_bytes(4, "big")
    seal(batch)
    log_of(rig, "t").writer.append_as_is(memoryview(batch), wall_ms=rig.now.wall_ms)
    closed_segment(rig, "t", (b"a", b"2"))
    rig.advance(BACKOFF)
    runner.run()
    assert "t-0: compaction kept 1 batches whole, the first at offset 1" in caplog.text
    cleaner = rig.node.cleaner
    assert (cleaner.rounds, cleaner.failures, cleaner.uncleanable) == (1, 0, set())
    assert "headrace_log_cleaner_unreadable_batches_total 1" in render(cleaner_families(cleaner))
