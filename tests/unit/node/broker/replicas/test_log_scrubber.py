"""The scrub on the loop: which closed segments are read, when, and what becomes of damage."""

import logging

import pytest

from headrace.node.broker.replicas.log_scrubber import CHECKPOINT, FIRST_LOOK_MS
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.process.metrics.metrics import scrub_families
from headrace.node.storage.recovery.scrub import damage_in
from headrace.prometheus_text import render
from headrace.wire.protocol.errors import ErrorCode
from tests.unit.node.broker.replicas.test_damaged_replicas import VALUES, a_cluster_with_segments
from tests.unit.node.broker.rig import Rig

SMALL = {"segment_ms": 1_000, "retention_ms": -1}
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


class InThisProcess:
    """A runner whose work is done when the story says so."""

    def __init__(self):
        self.job = None
        self.read = []  # names of segments, of all jobs

    def start(self, job, bytes_per_second, reports):
        assert self.job is None
        self.job, self.reports, self.bytes_per_second = job, reports, bytes_per_second

    def stop(self):
        self.job = None

    def run(self, most=1_000):
        """All of the job, or the first few of its segments."""
        for number, segment in enumerate(self.job[:most]):
            self.read.append("/".join(segment.path.split("/")[-2:]).removesuffix(".log"))
            try:
                self.reports.read(number, damage_in(segment, RealDisk().open))
            except FileNotFoundError:
                self.reports.skipped(number, "")
        is_whole = most >= len(self.job)
        self.job = None
        if is_whole:
            self.reports.finished()


@pytest.fixture
def runner():
    return InThisProcess()


@pytest.fixture
def rig(tmp_path, runner):
    rig = Rig(tmp_path / "data", scrub=runner)
    rig.create("orders", **SMALL)
    fill(rig, "orders")
    return rig


def fill(rig, topic, segments=3):
    """Records in segments of their own, all but the last closed and flushed."""
    for number in range(segments):
        assert rig.produce(topic, str(number)).error_code == 0
        rig.advance(2_000)


def flip_a_bit(rig, name, at=-1):
    path = rig.folder / f"{name}.log"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def fetched(rig, topic, offset):
    return rig.fetch(topic, offset)


ZERO, ONE = "orders-0/00000000000000000000", "orders-0/00000000000000000001"


def test_all_closed_segments_are_read_once_a_week_at_the_pace_that_was_set(rig, runner):
    rig.create("audit", **SMALL)
    fill(rig, "audit")
    rig.advance(FIRST_LOOK_MS)
    assert runner.bytes_per_second == 10 * 1024**2
    runner.run()
    one_pass = ["audit-0/" + ZERO[-20:], "audit-0/" + ONE[-20:], ZERO, ONE]
    assert runner.read == one_pass, "the active segments are left out"
    rig.advance(6 * DAY_MS)
    assert runner.job is None
    rig.advance(DAY_MS)
    runner.run()
    assert runner.read == one_pass * 2


def test_damage_in_a_closed_segment_is_said_refused_and_remembered(rig, runner, caplog):
    flip_a_bit(rig, ONE)
    assert fetched(rig, "orders", 1).error_code == 0, "nobody has noticed yet"
    rig.advance(FIRST_LOOK_MS)
    with caplog.at_level(logging.ERROR):
        runner.run()
    assert f"{ONE}.log: offsets 1 to 1 are damaged" in caplog.text
    assert fetched(rig, "orders", 1).error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetched(rig, "orders", 0).error_code == fetched(rig, "orders", 2).error_code == 0
    text = render(scrub_families(rig.node.scrubber))
    assert "headrace_scrub_damaged_ranges_total 1" in text
    assert "headrace_scrub_segments_total 2" in text
    rig.until_idle()  # the other thread writes it down
    killed = Rig(rig.folder)
    assert fetched(killed, "orders", 1).error_code == ErrorCode.CORRUPT_MESSAGE


def test_damage_that_is_known_is_no_news_in_the_next_pass(rig, runner, caplog):
    flip_a_bit(rig, ONE)
    rig.advance(FIRST_LOOK_MS)
    runner.run()
    rig.advance(WEEK_MS)
    caplog.clear()
    runner.run()
    assert rig.node.scrubber.damaged_ranges == 1 and not caplog.text


def test_a_node_that_is_started_again_goes_on_where_it_was(rig, runner):
    rig.advance(FIRST_LOOK_MS)
    runner.run(most=1)
    runner.reports.failed("its process ended early")
    assert rig.node.scrubber.failures == 1
    rig.advance(FIRST_LOOK_MS)
    assert [segment.base_offset for segment in runner.job] == [1]
    runner.run()
    rig.until_idle()
    again = InThisProcess()
    rig.stop()
    restarted = Rig(rig.folder, scrub=again, now=rig.now)
    restarted.advance(FIRST_LOOK_MS)
    assert again.job is None, "the week is not over"
    restarted.advance(WEEK_MS)
    assert len(again.job) == 2


