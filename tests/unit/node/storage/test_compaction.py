"""Compaction: the last record of each key stays, everything keeps its offset."""

from typing import Any

import pytest

from headrace.node.storage.compaction.compaction import clean
from headrace.node.storage.log_settings import LogSettings
from headrace.wire.protocol import compression
from headrace.wire.protocol.errors import MalformedMessage
from headrace.wire.protocol.record_batch import (
    ATTRIBUTES_AT,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    Record,
    build,
    seal,
)
from tests.unit.node.storage.a_compacted_log import DAY, ACompactedLog
from tests.unit.node.storage.a_log import NOW, Writer, records_of


@pytest.fixture
def log(tmp_path):
    return ACompactedLog(tmp_path)


def fill(log):
    log.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    log.put((b"a", b"2"))
    log.roll()
    log.put((b"c", b"3"), (b"d", b"3"))
    log.roll()
    log.put((b"d", b"4"))


def test_the_last_record_of_each_key_stays_where_it_was(log):
    fill(log)
    [group] = log.compact()
    assert group.sources == [0, 4]
    assert log.records() == [
        (1, b"b", b"1"),
        (3, b"a", b"2"),
        (4, b"c", b"3"),
        (5, b"d", b"3"),  # its successor is in the active segment, which is never looked at
        (6, b"d", b"4"),
    ]
    assert log.log.segments.bases == [0, 6]
    assert log.cleaned_to == 6


def test_a_read_in_a_gap_lands_on_the_next_record(log):
    fill(log)
    log.compact()
    found = log.log.read(2, 10_000, up_to=7, at_least_one=True)
    read = records_of(found.file.read(found.length, found.position))
    assert next(record.value for record in read if record.offset >= 2) == b"2"
    log.roll()
    log.cleaned_to = 0
    log.compact()  # now 5 is gone, too, and it was the last of a segment
    found = log.log.read(5, 10_000, up_to=7, at_least_one=True)
    assert records_of(found.file.read(found.length, found.position))[-1].offset == 6


def test_batches_that_keep_everything_keep_every_byte(log):
    log.put((b"a", b"1"), (b"b", b"1"), compression=4)
    log.roll()
    log.end_turn()
    before = log.file(0, "log")
    log.compact()
    assert log.file(0, "log") == before


def test_a_batch_that_loses_records_keeps_offsets_sequence_and_times(log):
    log.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"3"), producer_id=7, producer_epoch=1,
            base_sequence=10, compression=1)  # fmt: skip
    log.put((b"b", b"4"), producer_id=7, producer_epoch=1, base_sequence=14)
    log.roll()
    log.compact()
    [(header, records), _] = log.batches()
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 3, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 10)
    assert [(r.offset, r.timestamp) for r in records] == [(2, NOW + 2)]
    assert header.max_timestamp == NOW + 2
    assert header.compression == 1


def test_a_tombstone_stays_until_its_time_is_over(log):
    log.put((b"a", b"1"), (b"b", b"1"))
    log.put((b"a", None), (b"b", b"2"))
    log.roll()
    log.put((b"z", b"1"))
    log.roll()
    log.compact()
    assert log.records() == [(2, b"a", None), (3, b"b", b"2"), (4, b"z", b"1")]
    header, records = log.batches()[0]
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + DAY
    assert [record.timestamp for record in records] == [NOW, NOW + 1]

    log.put((b"y", b"1"))
    log.roll()
    log.compact(wall_ms=NOW + DAY - 1)
    assert (2, b"a", None) in log.records()
    assert log.batches()[0][0].base_timestamp == NOW + DAY  # the first round counts

    log.put((b"x", b"1"))
    log.roll()
    log.compact(wall_ms=NOW + DAY)
    assert [record[1] for record in log.records()] == [b"b", b"z", b"y", b"x"]
    assert log.batches()[0][1][0].timestamp == NOW + 1


