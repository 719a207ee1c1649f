"""Damage on the disk: what is kept, what is served, what is said; and what may be cut."""

import pytest

from headrace.node.process.folders.real_disk import RealDisk
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.record_batch import headers_in
from tests.unit.node.storage.a_log import NOW, ALog, records_of

PAYLOAD = 65  # of a batch: behind its header


def flip(log, base, suffix, at, mask=0x10):
    """One bit of a file flips while nobody looks."""
    path = f"{log.folder}/{base:020d}.{suffix}"
    data = bytearray(RealDisk().read_file(path))
    data[at] ^= mask
    RealDisk().write_file(path, [bytes(data)], flush=False)


def filled(tmp_path, count=12, **settings):
    """Batches of one record each; all of them flushed."""
    log = ALog(tmp_path, **{"segment_bytes": 1000, "index_interval_bytes": 200, **settings})
    for number in range(count):
        log.append_values(b"%03d" % number * 40)
    log.end_turn()
    log.flush()
    return log


def batch_at(log, offset):
    """Base offset of the segment that holds it, and its position there."""
    base = max(b for b in log.log.segments.bases if b <= offset)
    for at, header in headers_in(log.file(base, "log")):
        if header.base_offset == offset:
            return base, at
    raise AssertionError(offset)


def read_all(log):
    """The offsets that can be read, and those that are refused as damaged."""
    good, refused, offset = [], [], log.log.start_offset
    while offset < log.log.end_offset:
        try:
            found = log.log.read(offset, 1 << 20, up_to=log.log.end_offset, at_least_one=True)
        except KafkaError as refusal:
            assert refusal.code == ErrorCode.CORRUPT_MESSAGE
            refused.append(offset)
            offset += 1
            continue
        assert found is not None, offset
        read = [r.offset for r in records_of(found.file.read(found.length, found.position))]
        good += [each for each in read if each >= offset]
        offset = good[-1] + 1
    return good, refused


@pytest.mark.parametrize("at", [7, 8, 11, 16, 20, 26, PAYLOAD])
@pytest.mark.parametrize("offset", [9, 11])
def test_a_flushed_batch_of_the_active_segment_is_never_cut(tmp_path, caplog, offset, at):
    log = filled(tmp_path, segment_bytes=10_000)
    base, position = batch_at(log, offset)
    log.log.let_go()
    size = len(log.file(base, "log"))
    flip(log, base, "log", position + at)
    log.open(clean=False, recovery_point=12)
    assert read_all(log) == ([n for n in range(12) if n != offset], [offset])
    assert len(log.file(base, "log")) == size, "nothing is cut"
    assert log.append_values(b"on") == 12
    assert read_all(log)[0][-1] == 12
    assert f"offsets {offset} to " in caplog.text and "CORRUPT_MESSAGE" in caplog.text
    log.kill(recovery_point=12)
    assert read_all(log) == ([n for n in range(13) if n != offset], [offset])
    log.restart()
    assert read_all(log) == ([n for n in range(13) if n != offset], [offset])


def test_what_was_never_vouched_for_is_cut_and_said(tmp_path, caplog):
    log = filled(tmp_path, segment_bytes=10_000)
    _, position = batch_at(log, 9)
    log.log.let_go()
    flip(log, 0, "log", position + PAYLOAD)
    log.open(clean=False, recovery_point=9)
    assert read_all(log) == (list(range(9)), [])
    assert "from offset 9 on" in caplog.text
    assert log.open_files.findings.cuts == 1
    assert log.log.cut is not None and log.log.cut.first_offset == 9


def test_without_a_checkpoint_one_bit_costs_one_batch(tmp_path):
    """Seen: 5,000 records became 1,630, and later segments were removed."""
    log = filled(tmp_path, count=30)
    base, position = batch_at(log, 7)
    bases = list(log.log.segments.bases)
    log.log.let_go()
    flip(log, base, "log", position + PAYLOAD)
    log.open(clean=False, recovery_point=None)
    assert log.log.segments.bases == bases
    assert read_all(log) == ([n for n in range(30) if n != 7], [7])


