"""What a client may append, what it is told otherwise, and what becomes of its batch."""

import pytest
from crc32c import crc32c

from headrace.node.replication.replica import PartitionLeader
from headrace.node.storage import append_rules
from headrace.node.storage.append_rules import RecordsRefused
from headrace.node.storage.leader_epochs import LeaderEpochs
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol import compression
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.record_batch import (
    MOST_RECORDS_NAMED,
    Record,
    build,
    crc_is_right,
    read_header,
)
from tests.unit.node.storage.a_log import NOW, ALog, FullDisk, batch, records_of


def refused(log, data, **how):
    with pytest.raises(KafkaError) as refusal:
        log.append(data, **how)
    return refusal.value.code


def changed(data, at, value):
    """The batch with other bytes, and the checksum that fits them."""
    data = bytearray(data)
    data[at : at + len(value)] = value
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def test_offsets_go_on_and_the_leader_sets_offset_and_epoch(tmp_path):
    log = ALog(tmp_path)
    assert log.append(batch(b"a", b"b"), epoch=3) == (0, -1)
    assert log.append(batch(b"c"), epoch=4) == (2, -1)
    assert log.log.end_offset == 3
    log.end_turn()
    data = log.file(0, "log")
    first, second = read_header(data), read_header(data, read_header(data).size)
    assert (first.base_offset, first.leader_epoch) == (0, 3)
    assert (second.base_offset, second.leader_epoch) == (2, 4)
    assert crc_is_right(data[: first.size]) and crc_is_right(data[first.size :])
    assert log.log.epochs.entries == [(3, 0), (4, 2)]


def test_small_batches_wait_for_the_end_of_the_turn_and_very_large_ones_do_not(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"small")
    assert log.file(0, "log") == b"" and log.unwritten == [log.log]
    assert log.unwritten.borrowing == []
    log.append_values(b"x" * 5000)
    assert log.file(0, "log") == b"" and log.unwritten.borrowing == [log.log]
    log.append_values(b"x" * 70_000)
    assert [r.offset for r in records_of(log.file(0, "log"))] == [0, 1, 2]
    log.append_values(b"small")
    log.append_values(b"small")
    log.end_turn()
    assert [r.offset for r in records_of(log.file(0, "log"))] == [0, 1, 2, 3, 4]


def test_a_batch_must_be_alone_and_whole(tmp_path):
    log = ALog(tmp_path)
    one = batch(b"a")
    assert refused(log, b"") == ErrorCode.INVALID_RECORD
    assert refused(log, one[:-1]) == ErrorCode.INVALID_RECORD
    assert refused(log, one + one) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(one, 8, b"\0\0\0\5")) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, changed(one, 8, b"\xff\xff\xff\xff")) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, changed(one, 8, b"\0\0\0\x20")[:44]) == ErrorCode.CORRUPT_MESSAGE
    # As Apache does it, a torn tail behind the batch is dropped without a word.
    assert log.append(one + one[:40]) == (0, -1)
    log.end_turn()
    assert len(log.file(0, "log")) == len(one)


def test_only_format_2_with_base_offset_0_and_a_right_checksum(tmp_path):
    log = ALog(tmp_path)
    one = batch(b"a")
    assert refused(log, changed(one, 16, b"\1")) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(one, 16, b"\0")) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(one, 16, b"\3")) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, changed(one, 7, b"\1")) == ErrorCode.INVALID_RECORD
    assert refused(log, one[:-1] + b"!") == ErrorCode.CORRUPT_MESSAGE


def test_counts_control_and_compression_bits(tmp_path):
    log = ALog(tmp_path)
    one = batch(b"a")
    assert refused(log, changed(one, 57, (2).to_bytes(4, "big"))) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(one, 57, bytes(4))) == ErrorCode.INVALID_RECORD
    assert refused(log, changed(one, 23, b"\xff\xff\xff\xff")) == ErrorCode.INVALID_RECORD
    control = batch(b"a", is_control=True, is_transactional=True)
    assert refused(log, control) == ErrorCode.INVALID_RECORD
    unknown = changed(one, 21, b"\0\5")
    assert refused(log, unknown) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_sizes(tmp_path):
    log = ALog(tmp_path, max_message_bytes=200, segment_bytes=190)
    assert refused(log, batch(b"x" * 200)) == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(log, batch(b"x" * 125)) == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.append(batch(b"x" * 100)) == (0, -1)


