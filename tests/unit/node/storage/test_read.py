"""What a reader gets, from any offset and with any limit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.protocol.errors import ErrorCode, KafkaError
from tests.effort import examples
from tests.unit.node.storage.a_log import ALog, WatchedDisk, batch, records_of


def read(log, offset, max_bytes=1 << 20, up_to=None, at_least_one=True):
    up_to = log.log.end_offset if up_to is None else up_to
    found = log.log.read(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)
    return None if found is None else found.file.read(found.length, found.position)


def offsets(data):
    return [record.offset for record in records_of(data)]


@pytest.fixture
def log(tmp_path):
    """Twenty batches of three records in segments of a few batches."""
    log = ALog(tmp_path, segment_bytes=1500, open_files_limit=4)
    for number in range(20):
        log.append_values(*[b"%d" % number * 30] * 3)
    return log


def test_any_offset_begins_at_the_batch_that_holds_it(log):
    for offset in range(60):
        assert offsets(read(log, offset))[0] == offset - offset % 3


def test_an_answer_ends_with_its_segment(log):
    first_end = log.log.segments.bases[1]
    assert offsets(read(log, 0)) == list(range(first_end))


def test_outside_the_log(log):
    for offset in (-1, 61):
        with pytest.raises(KafkaError) as refusal:
            read(log, offset)
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert read(log, 60) is None


def test_nothing_from_up_to_on_is_shown(log):
    for up_to in range(0, 61):
        for offset in (0, 29, 57, 58, 59):
            data = read(log, offset, up_to=up_to)
            if data is None:
                # Nothing before up_to, or only part of a batch is.
                assert up_to <= offset - offset % 3 + 2
            else:
                assert max(offsets(data)) < up_to


def test_limits(log):
    size = len(read(log, 57))
    assert len(read(log, 57, max_bytes=size)) == size
    assert len(read(log, 57, max_bytes=size - 1)) == size  # KIP-74: the first batch is whole
    assert read(log, 57, max_bytes=size - 1, at_least_one=False) is None
    assert len(read(log, 0, max_bytes=2 * size + 10)) == 2 * size + 10  # the third batch is cut
    assert read(log, 0, max_bytes=10, at_least_one=False) is None
    assert len(read(log, 1, max_bytes=10)) > 10


def test_a_reader_at_the_tail_opens_nothing_and_looks_nothing_up(tmp_path):
    disk = WatchedDisk()
    log = ALog(tmp_path, disk, index_interval_bytes=0)
    for number in range(1000):
        log.append_values(b"%d" % number)
    log.end_turn()
    log.log.active.index = None  # anything that asks the index now fails
    disk.opened.clear()
    assert offsets(read(log, 997)) == [997, 998, 999]
    assert offsets(read(log, 997, up_to=999)) == [997, 998]
    assert disk.opened == []


def test_what_waits_for_the_end_of_the_turn_can_be_read(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a")
    assert offsets(read(log, 0)) == [0]


def test_what_was_recent_before_a_truncation_is_not_believed(tmp_path):
    log = ALog(tmp_path)
    for _ in range(5):
        log.append_values(b"a")
    log.log.truncate(2, wall_ms=0)
    log.append_values(b"b" * 100, b"c", b"d")  # 2 to 4 are one batch now
    assert offsets(read(log, 3)) == offsets(read(log, 4)) == [2, 3, 4]


def test_a_slice_outlives_its_segment(tmp_path):
    log = ALog(tmp_path, open_files_limit=3)
    log.append_values(b"a" * 3000)
    found = log.log.read(0, 1 << 20, up_to=1, at_least_one=True)
    removed = log.log.truncate_fully(0, wall_ms=0)
    for path in removed:
        log.open_files.disk.remove(path)
    assert offsets(found.file.read(found.length, found.position)) == [0]


def test_a_missing_file_is_a_storage_error(log):
    log.log.let_go()
    log.open_files.disk.remove(f"{log.folder}/{0:020d}.log")
    with pytest.raises(KafkaError) as refusal:
        read(log, 0)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@settings(max_examples=examples(30), deadline=None)
@given(sizes=st.lists(st.integers(0, 6000), min_size=1, max_size=40), data=st.data())
def test_every_offset_can_be_read_whatever_the_sizes(tmp_path_factory, sizes, data):
    log = ALog(tmp_path_factory.mktemp("log"), segment_bytes=20_000)
    for size in sizes:
        log.append(batch(b"x" * size))
    offset = data.draw(st.integers(0, len(sizes) - 1))
    max_bytes = data.draw(st.integers(0, 30_000))
    found = offsets(read(log, offset, max_bytes))
    assert found[0] == offset and found == list(range(offset, offset + len(found)))