def test_the_last_batch_of_a_producer_stays_without_its_records(log):
    log.put((b"a", b"1"), producer_id=7, producer_epoch=3, base_sequence=0)
    log.put((b"a", b"2"), producer_id=7, producer_epoch=3, base_sequence=1)
    log.put((b"a", b"3"))
    log.roll()
    log.compact()
    assert [
        (h.base_offset, h.producer_id, h.base_sequence, h.record_count) for h, _ in log.batches()
    ] == [
        (1, 7, 1, 0),
        (2, -1, -1, 1),
    ]
    log.kill()
    assert log.log.producers.producers[7].last_sequence == 1


def test_the_last_batch_of_the_round_stays_so_that_the_end_is_known(log):
    log.put((b"a", b"1"))
    log.put((b"a", None))
    log.roll()
    log.compact()
    log.put((b"b", b"1"))
    log.roll()
    log.compact(wall_ms=NOW + 2 * DAY)
    assert [(h.base_offset, h.record_count) for h, _ in log.batches()] == [(2, 1)]
    log.put((b"b", None))
    log.roll()
    log.compact()
    log.put((b"c", None), (b"d", None))
    log.roll()
    log.compact(wall_ms=NOW + 2 * DAY)
    log.log.roll(wall_ms=NOW)
    log.cleaned_to = 0
    log.compact(wall_ms=NOW + 9 * DAY)
    assert [(h.last_offset, h.record_count) for h, _ in log.batches()] == [(5, 0)]
    assert log.kill().end_offset == 6


def test_aborted_records_go_and_their_marker_follows_later(log):
    writer = Writer(log, 9)
    writer.send(2)  # key k, offsets 0 and 1
    writer.end(commit=False)
    log.put((b"k", b"kept"))
    writer.send(1)
    writer.end(commit=True)
    log.roll()
    log.compact()
    assert log.records() == [(4, b"k", b"x")]
    aborted_marker = log.batches()[0][0]
    assert aborted_marker.is_control and aborted_marker.base_offset == 2
    assert log.log.segments.items[0].transaction_index.entries()[0].first_offset == 0

    log.put((b"z", b""))
    log.roll()
    log.compact(wall_ms=NOW + DAY)  # nothing of the transaction is left: the marker gets its time
    assert log.batches()[0][0].attributes & DELETE_HORIZON
    assert log.log.segments.items[0].transaction_index.entries() == []
    log.put((b"y", b""))
    log.roll()
    log.compact(wall_ms=NOW + 2 * DAY)
    assert [h.base_offset for h, _ in log.batches()] == [4, 5, 6, 7]


def test_a_committed_marker_stays_as_long_as_its_records(log):
    writer = Writer(log, 9)
    writer.send(1)
    writer.end(commit=True)
    log.roll()
    for day in range(3):
        log.cleaned_to = 0
        log.compact(wall_ms=NOW + day * DAY)
    assert [(h.base_offset, h.is_control) for h, _ in log.batches()] == [(0, False), (1, True)]


def test_an_open_transaction_is_not_touched(log):
    writer = Writer(log, 9)
    log.put((b"k", b"1"))
    log.roll()
    writer.send(1)
    log.put((b"k", b"2"))
    log.roll()
    assert log.cleanable().first_uncleanable == 1
    log.compact()
    assert [record[0] for record in log.records()] == [0, 1, 2]


def test_keys_that_do_not_fit_wait_for_the_next_round(log):
    for round_ in range(3):
        for number in range(20):
            log.put((b"key-%d" % number, b"%d" % round_))
    log.roll()
    rounds = 0
    while log.cleaned_to != 60:
        log.compact(memory=1000 if rounds else 0)
        rounds += 1
        assert log.cleaned_to > 0, "even without any memory a round gets further"
    assert rounds > 5
    assert [offset for offset, _, _ in log.records()] == list(range(40, 60))


def test_segments_are_merged_up_to_the_size_of_a_segment(tmp_path):
    log = ACompactedLog(tmp_path, segment_bytes=1000)
    for number in range(40):
        log.put((b"key-%d" % (number % 20), b"x" * 100))
    before = list(log.log.segments.bases)
    log.compact()
    log.compact()
    assert len(log.log.segments.bases) < len(before)
    assert all(segment.size <= 1000 for segment in log.log.segments.items)
    assert [r[0] for r in log.records() if r[0] < log.log.active.base_offset][-1] > 20


