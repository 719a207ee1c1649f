"""Flushes run elsewhere while the log goes on."""

import os
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from headrace.node.process.folders.real_disk import RealDisk, RealFile
from headrace.node.replication.replica import PartitionLeader
from tests.unit.node.storage.a_log import NOW, ALog


def names(flush):
    return [file.path.rpartition("/")[2] for file in flush.files]


def test_flush_messages_puts_the_log_on_the_list(tmp_path):
    log = ALog(tmp_path, flush_messages=3)
    log.wants_flush.clear()
    log.flush(everything=False)
    log.append_values(b"a", b"b")
    assert log.wants_flush == []
    log.append_values(b"c")
    log.append_values(b"d")
    assert log.wants_flush == [log.log]
    flush = log.log.flush_target()
    assert f"{0:020d}.log" in names(flush) and flush.offset == 4
    flush.run(RealDisk())
    log.log.flushed(flush)
    assert log.log.recovery_point == 4


def test_a_roll_asks_for_a_flush_of_the_closed_segment_only(tmp_path):
    log = ALog(tmp_path)
    log.flush()
    log.wants_flush.clear()
    log.append_values(b"a")
    log.log.roll(wall_ms=NOW)
    log.append_values(b"b")
    assert log.wants_flush == [log.log]
    flush = log.log.flush_target()
    assert names(flush) == [
        f"{0:020d}.log",
        f"{0:020d}.index",
        f"{0:020d}.timeindex",
        f"{1:020d}.snapshot",
        "leader-epoch-checkpoint",
    ]
    assert flush.offset == 1 and flush.folders == [log.folder, str(tmp_path)]
    flush.run(RealDisk())
    log.log.flushed(flush)
    assert log.log.recovery_point == 1
    assert log.log.flush_target() is None
    assert names(log.log.flush_target(everything=True)) == [f"{1:020d}.log"]


def test_after_a_kill_closed_segments_are_flushed_so_that_the_next_start_may_believe_them(tmp_path):
    log = ALog(tmp_path, segment_bytes=200)
    for _ in range(4):
        log.append_values(b"x" * 100)
    log.wants_flush.clear()
    log.kill(recovery_point=0)
    assert log.wants_flush == [log.log] and log.log.recovery_point == 0
    log.flush(everything=False)
    assert log.log.recovery_point == log.log.active.base_offset > 0


def test_what_waits_for_the_end_of_the_turn_is_written_before_it_is_flushed(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a")
    flush = log.log.flush_target(everything=True)
    assert flush.offset == 1 and len(log.file(0, "log")) > 0


def test_a_truncation_meanwhile_is_not_undone_by_the_flush(tmp_path):
    log = ALog(tmp_path)
    for _ in range(5):
        log.append_values(b"a")
    flush = log.log.flush_target(everything=True)
    log.log.truncate(2, wall_ms=NOW)
    log.append_values(b"b")
    log.append_values(b"b")
    log.append_values(b"b")
    flush.run(RealDisk())
    log.log.flushed(flush)
    assert log.log.recovery_point == 0


def test_a_flush_outlives_roll_delete_and_close(tmp_path):
    """The thread is in the middle of its first file when everything under it changes."""
    log = ALog(tmp_path, open_files_limit=3)
    log.append_values(b"a" * 3000)
    log.log.roll(wall_ms=NOW)
    log.append_values(b"b" * 3000)
    flush = log.log.flush_target(everything=True)
    entered, go_on, problems = Event(), Event(), []

    class Slow(RealFile):
        def flush(self):
            entered.set()
            go_on.wait(60)
            super().flush()

    slow = Slow(flush.files[0].path, os.open(flush.files[0].path, os.O_RDWR))
    flush.files[0] = slow

    def run():
        try:
            flush.run(RealDisk())
        except OSError as problem:
            problems.append(problem)

    thread = Thread(target=run)
    thread.start()
    assert entered.wait(60)
    log.log.roll(wall_ms=NOW)
    log.append_values(b"c")
    log.log.settings.retention_bytes = 0
    for path in log.log.apply_retention(NOW):
        RealDisk().remove(path)
    log.end_turn()
    log.log.let_go()
    RealDisk().remove_folder(log.folder)
    # Others may get the same descriptor numbers now.
    others = [RealDisk().open(f"{tmp_path}/{n}", create=True) for n in range(20)]
    go_on.set()
    thread.join(60)
    assert problems == [] and len(others) == 20


def open_below(folder: Path) -> list[str]:
    """Files that this process has open there; what threads of other tests open is elsewhere."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(str(folder))]


def test_descriptors_are_closed_when_nobody_needs_them(tmp_path):
    log = ALog(tmp_path, segment_bytes=1000)
    for _ in range(30):
        log.append_values(b"x" * 300)
    log.end_turn()
    assert open_below(tmp_path)
    log.flush()
    log.log.close()
    del log
    assert open_below(tmp_path) == []


def test_a_flush_that_began_before_the_log_was_cut_proves_nothing(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a")
    log.append_values(b"b")
    flush = log.log.flush_target(everything=True)
    log.log.truncate(1, wall_ms=NOW)
    flush.run(RealDisk())
    assert not log.log.flushed(flush)
    assert log.log.recovery_point == 0
    again = log.log.flush_target(everything=True)
    again.run(RealDisk())
    assert log.log.flushed(again)
    assert log.log.recovery_point == 1


def test_readers_see_what_a_flush_of_the_log_itself_took_along(tmp_path):
    """`flush.messages` had asked for it; nothing is left for the leader's own flush."""
    log = ALog(tmp_path)
    seen = []
    leader = PartitionLeader(
        "orders", bytes(16), 0, log.log, 0, commits_at_once=False, on_progress=seen.append
    )
    log.append_values(b"a")
    flush = log.log.flush_target(everything=True)
    flush.run(RealDisk())
    log.log.flushed(flush)
    assert leader.high_watermark == 0
    assert leader.flush_target() is None
    assert leader.high_watermark == 1 and seen == [leader]