def test_readers_skip_damage_if_the_topic_says_so(tmp_path, caplog):
    log = filled(tmp_path, segment_bytes=10_000)
    _, position = batch_at(log, 5)
    log.log.let_go()
    flip(log, 0, "log", position + PAYLOAD)
    log.settings.skip_damaged = True
    log.open(clean=False, recovery_point=12)
    assert read_all(log) == ([n for n in range(12) if n != 5], [])
    assert "a reader continues at offset 6" in caplog.text
    assert log.open_files.findings.ranges_skipped == 1


def test_a_damaged_header_in_a_closed_segment_is_found_by_its_reader(tmp_path, caplog):
    log = filled(tmp_path, count=30)
    base, position = batch_at(log, 7)
    log.restart()
    log.log.let_go()
    flip(log, base, "log", position + 8)
    log.open(clean=True, recovery_point=30)
    assert read_all(log) == ([n for n in range(30) if n != 7], [7])
    assert "offsets 7 to 7 are damaged" in caplog.text


def flipped_base_offsets(log, offset, masks=(0x01, 0x04, 0x80)):
    """Opens the log once for each flipped bit in the base offset of the batch with `offset`."""
    base, position = batch_at(log, offset)
    whole = log.file(base, "log")
    for at in (0, 4, 6, 7):
        for mask in masks:
            log.log.let_go()
            flip(log, base, "log", position + at, mask)
            log.open(clean=True, recovery_point=log.log.end_offset)
            yield
            RealDisk().write_file(f"{log.folder}/{base:020d}.log", [whole], flush=False)


@pytest.mark.parametrize("offset", [7, 10, 29])
def test_a_flipped_base_offset_is_found_by_its_reader(tmp_path, offset):
    """Seen: ten records were served at wrong offsets. The base offset is outside the checksum."""
    log = filled(tmp_path, count=30)
    log.restart()
    for _ in flipped_base_offsets(log, offset):
        assert read_all(log) == ([n for n in range(30) if n != offset], [offset])


def test_a_flipped_base_offset_is_found_by_a_reader_that_begins_there(tmp_path):
    log = filled(tmp_path, count=30)
    log.restart()
    for _ in flipped_base_offsets(log, 8):
        with pytest.raises(KafkaError) as refusal:
            log.log.read(8, 1 << 20, up_to=30, at_least_one=True)
        assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_flipped_base_offset_in_a_compacted_log_contradicts_its_neighbours(tmp_path):
    """Where batches leave gaps, a base offset is wrong only if it overlaps what follows."""
    log = filled(tmp_path, count=30)
    log.log.segments.note_gaps([])
    log.restart()
    for _ in flipped_base_offsets(log, 8, masks=(0x04, 0x80)):
        assert read_all(log) == ([n for n in range(30) if n != 8], [8])


def test_offsets_are_checked_once_by_many_short_reads(tmp_path):
    log = filled(tmp_path, count=30, segment_bytes=20_000)
    log.restart()
    segment = log.log.active
    reads = []
    file = segment.open_file()
    segment.file = Counting(file, reads)
    for offset in range(30):
        assert log.log.read(offset, 1, up_to=30, at_least_one=True) is not None
    headers = sum(length for length, _ in reads)
    reads.clear()
    for offset in range(30):
        assert log.log.read(offset, 1, up_to=30, at_least_one=True) is not None
    again = sum(length for length, _ in reads)
    assert again < headers, "only the lookups are left"


class Counting:
    """A file that remembers what was read of it."""

    def __init__(self, file, reads):
        self.file, self.reads = file, reads
        self.path, self.size = file.path, file.size

    def read(self, length, position):
        self.reads.append((length, position))
        return self.file.read(length, position)


