"""The log cleaner on the loop: which log, when, and what becomes of the result."""

import pytest

from headrace.protocol.messages import fetch
from headrace.protocol.record_batch import (
    LENGTH_AT,
    LENGTH_OVERHEAD,
    Record,
    build,
    headers_in,
    seal,
    walk,
)
from headrace.server.metrics import cleaner_families, render
from headrace.server.real_disk import RealDisk
from headrace.storage.compaction import clean
from tests.unit.broker.bench import Bench, fetch_request, only_partition
from tests.unit.broker.group_bench import GroupBench

BACKOFF = 15_000
BROKER = 4  # as a kind of what has settings


class InThisProcess:
    """A runner whose work is done when the story says so."""

    def __init__(self):
        self.job = None
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
def bench(tmp_path, runner):
    return Bench(tmp_path / "data", compaction=runner)


SMALL = {"cleanup_policy": "compact", "segment_ms": 1000, "min_cleanable_dirty_ratio": 0.1}


def put(bench, topic, *records):
    data = build([Record(k, v, timestamp=bench.now.wall_ms) for k, v in records])
    answer = bench.produce(topic, records=data)
    assert answer.error_code == 0
    return answer.base_offset


def closed_segment(bench, topic, *records):
    """These records in a segment of their own, which is closed; `z` begins the next one."""
    put(bench, topic, *records)
    bench.advance(2000)
    put(bench, topic, (b"z", b"%d" % bench.now.wall_ms))


def records(bench, topic):
    """Read on until the end; an answer has the batches of one segment."""
    found, offset = [], 0
    while data := only_partition(
        bench.ask(fetch, fetch_request(topic, offset), version=12)
    ).records:
        for position, header in headers_in(data):
            batch = data[position : position + header.size]
            found += [(r.offset, r.key, r.value) for r in walk(batch, 1 << 20)]
            offset = header.last_offset + 1
    return found


def log_of(bench, topic):
    return bench.node.broker.topics.by_name[topic].replicas[0].log