def test_records_without_a_key_go(tmp_path):
    log = ACompactedLog(tmp_path, cleanup_policy=frozenset({"delete"}))
    log.put((None, b"1"), (b"a", b"1"))
    log.roll()
    log.compact()
    assert log.records() == [(1, b"a", b"1")]


def test_long_keys_are_told_apart(log):
    one, two = b"x" * 5000 + b"1", b"x" * 5000 + b"2"
    log.put((one, b"1"), (two, b"1"))
    log.put((one, b"2"))
    log.roll()
    log.compact()
    assert log.records() == [(1, two, b"1"), (2, one, b"2")]


def test_a_batch_of_many_megabytes_passes(tmp_path):
    log = ACompactedLog(tmp_path, max_message_bytes=10 << 20)
    log.put((b"a", b"x" * (3 << 20)), (b"b", b"y"))
    log.put((b"b", b"z"))
    log.roll()
    log.compact()
    assert [(offset, len(value)) for offset, _, value in log.records()] == [(0, 3 << 20), (2, 1)]


def test_damaged_batches_stop_it_and_nothing_changes(log):
    fill(log)
    log.end_turn()
    file = log.log.segments.items[0].open_file()
    file.write_at(b"!", 70)
    with pytest.raises(MalformedMessage, match="damaged"):
        log.compact()
    assert log.log.segments.bases == [0, 4, 6]


def with_a_byte_too_many(offset, codec=0):
    """As older versions took it from a client; its checksum is right."""
    plain = build([Record(b"b", b"old", timestamp=NOW)], base_offset=offset, leader_epoch=0)
    payload = compression.compress(codec, plain[HEADER_SIZE:] + b"!")
    batch = bytearray(plain[:HEADER_SIZE] + payload)
    batch[LENGTH_AT:LENGTH_OVERHEAD] = (len(batch) - LENGTH_OVERHEAD).to_bytes(4, "big")
    batch[ATTRIBUTES_AT + 1] = codec
    seal(batch)
    return bytes(batch)


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
def test_a_batch_whose_records_cannot_be_read_stays_whole_and_stops_nothing(log, codec):
    log.put((b"a", b"1"), (b"b", b"1"))
    unreadable = with_a_byte_too_many(2, codec)
    log.log.writer.append_as_is(memoryview(bytearray(unreadable)), wall_ms=NOW)
    log.put((b"a", b"2"), (b"b", b"2"))
    log.roll()
    for _ in ("dirty", "clean"):
        (group,) = log.compact()
        assert (group.unreadable, group.first_unreadable) == (1, 2)
        assert "end where the batch does" in group.why_unreadable
        stored = log.log.segments.items[0].open_file().read(10_000, 0)
        assert unreadable in stored
        rest = stored.replace(unreadable, b"")
        offsets = [record.offset for record in records_of(rest)]
        assert offsets[:2] == [3, 4], "the others were compacted"
        log.put((b"c", b"1"))
        log.roll()


def test_what_the_log_has_no_more_is_not_swapped_in(log):
    fill(log)
    job = log.job()
    groups = []
    clean(log.open_files.disk, job, lambda length: None, groups.append)
    old = list(log.log.segments.items[:2])
    log.log.delete_records_before(5)
    log.log.apply_retention(NOW)
    assert log.log.swap_in(old, wall_ms=NOW) is None
    assert not [name for name in log.open_files.disk.list(log.folder) if "cleaned" in name]
    assert log.records()[0][0] == 4


def test_max_compaction_lag_ends_the_active_segment():
    both: dict[str, Any] = {"segment_ms": 1000, "max_compaction_lag_ms": 10}
    assert LogSettings(**both).segment_ms == 1000
    assert LogSettings(**both, cleanup_policy=frozenset({"compact"})).segment_ms == 10


