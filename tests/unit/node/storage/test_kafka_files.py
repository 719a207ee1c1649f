"""The files, byte for byte as Apache Kafka has them."""

from struct import pack, unpack

from crc32c import crc32c

from headrace.node.process.folders.real_disk import RealDisk
from headrace.wire.protocol.record_batch import headers_in
from tests.unit.node.storage.a_log import NOW, ALog, batch


def names(log):
    return RealDisk().list(log.folder)


def test_a_new_log_has_preallocated_indexes_and_names_of_twenty_digits(tmp_path):
    log = ALog(tmp_path)
    zero = "00000000000000000000"
    assert names(log) == [
        f"{zero}.index",
        f"{zero}.log",
        f"{zero}.timeindex",
        "leader-epoch-checkpoint",
    ]
    assert len(log.file(0, "log")) == 0
    assert len(log.file(0, "index")) == 10_485_760  # 10 MiB, a multiple of 8
    assert len(log.file(0, "timeindex")) == 10_485_756  # rounded down to a multiple of 12
    assert RealDisk().read_file(f"{log.folder}/leader-epoch-checkpoint") == b"0\n0\n"


def test_index_entries_by_hand(tmp_path):
    """An entry before an append when more than 4096 bytes came since the last one: the last offset
    of the batch and where it begins; in the time index the largest timestamp so far."""
    log = ALog(tmp_path)
    sizes, position = [], 0
    for number in range(9):
        data = batch(b"x" * 900, b"y" * 900, timestamp=NOW + 10 * number)
        log.append(data)
        sizes.append((position, len(data)))
        position += len(data)
    size = sizes[0][1]
    assert 3 * size > 4096 > 2 * size  # so every third batch is indexed
    log.log.close()
    assert log.file(0, "index") == pack(">iiii", 7, 3 * size, 13, 6 * size)
    # The entry of the close is for the youngest batch, by its last offset.
    expected = pack(">qiqiqi", NOW + 31, 7, NOW + 61, 13, NOW + 81, 17)
    assert log.file(0, "timeindex") == expected


def test_indexes_are_trimmed_on_roll_and_hold_relative_offsets(tmp_path):
    log = ALog(tmp_path)
    for number in range(40):
        log.append_values(b"x" * 1500, timestamp=NOW + number)
        if number == 19:
            log.log.roll(wall_ms=NOW)
    log.log.close()
    assert log.log.segments.bases == [0, 20]
    for base in (0, 20):
        data = log.file(base, "log")
        batches = {header.last_offset: position for position, header in headers_in(data)}
        entries = [
            unpack(">ii", log.file(base, "index")[at : at + 8])
            for at in range(0, len(log.file(base, "index")), 8)
        ]
        assert entries and all(batches[base + rel] == position for rel, position in entries)
        times = log.file(base, "timeindex")
        assert len(times) % 12 == 0
        assert unpack(">qi", times[-12:]) == (NOW + base + 19, 19)
    assert log.file(20, "snapshot") == pack(">hIi", 1, crc32c(bytes(4)), 0)


def test_a_restart_makes_room_in_the_active_indexes_again(tmp_path):
    log = ALog(tmp_path)
    for _ in range(5):
        log.append_values(b"x" * 3000)
    log.restart()
    assert len(log.file(0, "index")) == 10_485_760
    assert len(log.file(0, "timeindex")) == 10_485_756
    log.append_values(b"x" * 3000)
    assert len(log.values()) == 6


def test_the_snapshot_of_producers(tmp_path):
    log = ALog(tmp_path)
    log.append(batch(b"a", b"b", producer_id=77, producer_epoch=3, base_sequence=10))
    log.log.close()
    entry = pack(">qhiqiqiq", 77, 3, 11, 1, 1, NOW + 1, -1, -1)
    body = pack(">i", 1) + entry
    assert log.file(2, "snapshot") == pack(">hI", 1, crc32c(body)) + body