@pytest.mark.parametrize("text", [b"", b"1 7", b"0 x", b"0 5 orders", b"0 5 orders 0 x", b"\xff"])
def test_a_damaged_checkpoint_costs_a_pass_and_nothing_else(rig, runner, text):
    rig.stop()
    (rig.folder / CHECKPOINT).write_bytes(text)
    restarted = Rig(rig.folder, scrub=runner, now=rig.now)
    restarted.advance(FIRST_LOOK_MS)
    assert len(runner.job) >= 2


def test_a_pass_that_was_interrupted_goes_on_after_a_start(rig, runner):
    began = rig.now.wall_ms
    rig.stop()
    (rig.folder / CHECKPOINT).write_bytes(b"0 %d orders 0 1\n" % began)
    restarted = Rig(rig.folder, scrub=runner, now=rig.now)
    restarted.advance(FIRST_LOOK_MS)
    assert runner.job[0].base_offset == 1


def test_a_segment_that_changed_while_it_was_read_is_left_alone(rig, runner):
    """As compaction and followers change them; what was found is of bytes that are gone."""
    rig.advance(FIRST_LOOK_MS)
    job, reports = runner.job, runner.reports
    flip_a_bit(rig, ONE)
    found = damage_in(job[1], RealDisk().open)
    log = rig.node.broker.topics.by_name["orders"].replicas[0].log
    log.truncate(1, wall_ms=rig.now.wall_ms)
    reports.read(1, found)
    assert not log.segments.damage()
    with pytest.raises(FileNotFoundError):
        damage_in(job[1], RealDisk().open)


def test_a_topic_that_is_deleted_meanwhile_harms_nobody(rig, runner, caplog):
    rig.advance(FIRST_LOOK_MS)
    job, reports = runner.job, runner.reports
    flip_a_bit(rig, ONE)
    found = damage_in(job[1], RealDisk().open)
    rig.delete("orders")
    rig.advance(120_000)
    reports.read(1, found)
    reports.finished()
    rig.until_idle()
    assert "failed" not in caplog.text


def test_an_unreadable_sector_is_said_and_the_pass_goes_on(rig, runner, caplog):
    rig.advance(FIRST_LOOK_MS)
    with caplog.at_level(logging.ERROR):
        runner.reports.skipped(0, "/data/orders-0/0.log: Input/output error")
    assert "Input/output error" in caplog.text and rig.node.scrubber.failures == 1
    runner.run()
    assert rig.node.scrubber.passes == 1


def test_a_file_that_somebody_deleted_is_damage(rig, runner, caplog):
    (rig.folder / f"{ONE}.log").unlink()
    rig.advance(FIRST_LOOK_MS)
    runner.run()
    assert "offsets 1 to 1 are damaged" in caplog.text and "the file is missing" in caplog.text
    assert fetched(rig, "orders", 1).error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetched(rig, "orders", 2).error_code == 0


def test_a_flipped_base_offset_is_damage(rig, runner, caplog):
    flip_a_bit(rig, ONE, at=7)
    rig.advance(FIRST_LOOK_MS)
    runner.run()
    assert "offsets 1 to 1 are damaged" in caplog.text


def test_it_can_be_switched_off(tmp_path, runner):
    rig = Rig(tmp_path / "data", scrub=runner, headrace_scrub_interval_ms=-1)
    rig.create("orders", **SMALL)
    fill(rig, "orders")
    rig.advance(WEEK_MS)
    assert runner.job is None


def test_what_is_not_flushed_yet_is_not_read(tmp_path, runner):
    rig = Rig(tmp_path / "data", scrub=runner)
    rig.create("orders", **SMALL)
    rig.flushes_wait = True
    fill(rig, "orders")
    rig.advance(FIRST_LOOK_MS)
    assert runner.job is None


def test_a_damaged_follower_gets_the_records_again(tmp_path):
    cluster = a_cluster_with_segments(tmp_path, min_insync_replicas=2)
    follower = cluster.followers()[0]
    runner = InThisProcess()
    follower.node.scrubber = follower.node._open_scrubber(runner)
    segment = follower.replica().log.segments.items[1]
    path = follower.folder / "orders-0" / f"{segment.base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    cluster.run_until(lambda: runner.job is not None, within_ms=FIRST_LOOK_MS + 10_000)
    runner.run()
    assert follower.replica().log.segments.damage()
    cluster.run_until(lambda: not follower.replica().log.segments.damage())
    cluster.run_until(lambda: follower.id in cluster.partition().isr)
    assert follower.values() == cluster.leader().values() == VALUES