def test_timestamps_within_bounds(tmp_path):
    log = ALog(tmp_path, timestamp_before_max_ms=1000, timestamp_after_max_ms=2000)
    assert refused(log, batch(b"a", timestamp=NOW + 2001)) == ErrorCode.INVALID_TIMESTAMP
    assert refused(log, batch(b"a", timestamp=NOW - 1001)) == ErrorCode.INVALID_TIMESTAMP
    # The oldest record decides, also when it is not the first.
    mixed = build([Record(b"k", b"", timestamp=NOW), Record(b"k", b"", timestamp=NOW - 1001)])
    assert refused(log, mixed) == ErrorCode.INVALID_TIMESTAMP
    assert log.append(batch(b"a", timestamp=NOW + 2000))[0] == 0
    assert log.append(batch(b"a", timestamp=NOW - 1000))[0] == 1
    assert log.append(batch(b"a", timestamp=-1))[0] == 2  # no timestamp at all


def test_by_default_only_the_future_is_bounded(tmp_path):
    log = ALog(tmp_path)
    assert refused(log, batch(b"a", timestamp=NOW + 3_600_001)) == ErrorCode.INVALID_TIMESTAMP
    assert log.append(batch(b"a", timestamp=0))[0] == 0


def test_log_append_time_is_stamped(tmp_path):
    log = ALog(tmp_path, timestamp_type="LogAppendTime")
    assert log.append(batch(b"a", b"b", timestamp=5)) == (0, NOW)
    log.end_turn()
    data = log.file(0, "log")
    assert crc_is_right(data)
    assert [record.timestamp for record in records_of(data)] == [NOW, NOW]
    stamped = batch(b"a", log_append_time=True)
    assert refused(log, stamped) == ErrorCode.INVALID_TIMESTAMP


def test_a_client_that_claims_append_time_on_a_create_time_topic(tmp_path):
    log = ALog(tmp_path)
    assert log.append(batch(b"a", log_append_time=True, timestamp=NOW - 5))[0] == 0
    log.end_turn()
    data = log.file(0, "log")
    assert crc_is_right(data) and not read_header(data).has_log_append_time
    assert read_header(data).max_timestamp == NOW - 5


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
def test_compacted_topics_take_no_batch_that_compaction_could_not_read(tmp_path, codec):
    """A byte behind the last record: INVALID_RECORD, as Apache Kafka 4.3.1 answers."""
    log = ALog(tmp_path, cleanup_policy=frozenset({"compact"}))
    plain = build([Record(b"k", b"v", timestamp=NOW)])
    data = bytearray(plain[:61] + compression.compress(codec, plain[61:] + b"\0"))
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    assert refused(log, changed(data, 22, bytes([codec]))) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", range(5))
def test_compacted_topics_need_keys(tmp_path, codec):
    log = ALog(tmp_path, cleanup_policy=frozenset({"compact"}))
    without = batch(b"a", key=None, compression=codec)
    assert refused(log, without) == ErrorCode.INVALID_RECORD
    assert log.append(batch(b"a", key=b"", compression=codec))[0] == 0


@pytest.mark.parametrize("given", range(5))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_the_topic_wants(tmp_path, given, wanted):
    log = ALog(tmp_path, compression_type=wanted)
    original = batch(b"a" * 500, b"b" * 500, compression=given)
    assert log.append(original) == (0, -1)
    log.end_turn()
    data = log.file(0, "log")
    codec = 0 if wanted == "uncompressed" else compression.NAMES.index(wanted)
    assert crc_is_right(data) and read_header(data).compression == codec
    if codec == given:
        assert data[16:] == original[16:]
    assert [r.value for r in records_of(data)] == [b"a" * 500, b"b" * 500]


def test_damaged_payloads_are_refused_where_they_must_be_opened(tmp_path):
    log = ALog(tmp_path, compression_type="gzip")
    damaged = changed(batch(b"a" * 100, compression=4), 61, b"\0\0\0\0\0\0")
    assert refused(log, damaged) == ErrorCode.INVALID_RECORD