def test_the_file_of_leader_epochs(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a", epoch=0)
    log.append_values(b"a", b"b", epoch=5)
    log.append_values(b"a", epoch=5)
    log.append_values(b"a", epoch=6)
    data = RealDisk().read_file(f"{log.folder}/leader-epoch-checkpoint")
    assert data == b"0\n3\n0 0\n5 1\n6 4\n"


def test_an_index_full_rolls(tmp_path):
    log = ALog(tmp_path, segment_index_bytes=40, index_interval_bytes=0)  # 5 and 3 entries
    for _ in range(10):
        log.append_values(b"x")
    # The time index keeps one of its three slots for the roll, and equal times make one entry.
    assert log.log.segments.bases == [0, 6]


def test_a_segment_rolls_by_size(tmp_path):
    size = len(batch(b"x"))
    log = ALog(tmp_path, segment_bytes=3 * size)
    for _ in range(7):
        log.append_values(b"x")
    assert log.log.segments.bases == [0, 3, 6]


def test_a_segment_rolls_by_the_time_of_its_first_batch(tmp_path):
    log = ALog(tmp_path, segment_ms=1000)
    log.append_values(b"a", timestamp=NOW)
    log.append_values(b"b", timestamp=NOW + 1000)
    log.append_values(b"c", timestamp=NOW - 90_000)
    log.append_values(b"d", timestamp=NOW + 1001)
    assert log.log.segments.bases == [0, 3]
    log.kill()
    log.append_values(b"e", timestamp=NOW + 2001)
    log.append_values(b"f", timestamp=NOW + 2002)
    assert log.log.segments.bases == [0, 3, 5]


def test_a_segment_without_timestamps_rolls_by_the_clock(tmp_path):
    log = ALog(tmp_path, segment_ms=1000)
    log.append(batch(b"a", timestamp=-1), wall_ms=NOW)
    log.append(batch(b"b", timestamp=-1), wall_ms=NOW + 1000)
    log.append(batch(b"c", timestamp=-1), wall_ms=NOW + 1001)
    assert log.log.segments.bases == [0, 2]


def test_jitter_rolls_earlier_and_never_more_than_asked(tmp_path):
    log = ALog(tmp_path, segment_ms=1000, segment_jitter_ms=400)
    jitter = log.log.active.jitter_ms
    assert 0 <= jitter < 400
    log.append_values(b"a", timestamp=NOW)
    log.append_values(b"b", timestamp=NOW + 1000 - jitter)
    assert log.log.segments.bases == [0]
    log.append_values(b"c", timestamp=NOW + 1001 - jitter)
    assert log.log.segments.bases == [0, 2]


def test_a_segment_rolls_when_offsets_no_longer_fit_an_index_entry(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a")
    far = 0x7FFF_FFFF
    log.log.writer.append_as_is(
        memoryview(batch(b"b", base_offset=far, leader_epoch=0)), wall_ms=NOW
    )
    assert log.log.segments.bases == [0]
    log.log.writer.append_as_is(
        memoryview(batch(b"c", base_offset=far + 1, leader_epoch=0)), wall_ms=NOW
    )
    assert log.log.segments.bases == [0, far + 1]
    assert log.values() == [(0, b"a"), (far, b"b"), (far + 1, b"c")]


def test_a_client_s_append_too_far_from_the_base_rolls(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a")
    far = 0x7FFF_FFFF
    log.log.writer.append_as_is(
        memoryview(batch(b"b", base_offset=far, leader_epoch=0)), wall_ms=NOW
    )
    assert log.append_values(b"c") == far + 1
    assert log.log.segments.bases == [0, far + 1]


def test_exactly_the_interval_is_not_enough_for_an_entry(tmp_path):
    size = len(batch(b"x" * 500))
    for interval, expected in ((2 * size, [3]), (2 * size - 1, [2])):
        log = ALog(tmp_path / str(interval), index_interval_bytes=interval)
        for _ in range(4):
            log.append_values(b"x" * 500)
        assert [relative for relative, _ in log.log.active.index.all_entries()] == expected
