"""A segment is missing: the log says so, readers are refused, and a follower can fetch it again."""

import pytest

from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage.durability.flush import write_and_flush_again
from headrace.node.storage.recovery.damage import DAMAGED_RANGES
from tests.unit.node.storage.a_compacted_log import ACompactedLog
from tests.unit.node.storage.a_log import NOW, ALog, batch
from tests.unit.node.storage.test_damage import filled, read_all


def remove_segment(log, base):
    """Somebody deletes the files of a segment while the node is down."""
    for suffix in ("log", "index", "timeindex"):
        RealDisk().remove(f"{log.folder}/{base:020d}.{suffix}")


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_segment_is_damage(tmp_path, caplog, clean):
    """Seen: 1,870 of 3,000 records were read without an error."""
    log = filled(tmp_path, count=40)
    bases = list(log.log.segments.bases)
    log.restart()
    log.log.close().run(log.open_files.disk)
    remove_segment(log, bases[2])
    log.open(clean=clean, recovery_point=40)
    missing = list(range(bases[2], bases[3]))
    assert read_all(log) == ([n for n in range(40) if n not in missing], missing)
    assert f"offsets {bases[2]} to {bases[3] - 1} are damaged" in caplog.text
    assert "a segment is missing" in caplog.text
    assert log.open_files.findings.damaged_ranges == 1
    assert log.log.segments.first_damage(0) == bases[2]


def test_neighbours_of_a_missing_segment_may_be_missing_too(tmp_path):
    log = filled(tmp_path, count=40)
    bases = list(log.log.segments.bases)
    log.log.let_go()
    for base in (bases[1], bases[2], bases[4]):
        remove_segment(log, base)
    log.open(clean=False, recovery_point=40)
    missing = [*range(bases[1], bases[3]), *range(bases[4], bases[5])]
    assert read_all(log) == ([n for n in range(40) if n not in missing], missing)


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_beginning_is_damage_and_not_a_later_start(tmp_path, caplog, clean):
    """A leader that begins later makes its followers delete what they have before that."""
    log = filled(tmp_path, count=40)
    first, second = log.log.segments.bases[:2]
    log.log.close().run(log.open_files.disk)
    remove_segment(log, first)
    log.open(clean=clean, recovery_point=40)
    assert log.log.start_offset == 0
    assert read_all(log) == (list(range(second, 40)), list(range(second)))
    assert f"offsets 0 to {second - 1} are damaged" in caplog.text
    log.kill(recovery_point=40)
    assert read_all(log) == (list(range(second, 40)), list(range(second)))


def test_a_beginning_that_retention_removed_is_no_hole(tmp_path, caplog):
    log = filled(tmp_path, count=40, retention_bytes=3000)
    removed = log.log.apply_retention(NOW)
    start = log.log.start_offset
    assert removed and start > 0
    log.kill(recovery_point=40)
    for path in removed:
        RealDisk().remove(path)
    log.kill(recovery_point=40)
    assert log.log.start_offset == start and read_all(log) == (list(range(start, 40)), [])
    assert "damaged" not in caplog.text


def test_a_power_cut_may_bring_the_old_epochs_back_behind_a_retention(tmp_path, caplog):
    """The renamed files say that they were deleted on purpose."""
    log = filled(tmp_path, count=40, retention_bytes=3000)
    path = log.log.epochs.path
    before = RealDisk().read_file(path)
    assert log.log.apply_retention(NOW)
    start = log.log.start_offset
    RealDisk().write_file(path, [before], flush=False)
    log.kill(recovery_point=40)
    assert log.log.start_offset == start and read_all(log) == (list(range(start, 40)), [])
    assert "damaged" not in caplog.text


def test_a_missing_end_is_said_after_a_clean_stop(tmp_path, caplog):
    log = filled(tmp_path, count=40)
    last = log.log.segments.bases[-1]
    log.log.close().run(log.open_files.disk)
    remove_segment(log, last)
    log.open(clean=True, recovery_point=40)
    assert log.log.end_offset == last
    assert f"flushed up to 40, but it ends at {last}" in caplog.text
    assert log.log.cut is not None and log.log.cut.first_offset == last


def test_readers_pass_a_hole_if_the_topic_says_so(tmp_path):
    log = filled(tmp_path, count=40)
    bases = list(log.log.segments.bases)
    log.log.let_go()
    remove_segment(log, bases[2])
    log.settings.skip_damaged = True
    log.open(clean=False, recovery_point=40)
    assert read_all(log)[1] == []


@pytest.mark.parametrize("number", [0, 2])
def test_a_follower_can_fetch_again_from_a_hole(tmp_path, number):
    log = filled(tmp_path, count=40)
    base = log.log.segments.bases[number]
    log.log.let_go()
    remove_segment(log, base)
    log.open(clean=False, recovery_point=40)
    for path in log.log.truncate(log.log.segments.first_damage(0), wall_ms=NOW):
        RealDisk().remove(path)
    assert log.log.end_offset == base and not log.log.segments.damage()
    for _ in range(base, 40):
        log.append_values(b"again")
    log.kill(recovery_point=40)
    assert read_all(log) == (list(range(40)), [])


# ---- gaps that compaction leaves


