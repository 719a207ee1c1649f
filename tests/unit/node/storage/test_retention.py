"""What goes when a log is too old, too large, or told to forget."""

import pytest

from headrace.node.process.folders.real_disk import RealDisk
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from tests.unit.node.storage.a_log import NOW, ALog, FullDisk, batch

DAY = 24 * 3600 * 1000


def a_log_of_segments(folder, count=5, age_ms=DAY, disk=None, **settings):
    """Segments of two batches; each a day older than the next, the last is new."""
    log = ALog(folder, disk, **settings)
    for number in range(count):
        timestamp = NOW - (count - 1 - number) * age_ms
        log.append_values(b"x" * 100, timestamp=timestamp)
        log.append_values(b"x" * 100, timestamp=timestamp)
        if number < count - 1:
            log.log.roll(wall_ms=NOW)
    log.end_turn()
    assert log.log.segments.bases == [0, 2, 4, 6, 8][:count]
    return log


def test_old_segments_are_renamed_and_the_log_begins_later(tmp_path):
    log = a_log_of_segments(tmp_path, retention_ms=2 * DAY + 1)
    removed = log.log.apply_retention(NOW)
    assert log.log.segments.bases == [4, 6, 8] and log.log.start_offset == 4
    assert [path.rpartition("/")[2] for path in removed] == [
        f"{0:020d}.log.deleted",
        f"{0:020d}.index.deleted",
        f"{0:020d}.timeindex.deleted",
        f"{2:020d}.log.deleted",
        f"{2:020d}.index.deleted",
        f"{2:020d}.timeindex.deleted",
        f"{2:020d}.snapshot.deleted",
    ]
    assert all(RealDisk().exists(path) for path in removed)
    assert log.log.apply_retention(NOW) == []
    with pytest.raises(KafkaError) as refusal:
        log.log.read(3, 100, up_to=10, at_least_one=True)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [offset for offset, _ in log.values()] == [4, 5, 6, 7, 8, 9]


def test_exactly_as_old_as_allowed_stays(tmp_path):
    log = a_log_of_segments(tmp_path, retention_ms=2 * DAY)
    log.log.apply_retention(NOW)
    assert log.log.start_offset == 4


def test_a_log_that_is_too_old_as_a_whole_rolls_first(tmp_path):
    log = a_log_of_segments(tmp_path, retention_ms=DAY)
    log.log.apply_retention(NOW + 100 * DAY)
    assert (log.log.start_offset, log.log.end_offset) == (10, 10)
    assert log.log.segments.bases == [10]
    assert log.append_values(b"on") == 10
    # An empty log has nothing more to remove.
    log.restart()
    assert log.values() == [(10, b"on")]


def test_an_empty_log_stays_as_it_is(tmp_path):
    log = ALog(tmp_path, retention_ms=0, retention_bytes=0)
    assert log.log.apply_retention(NOW + 100 * DAY) == []
    assert log.log.segments.bases == [0]


def test_by_size_as_long_as_enough_remains(tmp_path):
    log = a_log_of_segments(tmp_path, retention_ms=-1)
    segment = log.log.segments.items[0].size
    log.log.settings.retention_bytes = 3 * segment + 1
    log.log.apply_retention(NOW)
    assert log.log.segments.bases == [2, 4, 6, 8]  # removing one more would leave less than asked
    log.log.settings.retention_bytes = 3 * segment
    log.log.apply_retention(NOW)
    assert log.log.segments.bases == [4, 6, 8]


def test_nothing_at_or_after_the_high_watermark_goes(tmp_path):
    log = a_log_of_segments(tmp_path, retention_ms=1)
    log.log.apply_retention(NOW + DAY, high_watermark=5)
    assert log.log.segments.bases == [4, 6, 8]


def test_a_compacted_topic_keeps_its_old_records(tmp_path):
    log = a_log_of_segments(tmp_path, retention_ms=1, cleanup_policy=frozenset({"compact"}))
    assert log.log.apply_retention(NOW + DAY) == []


def test_delete_records_moves_the_start_and_retention_removes_the_segments(tmp_path):
    log = a_log_of_segments(tmp_path, retention_ms=-1, cleanup_policy=frozenset({"compact"}))
    log.log.delete_records_before(5)
    assert log.log.start_offset == 5 and log.log.segments.bases[0] == 0
    assert [offset for offset, _ in log.values()] == [5, 6, 7, 8, 9]
    assert log.log.epochs.entries == [(0, 5)]
    log.log.apply_retention(NOW)
    assert log.log.segments.bases == [4, 6, 8]
    log.log.delete_records_before(2)  # nothing goes back
    assert log.log.start_offset == 5
    with pytest.raises(KafkaError) as refusal:
        log.log.delete_records_before(11)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_segments_without_timestamps_age_by_their_files(tmp_path):
    log = ALog(tmp_path, retention_ms=DAY)
    log.append(batch(b"a", timestamp=-1))
    log.log.roll(wall_ms=NOW)
    log.append_values(b"b")
    written_ms = RealDisk().modified_ms(log.log.segments.items[0].path)
    log.log.settings.retention_ms = DAY
    assert log.log.apply_retention(min(written_ms, NOW) + DAY) == []
    log.log.apply_retention(written_ms + DAY + 1)
    assert log.log.segments.bases[0] != 0


def test_age_is_known_without_opening_the_log_after_a_restart(tmp_path):
    log = a_log_of_segments(tmp_path, retention_ms=2 * DAY)
    log.restart()
    log.log.apply_retention(NOW)
    assert log.log.start_offset == 4


class NoRoom(FullDisk):
    """Takes neither appends nor new files while it is full; names can be changed."""

    __slots__ = ()

    def write_file(self, path, pieces, *, flush=True):
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().write_file(path, pieces, flush=flush)


@pytest.mark.parametrize("retention_ms", [2 * DAY + 100, 1], ids=["some", "all"])
def test_a_full_disk_is_made_room_on(tmp_path, retention_ms):
    disk = NoRoom()
    log = a_log_of_segments(tmp_path, disk=disk, retention_ms=retention_ms)
    disk.is_full = True
    removed = log.log.apply_retention(NOW + 10)
    kept = [4, 6, 8] if retention_ms > DAY else [8]  # there is no room for another to begin
    assert log.log.segments.bases == kept and log.log.start_offset == kept[0]
    assert f"{log.folder}/{0:020d}.log.deleted" in removed
    assert [offset for offset, _ in log.values()] == list(range(kept[0], 10))
    disk.is_full = False
    log.kill(start_offset=kept[0])
    assert [offset for offset, _ in log.values()] == list(range(kept[0], 10))
    assert log.log.epochs.entries == [(0, kept[0])]
