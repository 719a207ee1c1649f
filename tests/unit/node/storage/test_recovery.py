"""After a kill, a power cut or damage: what the log has, and what it reads to know it."""

import zlib
from collections.abc import Callable
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.node.process.folders.real_disk import RealDisk, RealFile
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.segments.segment import Segment
from headrace.node.storage.segments.segment_scan import UnsupportedLog
from headrace.wire.protocol.record_batch import headers_in
from tests.effort import examples
from tests.unit.node.storage.a_log import NOW, ALog, WatchedDisk, batch, records_of


def damage(log, base, suffix, change):
    """Let `change` have the contents of a file while the log is closed."""
    path = f"{log.folder}/{base:020d}.{suffix}"
    data = bytearray(RealDisk().read_file(path))
    RealDisk().write_file(path, [bytes(change(data))], flush=False)


def flipped(at):
    def change(data):
        data[at] ^= 0x10
        return data

    return change


def index_entries_are_right(log):
    """Every entry points to the batch it names."""
    log.log.close()
    for base in log.log.segments.bases:
        batches = {h.last_offset: at for at, h in headers_in(log.file(base, "log"))}
        data = log.file(base, "index")
        for at in range(0, len(data), 8):
            relative = int.from_bytes(data[at : at + 4], "big")
            assert batches[base + relative] == int.from_bytes(data[at + 4 : at + 8], "big")
    log.open(clean=True)


def test_a_torn_batch_is_cut(tmp_path):
    log = ALog(tmp_path)
    for number in range(3):
        log.append_values(b"%d" % number)
    log.end_turn()
    log.log.let_go()
    damage(log, 0, "log", lambda data: data[:-1])
    log.open(clean=False)
    assert log.values() == [(0, b"0"), (1, b"1")]
    assert log.append_values(b"again") == 2
    assert log.values()[-1] == (2, b"again")


@settings(max_examples=examples(60), deadline=None)
@given(at=st.integers(0, 8999))
def test_cut_at_any_byte(tmp_path_factory, at):
    log = ALog(tmp_path_factory.mktemp("log"), index_interval_bytes=500)
    sizes = [50, 700, 90, 2100, 10, 3000, 400, 1500, 30]
    ends = [0]
    for size in sizes:
        log.append_values(b"x" * size)
        ends.append(log.log.active.size)
    log.end_turn()
    log.log.let_go()
    damage(log, 0, "log", lambda data: data[:at])
    log.open(clean=False)
    whole = max(n for n, end in enumerate(ends) if end <= at)
    assert log.log.end_offset == whole
    assert [len(value) for _, value in log.values()] == sizes[:whole]
    assert log.log.active.size == ends[whole] == len(log.file(0, "log"))
    assert log.append_values(b"again") == whole
    index_entries_are_right(log)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_flipped_byte_ends_the_log_before_it(tmp_path_factory, data):
    log = ALog(tmp_path_factory.mktemp("log"), index_interval_bytes=500)
    ends = [0]
    for size in [50, 700, 90, 2100, 10]:
        log.append_values(b"x" * size)
        ends.append(log.log.active.size)
    log.end_turn()
    log.log.let_go()
    at = data.draw(st.integers(0, ends[-1] - 1))
    damage(log, 0, "log", flipped(at))
    log.open(clean=False)
    whole = max(n for n, end in enumerate(ends) if end <= at)
    epoch_only = any(12 <= at - end < 16 for end in ends)
    if epoch_only or log.log.end_offset > whole:
        # Offset and epoch are not under the checksum; an offset may only grow (a gap).
        assert any(0 <= at - end < 16 for end in ends)
    else:
        assert log.log.end_offset == whole
    for record in records_of(log.file(0, "log")):
        assert set(record.value) <= {ord("x")}