def compacted(tmp_path):
    """Segments that end before the next one begins: their last batches had old values."""
    log = ACompactedLog(tmp_path, segment_bytes=400)
    for number in range(30):
        log.put((b"%d" % (number % 3), b"%02d" % number * 20))
    log.roll()
    log.put((b"last", b"last"))
    log.compact()
    assert log.log.segments.gaps.noted
    return log


def test_a_gap_that_compaction_left_is_no_hole(tmp_path, caplog):
    log = compacted(tmp_path)
    before = log.values()
    log.kill(recovery_point=log.log.end_offset)
    assert log.values() == before
    assert not log.log.segments.damage() and not caplog.text


def test_a_missing_segment_of_a_compacted_log_is_damage(tmp_path):
    log = compacted(tmp_path)
    for number in range(30):
        log.put((b"%d" % (number % 3), b"%02d" % number * 20))
    bases = list(log.log.segments.bases)
    log.end_turn()
    log.log.let_go()
    remove_segment(log, bases[-3])
    log.open(clean=False, recovery_point=log.log.end_offset)
    (damage,) = log.log.segments.damage()
    assert (damage.first_offset, damage.next_offset) == (bases[-3], bases[-2])


def test_a_log_that_an_older_version_compacted_keeps_its_gaps(tmp_path, caplog):
    log = compacted(tmp_path)
    before = log.values()
    RealDisk().remove(log.log.segments.gaps.path)
    log.kill(recovery_point=log.log.end_offset)
    assert log.values() == before and not log.log.segments.damage()
    assert "gaps between its segments count as such" in caplog.text
    caplog.clear()
    log.kill(recovery_point=log.log.end_offset)
    assert log.values() == before and not caplog.text


def test_a_topic_that_was_compacted_once_keeps_its_gaps(tmp_path):
    log = compacted(tmp_path)
    before = log.values()
    log.settings.needs_keys = False
    log.kill(recovery_point=log.log.end_offset)
    assert log.values() == before and not log.log.segments.damage()


def test_a_follower_of_a_compacted_log_has_gaps_inside_its_segments_only(tmp_path):
    log = ALog(tmp_path, segment_bytes=300)
    for base in range(0, 100, 10):
        data = bytearray(batch(b"x" * 60, base_offset=base, leader_epoch=0))
        log.log.writer.append_as_is(memoryview(data), wall_ms=NOW)
    assert len(log.log.segments) > 2
    log.kill(recovery_point=log.log.end_offset)
    assert not log.log.segments.damage()
    assert [offset for offset, _ in log.values()] == list(range(0, 100, 10))


# ---- the list of damaged ranges


def test_damage_that_was_repaired_leaves_the_list(tmp_path):
    """Seen: each later unclean start cut the log below the high watermark and fetched again."""
    log = filled(tmp_path, count=40)
    segment = log.log.segments.items[1]
    whole = log.file(segment.base_offset, "log")
    path = f"{log.folder}/{segment.base_offset:020d}.log"
    RealDisk().write_file(path, [whole[:80] + b"\xff" + whole[81:]], flush=False)
    log.kill(recovery_point=None)
    first = log.log.segments.first_damage(0)
    assert first is not None
    listed = RealDisk().read_file(f"{log.folder}/{DAMAGED_RANGES}")
    log.log.truncate(first, wall_ms=NOW)
    assert not RealDisk().exists(f"{log.folder}/{DAMAGED_RANGES}")
    for _ in range(first, 40):
        log.append_values(b"%03d" % 1 * 40)
    RealDisk().write_file(f"{log.folder}/{DAMAGED_RANGES}", [listed], flush=False)
    log.kill(recovery_point=40)
    assert log.log.segments.first_damage(0) is None, "the bytes are good: the list is wrong"
    assert read_all(log) == (list(range(40)), [])


def test_damage_that_is_still_there_stays_in_the_list(tmp_path):
    log = filled(tmp_path, count=40)
    segment = log.log.segments.items[1]
    whole = log.file(segment.base_offset, "log")
    path = f"{log.folder}/{segment.base_offset:020d}.log"
    RealDisk().write_file(path, [whole[:80] + b"\xff" + whole[81:]], flush=False)
    log.kill(recovery_point=None)
    first = log.log.segments.first_damage(0)
    log.kill(recovery_point=40)
    assert log.log.segments.first_damage(0) == first is not None
    log.log.segments.confirm_damage()
    assert log.log.segments.first_damage(0) == first
    RealDisk().write_file(path, [whole], flush=False)
    log.log.segments.items[1].let_go()
    log.log.segments.confirm_damage()
    assert log.log.segments.first_damage(0) is None


def test_a_log_whose_recovery_point_is_in_a_hole_is_flushed_again(tmp_path):
    """Found by the simulator: with headrace.durability=disk the start of the node failed."""
    log = ALog(tmp_path, segment_bytes=200)
    for number in range(6):
        log.append_values(b"%d" % number * 50)
    log.end_turn()
    log.log.let_go()
    RealDisk().remove(f"{log.folder}/{0:020d}.log")
    log.open(clean=False, recovery_point=0)
    assert log.log.segments.damage()
    write_and_flush_again(log.log, RealDisk())
    assert log.log.recovery_point == log.log.end_offset