def test_a_long_read_is_checked_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.node.storage.segments.batch_chain.MOST_CHECKED", 500)
    log = filled(tmp_path, count=30, segment_bytes=20_000)
    log.restart()
    found = log.log.read(0, 1 << 20, up_to=30, at_least_one=True)
    assert 500 <= found.length < 1000, "the rest waits for the next read"
    assert read_all(log) == (list(range(30)), [])


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_any_flipped_bit_of_an_index_hides_nothing(tmp_path, suffix):
    """Seen: one bit, and readers skipped 711 records without a word."""
    log = filled(tmp_path, count=40, segment_bytes=3000)
    log.restart()
    base = log.log.segments.bases[1]
    whole = log.file(base, suffix)
    for at in range(len(whole)):
        for mask in (0x01, 0x80):
            log.log.let_go()
            flip(log, base, suffix, at, mask)
            log.open(clean=True, recovery_point=40)
            assert read_all(log) == (list(range(40)), [])
            found = log.log.offset_for_time(NOW)
            assert found is not None and found[1] == 0
            assert log.log.segments.items[1].largest_timestamp() == NOW
            RealDisk().write_file(f"{log.folder}/{base:020d}.{suffix}", [whole], flush=False)


@pytest.mark.parametrize("start_offset", [5, 11, 13, 10**9])
def test_a_wrong_start_offset_hides_nothing(tmp_path, caplog, start_offset):
    log = filled(tmp_path, segment_bytes=10_000)
    log.kill(recovery_point=12, start_offset=start_offset)
    assert read_all(log) == (list(range(12)), [])
    assert "nothing else agrees" in caplog.text


@pytest.mark.parametrize("recovery_point", [0, 3, 10**9])
def test_a_wrong_recovery_point_costs_nothing(tmp_path, recovery_point):
    log = filled(tmp_path)
    log.kill(recovery_point=recovery_point)
    assert read_all(log) == (list(range(12)), [])


def test_a_recovery_point_behind_the_end_is_not_believed(tmp_path, caplog):
    """It vouches for nothing: closed segments are read as well, and flushed again."""
    log = filled(tmp_path, count=30)
    base, position = batch_at(log, 7)
    log.log.let_go()
    log.wants_flush.clear()
    flip(log, base, "log", position + PAYLOAD)
    log.open(clean=False, recovery_point=1000)
    assert "flushed up to 1000, but it ends at 30" in caplog.text
    assert read_all(log) == ([n for n in range(30) if n != 7], [7])
    assert log.log.recovery_point == 0 and log.wants_flush == [log.log]


def test_a_wrong_recovery_point_makes_no_log_leap(tmp_path, caplog):
    log = filled(tmp_path, segment_bytes=10_000)
    _, position = batch_at(log, 11)
    log.log.let_go()
    flip(log, 0, "log", position + PAYLOAD)
    log.open(clean=False, recovery_point=10**9)
    assert "not believed" in caplog.text
    assert log.append_values(b"on") < 1000
    found, refused = read_all(log)
    assert found[:11] == list(range(11)) and 11 in refused


def test_records_that_were_deleted_stay_so(tmp_path):
    log = filled(tmp_path, segment_bytes=10_000)
    log.log.delete_records_before(7)
    log.kill(recovery_point=12, start_offset=7)
    assert read_all(log) == (list(range(7, 12)), [])


def test_a_follower_can_fetch_again_from_the_damage(tmp_path):
    log = filled(tmp_path, segment_bytes=10_000)
    _, position = batch_at(log, 5)
    log.log.let_go()
    flip(log, 0, "log", position + PAYLOAD)
    log.open(clean=False, recovery_point=12)
    (damage,) = log.log.segments.damage()
    for path in log.log.truncate(damage.first_offset, wall_ms=NOW):
        RealDisk().remove(path)
    assert log.log.end_offset == 5 and not log.log.segments.damage()
    assert log.append_values(b"again") == 5
    assert read_all(log) == (list(range(6)), [])


def test_a_rolled_segment_s_indexes_are_flushed_when_the_segment_is_vouched_for(tmp_path):
    """With durability disk the log is flushed first, and its indexes were then never."""
    log = filled(tmp_path, count=3, segment_bytes=10_000)
    log.log.roll(wall_ms=NOW)
    flush = log.log.flush_target()
    assert flush is not None
    names = [file.path.rpartition("/")[2] for file in flush.files]
    assert f"{0:020d}.index" in names and f"{0:020d}.timeindex" in names