def test_damage_in_the_middle_removes_later_segments(tmp_path):
    log = ALog(tmp_path, segment_bytes=1000)
    for number in range(12):
        log.append_values(b"%d" % number * 200)
    log.end_turn()
    bases = log.log.segments.bases
    assert len(bases) > 4
    log.log.let_go()
    damage(log, bases[2], "log", flipped(-1))
    log.open(clean=False)
    assert log.log.segments.bases == bases[:3]
    assert bases[2] <= log.log.end_offset < bases[3]
    left = {name for name in RealDisk().list(log.folder) if name[0] == "0"}
    assert not any(name.startswith(f"{base:020d}") for base in bases[3:] for name in left)
    assert log.append_values(b"on") == log.log.end_offset - 1


def test_zeros_at_the_end_are_cut(tmp_path):
    """What a power cut can leave of a file whose size was written before its data."""
    log = ALog(tmp_path)
    log.append_values(b"a")
    log.end_turn()
    log.log.let_go()
    damage(log, 0, "log", lambda data: data + bytes(5000))
    log.open(clean=False)
    assert log.values() == [(0, b"a")]


def test_a_batch_that_steps_back_in_offsets_ends_the_log(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a", b"b")
    log.end_turn()
    log.log.let_go()
    damage(log, 0, "log", lambda data: data + batch(b"old", base_offset=1))
    log.open(clean=False)
    assert log.values() == [(0, b"a"), (1, b"b")]
    assert [record.offset for record in records_of(log.file(0, "log"))] == [0, 1]


def test_a_large_batch_is_checked_without_reading_it_at_once(tmp_path):
    log = ALog(tmp_path, max_message_bytes=10 << 20)
    log.append_values(b"x" * (3 << 20))
    log.append_values(b"y")
    assert log.kill().end_offset == 2
    log.log.let_go()
    damage(log, 0, "log", flipped(2 << 20))
    assert log.open(clean=False).end_offset == 0


def test_only_segments_from_the_recovery_point_on_are_read(tmp_path):
    log = ALog(tmp_path, disk := WatchedDisk(), segment_bytes=1000)
    for number in range(20):
        log.append_values(b"%d" % number * 200)
    log.end_turn()
    log.flush(everything=False)
    recovery_point = log.log.recovery_point
    assert recovery_point == log.log.active.base_offset
    log.log.let_go()
    # Damage before the recovery point is not looked for.
    damage(log, 0, "log", flipped(100))
    disk.opened.clear()
    log.open(clean=False, recovery_point=recovery_point)
    active = f"{recovery_point:020d}"
    assert disk.read_whole() == {active}
    assert log.log.end_offset == 20


def test_a_clean_start_reads_only_the_ends_of_closed_segments(tmp_path):
    log = ALog(tmp_path, disk := WatchedDisk(), segment_bytes=1000)
    for number in range(20):
        log.append_values(b"%d" % number * 200)
    log.log.close()
    last = f"{log.log.active.base_offset:020d}"
    disk.opened.clear()
    assert log.open(clean=True).end_offset == 20
    assert disk.read_whole() == {last}


def test_a_missing_index_is_made_anew(tmp_path):
    log = ALog(tmp_path, segment_bytes=20_000)
    for number in range(30):
        log.append_values(b"%d" % number * 1000)
    log.log.close()
    before = [log.file(0, "index"), log.file(0, "timeindex")]
    for suffix in ("index", "timeindex"):
        RealDisk().remove(f"{log.folder}/{0:020d}.{suffix}")
    log.open(clean=True)
    assert [log.file(0, "index"), log.file(0, "timeindex")] == before
    assert len(log.values()) == 30


@pytest.mark.parametrize("zeros", [(8000, 0), (0, 12_000), (8000, 12_000)])
def test_an_index_whose_cut_did_not_reach_the_disk_is_made_anew(tmp_path, zeros):
    log = ALog(tmp_path, segment_bytes=20_000)
    for number in range(30):
        log.append_values(b"%d" % number * 1000)
    log.log.close()
    before = [log.file(0, "index"), log.file(0, "timeindex")]
    damage(log, 0, "index", lambda data: data + bytes(zeros[0]))
    damage(log, 0, "timeindex", lambda data: data + bytes(zeros[1]))
    log.open(clean=True)
    assert len(log.values()) == 30
    assert [log.file(0, "index"), log.file(0, "timeindex")] == before


class Watched(RealFile):
    __slots__ = ("look",)
    look: Callable[[], None]

    def write_at(self, data, position):
        super().write_at(data, position)
        self.look()

    def resize(self, size):
        super().resize(size)
        self.look()


class WatchedWrites(RealDisk):
    """Calls `look` after each change of a file."""

    def __init__(self, look):
        self.look = look

    def open(self, path, *, create=False):
        plain = super().open(path, create=create)
        file = Watched(path, plain._fd)
        plain._fd = -1
        file.look = self.look
        return file

    def rename(self, old, new):
        super().rename(old, new)
        self.look()


def test_an_index_that_is_made_anew_is_seen_whole_or_not_at_all(tmp_path):
    """The node may be killed at any moment, and another process may look at the file meanwhile."""
    log = ALog(tmp_path, segment_bytes=20_000)
    for number in range(30):
        log.append_values(b"%d" % number * 500, timestamp=NOW + number)
    log.log.close()
    suffixes = ("index", "timeindex")
    whole = [log.file(0, suffix) for suffix in suffixes]
    damaged = [data + bytes(120) for data in whole]
    for suffix, data in zip(suffixes, damaged, strict=True):
        damage(log, 0, suffix, lambda _, data=data: data)
    seen = []

    def look():
        seen.append([log.file(0, suffix) for suffix in suffixes])

    open_files = OpenFiles(WatchedWrites(look))
    segment = Segment.load(open_files, log.folder, 0, log.settings, wall_ms=NOW)
    segment.load_indexes()
    assert len(seen) > 3 and seen[-1] == whole
    for found in seen:
        assert all(part in (old, new) for part, old, new in zip(found, damaged, whole, strict=True))
    assert not [name for name in RealDisk().list(log.folder) if name.endswith(".tmp")]


def test_indexes_after_a_kill_are_those_of_a_clean_shutdown(tmp_path):
    log = ALog(tmp_path, segment_bytes=30_000)
    for number in range(50):
        log.append_values(b"x" * (number * 37 % 2500), timestamp=NOW + number * 7 % 20)
    log.kill()
    log.log.close()
    killed = [log.file(base, s) for base in log.log.segments.bases for s in ("index", "timeindex")]
    other = ALog(tmp_path / "other", segment_bytes=30_000)
    for number in range(50):
        other.append_values(b"x" * (number * 37 % 2500), timestamp=NOW + number * 7 % 20)
    other.log.close()
    bases = other.log.segments.bases
    assert killed == [other.file(base, s) for base in bases for s in ("index", "timeindex")]


def test_epochs_are_found_in_the_batches(tmp_path):
    log = ALog(tmp_path)
    for epoch in (0, 0, 3, 3, 7):
        log.append_values(b"a", epoch=epoch)
    log.end_turn()
    log.log.let_go()
    path = f"{log.folder}/leader-epoch-checkpoint"
    for broken in (b"0\n1\n0 0\n", b"", b"0\n2\n0 0\n", b"\0\0\0\0"):
        RealDisk().write_file(path, [broken], flush=False)
        log.open(clean=False)
        assert log.log.epochs.entries == [(0, 0), (3, 2), (7, 4)]
        log.log.let_go()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("first", [(7, 5), (7, 4), (3, 3)])
def test_epochs_of_a_beginning_that_came_back_are_found_in_the_batches(tmp_path, clean, first):
    """The file was cut with the log, and then a power cut undid the cut of the log alone."""
    log = ALog(tmp_path, segment_bytes=200)
    for epoch in (0, 0, 3, 3, 7):
        log.append_values(b"a" * 100, epoch=epoch)
    log.end_turn()
    log.log.let_go()
    entries = [first] if first[0] == 7 else [first, (7, 4)]
    lines = [b"0", b"%d" % len(entries), *(b"%d %d" % entry for entry in entries)]
    path = f"{log.folder}/leader-epoch-checkpoint"
    RealDisk().write_file(path, [b"\n".join(lines) + b"\n"], flush=False)
    log.open(clean=clean)
    assert len(log.log.segments.bases) > 2
    assert log.log.epochs.entries == [(0, 0), (3, 2), (7, 4)]
    assert log.log.epochs.latest == 7
    log.log.let_go()


def test_an_epoch_without_batches_is_dropped(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a", epoch=1)
    log.end_turn()
    log.log.epochs.assign(2, 1)
    log.kill()
    assert log.log.epochs.entries == [(1, 0)]


def test_messages_of_old_formats_are_refused_not_cut(tmp_path):
    log = ALog(tmp_path)
    log.log.let_go()
    body = b"\1\0" + pack(">qi", NOW, -1) + pack(">i", 5) + b"value"  # magic 1
    message = pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    damage(log, 0, "log", lambda data: data + message)
    with pytest.raises(UnsupportedLog):
        log.open(clean=False)
    assert log.file(0, "log") == message


def test_a_start_offset_behind_the_end_begins_anew(tmp_path):
    """Records were deleted up to the end; a power cut then took what had not been flushed."""
    log = ALog(tmp_path)
    log.append_values(b"a")
    log.append_values(b"b")
    log.end_turn()
    log.log.delete_records_before(2)
    log.log.let_go()
    damage(log, 0, "log", lambda data: data[: len(data) // 2])
    log.open(clean=False, recovery_point=2, start_offset=2)
    assert (log.log.start_offset, log.log.end_offset) == (2, 2)
    assert log.append_values(b"c") == 2
    assert log.values() == [(2, b"c")]
    assert log.log.segments.bases == [2]


def test_leftovers_of_a_deletion_go(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a")
    log.log.close()
    disk = RealDisk()
    for name in (f"{0:020d}.log.deleted", f"{5:020d}.index", "x.tmp", f"{9:020d}.log.cleaned"):
        disk.write_file(f"{log.folder}/{name}", [b"1234"], flush=False)
    log.open(clean=True)
    assert log.values() == [(0, b"a")]
    assert not {name for name in disk.list(log.folder) if name.endswith(("ed", "tmp"))}
    assert f"{5:020d}.index" not in disk.list(log.folder)


def test_a_finished_compaction_takes_its_place(tmp_path):
    """Apache Kafka was killed between finishing a compacted segment and removing the old ones."""
    log = ALog(tmp_path, segment_bytes=300)
    for number in range(9):
        log.append_values(b"%d" % number * 50)
    log.log.close()
    bases = log.log.segments.bases
    assert len(bases) > 3
    kept = [1, bases[2] - 1]
    swapped = b"".join(batch(b"kept", base_offset=n, leader_epoch=0) for n in kept)
    RealDisk().write_file(f"{log.folder}/{0:020d}.log.swap", [swapped], flush=False)
    log.open(clean=True)
    assert log.log.segments.bases == [0, *bases[2:]]
    assert [offset for offset, _ in log.values()] == [*kept, *range(bases[2], 9)]


def test_a_recovery_leaves_a_snapshot_for_every_segment_it_read(tmp_path):
    log = ALog(tmp_path, segment_bytes=1000)
    for number in range(12):
        log.append(batch(b"x" * 200, producer_id=1, producer_epoch=0, base_sequence=number))
    log.log.producers.start_anew()
    log.kill()
    assert log.log.producers.snapshots == log.log.segments.bases[1:]


def test_unused_snapshots_are_removed(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a")
    log.restart()
    log.append_values(b"b")
    log.restart()
    log.append_values(b"c")
    log.log.roll(wall_ms=NOW)
    log.restart()
    names = [name for name in RealDisk().list(log.folder) if name.endswith(".snapshot")]
    assert names == [f"{3:020d}.snapshot"]