def test_a_dirty_log_is_compacted_and_readers_see_the_rest(bench, runner):
    bench.create("t", **SMALL)
    closed_segment(bench, "t", (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    bench.advance(BACKOFF)
    slow = log_of(bench, "t").read(0, 10_000, up_to=4, at_least_one=True)
    before = slow.file.read(slow.length, slow.position)
    runner.run()
    assert [record[:2] for record in records(bench, "t")] == [(1, b"b"), (2, b"a"), (3, b"z")]
    # A socket that still sends from the old file gets the old bytes.
    assert slow.file.read(slow.length, slow.position) == before
    cleaner = bench.node.cleaner
    assert (cleaner.rounds, cleaner.failures) == (1, 0)
    assert 0 < cleaner.bytes_written < cleaner.bytes_read
    bench.settle()
    checkpoint = bench.folder / "cleaner-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\nt 0 3\n"


def test_old_files_go_after_their_delay(bench, runner):
    bench.create("t", **SMALL, file_delete_delay_ms=5000)
    closed_segment(bench, "t", (b"a", b"1"), (b"a", b"2"))
    bench.advance(BACKOFF)
    runner.run()
    bench.settle()
    there = list((bench.folder / "t-0").glob("*.deleted"))
    assert there
    bench.advance(5000)
    assert not list((bench.folder / "t-0").glob("*.deleted"))


def test_the_dirtiest_log_comes_first(bench, runner):
    for topic in ("little", "much"):
        bench.create(topic, **SMALL)
        closed_segment(bench, topic, *[(b"%d" % n, b"x") for n in range(20)])
    for _ in range(2):
        bench.advance(BACKOFF)
        runner.run()
    put(bench, "little", (b"a", b"1"))
    put(bench, "much", *[(b"%d" % n, b"x") for n in range(9)])
    bench.advance(2000)
    put(bench, "little", (b"z", b"1"))
    put(bench, "much", (b"z", b"1"))
    bench.advance(BACKOFF)
    assert runner.job.folder.endswith("much-0")
    assert bench.node.cleaner.dirtiest_ratio > 0.2


def test_a_log_that_is_clean_enough_is_left_alone(bench, runner):
    bench.create("t", cleanup_policy="compact", segment_ms=1000, min_cleanable_dirty_ratio=0.9)
    closed_segment(bench, "t", *[(b"%d" % n, b"x") for n in range(20)])
    bench.advance(BACKOFF)
    runner.run()
    closed_segment(bench, "t", (b"a", b"1"))
    bench.advance(BACKOFF)
    assert runner.job is None


def test_where_a_log_is_clean_is_known_after_a_restart(bench, runner, tmp_path):
    bench.create("t", **SMALL)
    closed_segment(bench, "t", (b"a", b"1"), (b"a", b"2"))
    bench.advance(BACKOFF)
    runner.run()
    bench.stop()
    again = InThisProcess()
    bench = Bench(tmp_path / "data", compaction=again)
    bench.advance(BACKOFF)
    assert again.job is None
    closed_segment(bench, "t", (b"a", b"3"))
    bench.advance(BACKOFF)
    assert again.job.first_dirty == 2


def test_a_damaged_log_is_left_alone_and_others_are_not(bench, runner):
    bench.create("bad", **SMALL)
    closed_segment(bench, "bad", (b"a", b"1"))
    bench.advance(BACKOFF)
    runner.reports.failed("the batch at 0 is damaged", damaged=True)
    runner.job = None
    bench.create("good", **SMALL)
    closed_segment(bench, "good", (b"a", b"1"))
    bench.advance(BACKOFF)
    assert runner.job.folder.endswith("good-0")
    assert len(bench.node.cleaner.uncleanable) == 1


def test_after_a_failure_it_rests_and_tries_again(bench, runner):
    bench.create("t", **SMALL)
    closed_segment(bench, "t", (b"a", b"1"))
    bench.advance(BACKOFF)
    runner.reports.failed("no space", damaged=False)
    runner.job = None
    bench.advance(BACKOFF - 1000)
    assert runner.job is None
    bench.advance(1000)
    assert runner.job is not None


def test_a_process_that_cannot_be_started_is_a_failure(bench, runner):
    def start(job, bytes_per_second, reports):
        raise OSError(11, "no more processes")

    runner.start = start
    bench.create("t", **SMALL)
    closed_segment(bench, "t", (b"a", b"1"))
    bench.advance(BACKOFF)
    assert bench.node.cleaner.failures == 1
    del runner.start
    bench.advance(BACKOFF)
    assert runner.job is not None


def test_a_topic_that_is_deleted_meanwhile(bench, runner):
    bench.create("t", **SMALL)
    closed_segment(bench, "t", (b"a", b"1"), (b"a", b"2"))
    bench.advance(BACKOFF)
    groups = []
    clean(RealDisk(), runner.job, lambda length: None, groups.append)
    bench.delete("t")
    runner.reports.cleaned(groups[0])
    assert runner.stops == 1
    assert bench.node.cleaner.failures == 1


def test_retention_waits_for_the_round(bench, runner):
    bench.create("t", **{**SMALL, "cleanup_policy": "compact,delete"}, retention_ms=60_000)
    closed_segment(bench, "t", (b"a", b"1"), (b"a", b"2"))
    bench.advance(BACKOFF)
    assert runner.job is not None
    bench.advance(300_000)
    assert log_of(bench, "t").segments.bases[0] == 0
    runner.run()  # and is not put off again, or rounds that follow one another would starve it
    assert log_of(bench, "t").segments.bases[0] > 0


def test_the_settings_of_the_moment_count(bench, runner):
    bench.create("t", **SMALL)
    closed_segment(bench, "t", (b"a", b"1"))
    bench.alter(
        BROKER,
        "1",
        log_cleaner_io_max_bytes_per_second=1000,
        log_cleaner_dedupe_buffer_size=2 << 20,
        log_cleaner_backoff_ms=100,
    )
    bench.advance(BACKOFF)
    assert runner.bytes_per_second == 1000
    assert runner.job.memory == 2 << 20
    runner.run()
    closed_segment(bench, "t", (b"a", b"2"))
    bench.advance(1000)
    assert runner.job is not None, "it does not rest for longer than it is told"


def test_it_can_be_switched_off(tmp_path):
    bench = Bench(tmp_path / "data", compaction=InThisProcess(), log_cleaner_enable="false")
    assert bench.node.cleaner is None


def test_the_end_of_the_node_ends_the_round(bench, runner):
    bench.create("t", **SMALL)
    closed_segment(bench, "t", (b"a", b"1"))
    bench.advance(BACKOFF)
    bench.stop()
    assert runner.stops == 1


def test_committed_offsets_are_compacted_and_found_again(tmp_path, runner):
    bench = GroupBench(tmp_path / "data", compaction=runner, offsets_topic_num_partitions="1")
    bench.create("t")
    bench.find("readers")  # makes the topic of offsets
    for offset in range(50):
        bench.commit("readers", "t", offset)
        bench.commit(f"others-{offset % 3}", "t", offset)
    log = log_of(bench, "__consumer_offsets")
    log.roll(wall_ms=bench.now.wall_ms)
    size = log.size_bytes
    bench.advance(BACKOFF)
    runner.run()
    assert log.size_bytes < size / 5
    assert log.end_offset >= 100
    bench.commit("readers", "t", 50)
    bench.stop()
    again = GroupBench(tmp_path / "data", offsets_topic_num_partitions="1")
    assert again.committed("readers", "t") == 50
    assert [again.committed(f"others-{n}", "t") for n in range(3)] == [48, 49, 47]


def test_a_topic_that_was_made_again_is_dirty_from_its_beginning(bench, runner, tmp_path):
    bench.create("t", **SMALL)
    closed_segment(bench, "t", (b"a", b"1"), (b"a", b"2"))
    bench.advance(BACKOFF)
    runner.run()
    bench.delete("t")
    bench.create("t", **SMALL)  # before the cleaner looks again
    closed_segment(bench, "t", *[(b"b", b"%d" % number) for number in range(5)])
    bench.advance(BACKOFF)
    assert runner.job.first_dirty == 0
    runner.run()
    assert [record[:2] for record in records(bench, "t")] == [(4, b"b"), (5, b"z")]
    bench.delete("t")
    bench.advance(BACKOFF)
    assert (bench.folder / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


def test_a_damaged_log_that_is_deleted_is_not_counted_any_more(bench, runner):
    bench.create("bad", **SMALL)
    closed_segment(bench, "bad", (b"a", b"1"))
    bench.advance(BACKOFF)
    runner.reports.failed("the batch at 0 is damaged", damaged=True)
    runner.job = None
    assert len(bench.node.cleaner.uncleanable) == 1
    bench.delete("bad")
    bench.advance(BACKOFF)
    assert bench.node.cleaner.uncleanable == set()


def test_a_log_that_cannot_be_compacted_now_does_not_keep_others_from_it(bench, runner):
    for topic in ("unreadable", "good"):
        bench.create(topic, **SMALL)
        closed_segment(bench, topic, (b"a", b"1"))
    bench.advance(BACKOFF)
    assert runner.job.folder.endswith("unreadable-0")
    runner.reports.failed("input/output error", damaged=False)
    runner.job = None
    bench.advance(BACKOFF)
    assert runner.job.folder.endswith("good-0")
    runner.run()
    assert runner.job.folder.endswith("unreadable-0"), "it is tried again"


def test_a_log_without_room_for_a_new_index_does_not_keep_others_from_it(
    bench, runner, tmp_path, monkeypatch
):
    for topic in ("wanting", "whole"):
        bench.create(topic, **SMALL, min_compaction_lag_ms=1)
        closed_segment(bench, topic, (b"a", b"1"), (b"a", b"2"))
    bench.stop()
    index = tmp_path / "data" / "wanting-0" / f"{0:020d}.timeindex"
    index.write_bytes(index.read_bytes() + bytes(120))
    again = Bench(tmp_path / "data", compaction=runner)
    again.now.monotonic_ms, again.now.wall_ms = bench.now.monotonic_ms, bench.now.wall_ms
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
    bench = Bench(tmp_path / "data", compaction=runner, log_cleaner_backoff_ms="1000")
    bench.create("t", **SMALL)
    bench.advance(1000)  # nothing is due yet: it rests for a second
    put(bench, "t", (b"a", b"1"))
    log_of(bench, "t").roll(wall_ms=bench.now.wall_ms)
    bench.now.monotonic_ms += 998
    bench.node.cleaner.tick()
    assert runner.job is not None


def test_the_metrics_tell_of_rounds_and_of_logs_that_are_left_alone(bench, runner):
    for topic in ("good", "bad"):
        bench.create(topic, **SMALL)
        closed_segment(bench, topic, (b"a", b"1"), (b"a", b"2"))
    bench.advance(BACKOFF)
    runner.run()
    runner.reports.failed("the batch at 0 is damaged", damaged=True)
    cleaner = bench.node.cleaner
    told = dict(
        line.split() for line in render(cleaner_families(cleaner)).splitlines() if line[0] != "#"
    )
    told = {name.removeprefix("headrace_log_cleaner_"): float(n) for name, n in told.items()}
    assert (told["rounds_total"], told["failures_total"]) == (1, 1)
    assert told["uncleanable_partitions"] == 1
    assert 0 < told["written_bytes_total"] < told["read_bytes_total"]
    assert told["max_dirty_ratio"] == 1
    assert list(cleaner_families(None)) == [], "nothing is compacted here"


def test_a_batch_whose_records_cannot_be_read_is_said_and_counted(bench, runner, caplog):
    """Its producer wrote a byte too many, and a version before took it."""
    bench.create("t", **SMALL)
    put(bench, "t", (b"a", b"1"))
    batch = bytearray(build([Record(b"b", b"1")], base_offset=1, leader_epoch=0) + b"!")
    batch[LENGTH_AT:LENGTH_OVERHEAD] = (len(batch) - LENGTH_OVERHEAD).to_bytes(4, "big")
    seal(batch)
    log_of(bench, "t").writer.append_as_is(memoryview(batch), wall_ms=bench.now.wall_ms)
    closed_segment(bench, "t", (b"a", b"2"))
    bench.advance(BACKOFF)
    runner.run()
    assert "t-0: compaction kept 1 batches whole, the first at offset 1" in caplog.text
    cleaner = bench.node.cleaner
    assert (cleaner.rounds, cleaner.failures, cleaner.uncleanable) == (1, 0, set())
    assert "headrace_log_cleaner_unreadable_batches_total 1" in render(cleaner_families(cleaner))