def test_how_dirty_a_log_is(tmp_path):
    log = ACompactedLog(tmp_path, min_cleanable_dirty_ratio=0.5, min_compaction_lag_ms=1000)
    assert not log.cleanable().is_due
    log.put((b"a", b"1"), timestamp=NOW)
    log.roll()
    log.put((b"a", b"2"), timestamp=NOW + 500)
    log.roll()
    young = log.cleanable(NOW + 1000)
    assert (young.first_uncleanable, young.is_due) == (1, True)
    assert log.cleanable(NOW + 999).is_due is False
    assert log.cleanable(NOW + 2000).first_uncleanable == 2
    log.cleaned_to = 1
    half = log.cleanable(NOW + 2000)
    assert (half.dirty_ratio, half.is_due) == (0.5, False)
    log.log.settings.max_compaction_lag_ms = 1400
    assert log.cleanable(NOW + 2000).is_due
    log.cleaned_to = 99  # no checkpoint of this log
    assert log.cleanable(NOW + 2000).first_dirty == 0
    log.cleaned_to = 2
    assert log.cleanable(NOW + 2000).dirty_bytes == 0


def test_a_transaction_aborted_before_the_dirty_part_says_nothing_of_the_next_one(log):
    writer = Writer(log, 9)
    log.put((b"a", b"1"))
    writer.send(1)
    writer.end(commit=False)
    log.roll()
    log.compact()  # the emptied batch of the producer keeps the entry in the index
    log.put((b"k", b"old"))
    writer.send(1)
    writer.end(commit=True)
    log.roll()
    log.compact()
    assert log.records() == [(0, b"a", b"1"), (4, b"k", b"x")]


def test_a_swap_takes_few_segments_at_once(log):
    for number in range(70):
        log.put((b"%d" % number, b"x"))
        log.roll()
    groups = log.compact()
    assert [len(group.sources) for group in groups] == [32, 32, 6]
    log.cleaned_to = 0
    assert [len(group.sources) for group in log.compact()] == [3]
    assert len(log.records()) == 70


def test_a_round_that_has_too_little_memory_begins_again_with_less(log):
    """The dirty part is noted from its end on, and is given up where it does not fit; what is left
    for the next round begins at a batch."""
    for number in range(300):
        log.put((b"key-%d" % (number % 100), b"%d" % number), (b"x", b"%d" % number))
        if number % 70 == 0:
            log.roll()
    log.roll()
    cleaned = [0]
    while cleaned[-1] < 600:
        log.compact(memory=8_000)
        cleaned.append(log.cleaned_to)
        assert cleaned[-1] > cleaned[-2] and cleaned[-1] % 2 == 0
    assert len(cleaned) > 4
    assert [r[0] for r in log.records()] == [*range(400, 600, 2), 599]


def test_a_start_in_the_middle_of_a_batch_is_where_the_dirty_part_begins(log):
    log.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"))
    log.put((b"b", b"2"))
    log.roll()
    log.log.delete_records_before(1)
    assert log.cleanable().first_dirty == 1
    log.compact()
    assert [r[0] for r in log.records()] == [2, 3, 4]


def test_a_batch_that_was_emptied_goes_when_nothing_needs_it_any_more(log):
    log.put((b"a", b"1"), producer_id=7, producer_epoch=3, base_sequence=0)
    log.put((b"a", b"2"))
    log.roll()
    log.compact()
    assert [(h.base_offset, h.record_count) for h, _ in log.batches()] == [(0, 0), (1, 1)]
    log.put((b"b", b"1"), producer_id=7, producer_epoch=3, base_sequence=1)
    log.roll()
    log.compact()
    assert [(h.base_offset, h.record_count) for h, _ in log.batches()] == [(1, 1), (2, 1)]


@pytest.mark.parametrize(("interval", "most"), [(1, 2.2), (10**9, 4.5)])
def test_a_round_reads_what_is_dirty_twice(tmp_path, interval, most):
    """The limit of bytes per second counts it. Once more where the offset index is of no help."""
    log = ACompactedLog(tmp_path, index_interval_bytes=interval)
    for number in range(400):
        log.put((b"key-%d" % (number % 20), b"x" * 400))
    log.roll()
    size = log.log.segments.items[0].size
    paced, groups = [], []
    clean(log.open_files.disk, log.job(memory=128 << 10), paced.append, groups.append)
    assert groups[0].bytes_written < size / 10
    assert 2 * size <= sum(paced) - groups[0].bytes_written < most * size