def test_a_payload_that_grows_too_large_by_another_compression(tmp_path):
    log = ALog(tmp_path, compression_type="uncompressed", max_message_bytes=500)
    assert refused(log, batch(b"a" * 1000, compression=4)) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_refusal_changes_nothing(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a")
    refused(log, batch(b"b")[:-1] + b"!", epoch=7)
    assert log.log.end_offset == 1 and log.log.epochs.latest == 0
    assert log.append_values(b"c") == 1
    assert log.values() == [(0, b"a"), (1, b"c")]


def test_batches_as_they_are_go_on_where_the_log_ends(tmp_path):
    log = ALog(tmp_path)
    two = batch(b"a", b"b", base_offset=0, leader_epoch=1)
    two += batch(b"c", base_offset=5, leader_epoch=2)  # compaction left a gap
    assert log.log.writer.append_as_is(memoryview(two), wall_ms=NOW) == 6
    assert log.log.epochs.entries == [(1, 0), (2, 5)]
    assert log.values() == [(0, b"a"), (1, b"b"), (5, b"c")]
    log.end_turn()
    assert log.file(0, "log") == two


def test_batches_as_they_are_come_all_or_not_at_all(tmp_path):
    log = ALog(tmp_path)
    good = batch(b"a", base_offset=0)
    for bad in (batch(b"b", base_offset=0), batch(b"b", base_offset=1)[:-1] + b"!", good[:50]):
        with pytest.raises(KafkaError):
            log.log.writer.append_as_is(memoryview(good + bad), wall_ms=NOW)
        assert log.log.end_offset == 0
    log.end_turn()
    assert log.file(0, "log") == b""


def test_batches_as_they_are_roll_in_between(tmp_path):
    log = ALog(tmp_path, segment_bytes=3000)
    many = b"".join(batch(b"x" * 900, base_offset=n, leader_epoch=0) for n in range(10))
    log.log.writer.append_as_is(memoryview(many), wall_ms=NOW)
    assert log.log.segments.bases == [0, 3, 6, 9]
    assert [offset for offset, _ in log.values()] == list(range(10))
    assert log.kill().end_offset == 10


def test_a_full_disk_at_a_large_batch_leaves_the_log_as_it_was(tmp_path):
    disk = FullDisk()
    log = ALog(tmp_path, disk)
    log.append_values(b"a")
    log.end_turn()
    disk.is_full = True
    assert refused(log, batch(b"x" * 70_000)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log.end_offset == 1
    disk.is_full = False
    assert log.append_values(b"x" * 70_000) == 1
    assert log.values() == [(0, b"a"), (1, b"x" * 70_000)]


def test_batches_of_all_sizes_stand_in_the_file_in_their_order(tmp_path):
    """Copied, borrowed and written at once, in one turn; the buffer they come in is used again."""
    log = ALog(tmp_path)
    sizes = [10, 10_000, 3_000, 100, 70_000, 20_000, 20_000, 10]
    buffer = memoryview(bytearray(100_000))
    for number, size in enumerate(sizes):
        data = batch(bytes([number]) * size)
        buffer[: len(data)] = data
        log.log.writer.append(buffer[: len(data)], leader_epoch=0, wall_ms=NOW)
        if number % 2:  # now and then several lie in the buffer at once
            for borrower in log.unwritten.borrowing:
                borrower.write_pending()
            log.unwritten.borrowing.clear()
        else:
            buffer = memoryview(bytearray(100_000))
    log.end_turn()
    expected = [(number, bytes([number]) * size) for number, size in enumerate(sizes)]
    assert log.values() == expected
    log.kill()
    assert log.values() == expected


def test_a_full_disk_at_the_end_of_the_turn_takes_the_turn_back(tmp_path):
    disk = FullDisk()
    log = ALog(tmp_path, disk)
    log.append(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    log.end_turn()
    disk.is_full = True
    log.append(batch(b"b", producer_id=7, producer_epoch=0, base_sequence=1))
    log.append_values(b"c")
    with pytest.raises(KafkaError) as refusal:
        log.end_turn()
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log.end_offset == 1
    disk.is_full = False
    log.turn_is_over()
    # The producer sends it again, and it is no duplicate.
    assert log.append(batch(b"b", producer_id=7, producer_epoch=0, base_sequence=1)) == (1, -1)
    assert log.values() == [(0, b"a"), (1, b"b")]


def test_who_writes_at_once_takes_back_no_more_than_its_own(tmp_path):
    disk = FullDisk()
    log = ALog(tmp_path, disk)
    log.append_values(b"a")
    log.end_turn()
    disk.is_full = True
    log.append_values(b"own")
    with pytest.raises(KafkaError):
        log.log.write_at_once()
    assert not log.log.lost_pending  # the turn may go on
    assert log.log.end_offset == 1
    log.turn_is_over()
    log.append_values(b"another's")
    log.append_values(b"own")
    with pytest.raises(KafkaError):
        log.log.write_at_once()
    assert log.log.lost_pending  # what the other was promised must not be said
    disk.is_full = False
    assert refused(log, batch(b"own")) == ErrorCode.KAFKA_STORAGE_ERROR, "the turn is not over"
    log.turn_is_over()
    assert log.append_values(b"own") == 1
    assert log.values() == [(0, b"a"), (1, b"own")]


def test_a_log_that_could_not_be_read_again_is_read_again_before_it_is_closed(
    tmp_path, monkeypatch
):
    def broken(*_):
        raise OSError(5, "Input/output error")

    disk = FullDisk()
    log = ALog(tmp_path, disk)
    log.append_values(b"a")
    log.end_turn()
    with monkeypatch.context() as patched:
        patched.setattr(LeaderEpochs, "load", broken)
        disk.is_full = True
        log.append(batch(b"lost", producer_id=7, producer_epoch=0, base_sequence=0))
        with pytest.raises(KafkaError):
            log.end_turn()
        with pytest.raises(OSError, match="Input/output"):  # so nobody calls this clean
            log.log.close()
    disk.is_full = False
    log.turn_is_over()
    log.restart()
    assert log.values() == [(0, b"a")]


def test_after_a_refusal_each_batch_is_in_its_file_before_it_counts(tmp_path):
    """Of any log of the node, until it is said that batches may be gathered again."""
    disk = FullDisk()
    log = ALog(tmp_path, disk)
    log.append_values(b"a")
    log.end_turn()
    disk.is_full = True
    assert refused(log, batch(b"x" * 70_000)) == ErrorCode.KAFKA_STORAGE_ERROR
    for size in (1, 3_000):
        assert refused(log, batch(b"x" * size)) == ErrorCode.KAFKA_STORAGE_ERROR
    as_is = batch(b"b", base_offset=1, leader_epoch=0)
    with pytest.raises(KafkaError) as refusal:
        log.log.writer.append_as_is(memoryview(as_is), wall_ms=NOW)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log.end_offset == 1 and not log.unwritten and not log.log.lost_pending
    disk.is_full = False
    assert log.log.writer.append_as_is(memoryview(as_is), wall_ms=NOW) == 2
    assert log.append_values(b"c") == 2
    assert not log.unwritten and len(log.file(0, "log")) == log.log.active.size
    log.unwritten.gather_again()
    log.append_values(b"d")
    assert log.unwritten
    assert log.values() == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_what_a_coordinator_could_not_write_is_forgotten_without_a_look_at_the_file(
    tmp_path, monkeypatch
):
    disk = FullDisk()
    log = ALog(tmp_path, disk)
    log.append_values(b"a")
    log.end_turn()
    log.unwritten.refused(log.folder, OSError(28, "No space left on device"))
    disk.is_full = True
    monkeypatch.setattr(PartitionLog, "reload", None)
    for size in (10, 5_000):
        data = memoryview(batch(b"x" * size, base_offset=1, leader_epoch=0))
        with pytest.raises(KafkaError):
            log.log.writer.append_as_is(data, wall_ms=NOW)
        assert log.log.end_offset == 1 and log.log.active.size == len(log.file(0, "log"))


@pytest.mark.parametrize("gathered", [True, False])
def test_the_second_batch_of_a_producer_waits_for_its_first_that_was_refused(tmp_path, gathered):
    """Several are on their way at once, and a small one may find room where a large one did not."""
    disk = FullDisk()
    log = ALog(tmp_path, disk)
    log.append_values(b"a")
    log.end_turn()
    first, second = (
        batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)
        for sequence, value in enumerate((b"x" * (100 if gathered else 70_000), b"y"))
    )
    disk.is_full = True
    leader = a_leader(log)
    if gathered:
        leader.append(memoryview(bytearray(first)), NOW, acks_all=True)
        with pytest.raises(KafkaError):
            log.end_turn()
    else:
        with pytest.raises(KafkaError):
            leader.append(memoryview(bytearray(first)), NOW, acks_all=True)
    disk.is_full = False
    log.turn_is_over()
    assert refused(log, second) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(first) == (1, -1)
    assert log.append(second) == (2, -1)
    assert log.append(first) == (1, NOW), "sent again: the same place"


def test_who_reads_while_the_disk_refuses_gets_what_is_there(tmp_path):
    disk = FullDisk()
    log = ALog(tmp_path, disk)
    log.append_values(b"a")
    log.end_turn()
    log.append_values(b"lost")
    disk.is_full = True
    found = log.log.read(0, 1_000, up_to=2, at_least_one=True)
    assert [r.value for r in records_of(found.file.read(found.length, found.position))] == [b"a"]
    assert log.log.read(1, 1_000, up_to=2, at_least_one=True) is None
    assert log.log.lost_pending


def a_leader(log):
    return PartitionLeader(
        "orders", bytes(16), 0, log.log, 0, commits_at_once=True, on_progress=lambda leader: None
    )


def claiming(data, count):
    data = changed(data, 23, (count - 1).to_bytes(4, "big"))
    return changed(data, 57, count.to_bytes(4, "big"))


@pytest.mark.parametrize("codec", range(5))
def test_a_count_that_the_payload_cannot_bear_out_is_refused(tmp_path, codec):
    """Each such batch would have rolled a segment. From a leader it is taken: compaction leaves
    fewer records than offsets."""
    log = ALog(tmp_path)
    data = batch(b"a", compression=codec)
    for count in (len(data) * 8, 2**31 - 1):
        assert refused(log, claiming(data, count)) == ErrorCode.INVALID_RECORD
    assert log.log.end_offset == 0 and len(log.log.segments) == 1
    gap = claiming(build([Record(b"k", b"v", timestamp=NOW)], leader_epoch=0), 1000)
    log.log.writer.append_as_is(memoryview(bytearray(gap)), wall_ms=NOW)
    assert log.log.end_offset == 1000


@pytest.mark.parametrize("codec", range(1, 5))
def test_the_smallest_records_compressed_well_are_taken(tmp_path, codec):
    log = ALog(tmp_path)
    data = build([Record(None, None, timestamp=NOW)] * 20_000, compression=codec)
    assert log.append(data)[0] == 0


def test_records_of_a_large_batch_are_refused_without_being_listed(tmp_path):
    log = ALog(tmp_path)
    late = NOW + 2 * 3_600_000
    for count, named in ((3, 3), (MOST_RECORDS_NAMED + 1, 0)):
        with pytest.raises(RecordsRefused) as refusal:
            log.append(build([Record(None, b"v", timestamp=late)] * count))
        assert refusal.value.code == ErrorCode.INVALID_TIMESTAMP
        assert len(refusal.value.records) == named


def test_a_topic_that_looks_into_records_takes_no_more_than_it_can_look_at(tmp_path, monkeypatch):
    monkeypatch.setattr(append_rules, "MOST_RECORDS_LOOKED_AT", 10)
    for how in ({"cleanup_policy": frozenset({"compact"})}, {"timestamp_before_max_ms": 1000}):
        log = ALog(tmp_path / next(iter(how)), **how)
        assert log.append(build([Record(b"k", b"v", timestamp=NOW)] * 10))[0] == 0
        eleven = build([Record(b"k", b"v", timestamp=NOW)] * 11)
        assert refused(log, eleven) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
def test_a_topic_that_validates_records_takes_only_what_can_be_read(tmp_path, codec):
    """Garbage with a right checksum stops librdkafka's readers; nobody else asks for the cost."""
    plain, strict = ALog(tmp_path / "a"), ALog(tmp_path / "b", validates_records=True)
    good = build([Record(b"k", b"v", timestamp=NOW)] * 3, compression=codec)
    assert strict.append(good)[0] == 0
    body = b"\x10\0\0\0\x02k\x02v\0"
    for payload in (b"\xff" * 30, body * 3 + b"!", body * 3):  # the last: all of offset delta 0
        packed = compression.compress(codec, payload)
        bad = bytearray(good[:61] + packed)
        bad[8:12] = (len(bad) - 12).to_bytes(4, "big")
        bad = changed(bad, 8, bytes(bad[8:12]))
        assert plain.append(bad)[1] == -1
        assert refused(strict, bad) == ErrorCode.INVALID_RECORD
