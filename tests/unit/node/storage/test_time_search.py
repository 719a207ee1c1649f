"""Offsets by time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.node.storage.segments.time_search import RECORDS_PER_REQUEST, Budget
from headrace.wire.protocol.record_batch import Record, build, seal
from tests.effort import examples
from tests.unit.node.storage.a_log import NOW, ALog, batch


def test_the_first_record_that_is_not_older(tmp_path):
    log = ALog(tmp_path)
    for number in range(10):
        log.append_values(b"a", b"b", b"c", timestamp=NOW + 10 * number, epoch=number // 5)
        if number == 4:
            log.log.roll(wall_ms=NOW)
    assert log.log.offset_for_time(NOW) == (NOW, 0, 0)
    assert log.log.offset_for_time(NOW + 1) == (NOW + 1, 1, 0)
    assert log.log.offset_for_time(NOW + 3) == (NOW + 10, 3, 0)
    assert log.log.offset_for_time(NOW + 50) == (NOW + 50, 15, 1)
    assert log.log.offset_for_time(NOW + 93) is None
    assert log.log.offset_for_time(0) == (NOW, 0, 0)


def test_records_before_the_start_are_not_found(tmp_path):
    log = ALog(tmp_path)
    log.append_values(b"a", b"b", b"c", timestamp=NOW)
    log.append_values(b"d", timestamp=NOW + 10)
    log.log.delete_records_before(1)
    assert log.log.offset_for_time(0) == (NOW + 1, 1, 0)


def test_the_youngest_record(tmp_path):
    log = ALog(tmp_path)
    assert log.log.offset_of_max_timestamp() is None
    log.append(batch(b"a", timestamp=-1))
    assert log.log.offset_of_max_timestamp() is None
    stamps = [NOW + 5, NOW + 90, NOW + 90, NOW + 7]
    log.append(build([Record(b"k", b"v", timestamp=stamp) for stamp in stamps]), epoch=3)
    log.log.roll(wall_ms=NOW)
    log.append_values(b"b", timestamp=NOW + 89)
    assert log.log.offset_of_max_timestamp() == (NOW + 90, 2, 3)
    log.restart()
    assert log.log.offset_of_max_timestamp() == (NOW + 90, 2, 3)
    log.kill()
    assert log.log.offset_of_max_timestamp() == (NOW + 90, 2, 3)


def test_log_append_time_finds_the_first_of_a_batch(tmp_path):
    log = ALog(tmp_path, timestamp_type="LogAppendTime")
    log.append(batch(b"a", b"b", timestamp=1), wall_ms=NOW)
    log.append(batch(b"c", b"d", timestamp=1), wall_ms=NOW + 5)
    assert log.log.offset_for_time(NOW + 1) == (NOW + 5, 2, 0)
    assert log.log.offset_of_max_timestamp() == (NOW + 5, 2, 0)


def test_compressed_batches_are_opened(tmp_path):
    log = ALog(tmp_path)
    for codec in range(5):
        log.append(batch(b"a", b"b", timestamp=NOW + 10 * codec, compression=codec))
    for codec in range(5):
        assert log.log.offset_for_time(NOW + 10 * codec + 1)[1] == 2 * codec + 1


@settings(max_examples=examples(40), deadline=None)
@given(
    stamps=st.lists(st.integers(-200, 200), min_size=1, max_size=60),
    rolls=st.sets(st.integers(0, 60)),
    targets=st.lists(st.integers(-210, 210), min_size=1, max_size=10),
    restart=st.booleans(),
)
def test_disorder(tmp_path_factory, stamps, rolls, targets, restart):
    log = ALog(tmp_path_factory.mktemp("log"), index_interval_bytes=200)
    for number, stamp in enumerate(stamps):
        log.append_values(b"x" * 50, timestamp=NOW + stamp)
        if number in rolls:
            log.log.roll(wall_ms=NOW)
    if restart:
        log.restart()
    for target in targets:
        expected = next((n for n, stamp in enumerate(stamps) if stamp >= target), None)
        found = log.log.offset_for_time(NOW + target)
        assert (None if found is None else found[1]) == expected
    youngest = log.log.offset_of_max_timestamp()
    assert youngest[:2] == (NOW + max(stamps), stamps.index(max(stamps)))


def test_a_header_that_lies_costs_its_sender(tmp_path):
    """Its records are older than it says: it is answered by its word, nothing else is opened."""
    log = ALog(tmp_path)
    for _ in range(3):
        log.append(build([Record(b"k", b"v", timestamp=NOW)] * 5, max_timestamp=NOW + 100))
    log.append_values(b"honest", timestamp=NOW + 50)
    budget = Budget()
    assert log.log.offset_for_time(NOW + 40, budget) == (NOW + 100, 0, 0)
    assert budget.records == RECORDS_PER_REQUEST - 5


def test_a_batch_that_is_too_large_is_answered_by_its_header(tmp_path):
    log = ALog(tmp_path)
    stamps = [NOW, NOW + 1, NOW + 2]
    log.append(build([Record(b"k", b"v", timestamp=each) for each in stamps]))
    assert log.log.offset_for_time(NOW + 1, Budget(records=3)) == (NOW + 1, 1, 0)
    assert log.log.offset_for_time(NOW + 1, Budget(records=2)) == (NOW + 2, 0, 0)
    assert log.log.offset_for_time(NOW + 1, Budget(size_bytes=0)) == (NOW + 2, 0, 0)


def test_records_that_are_none_do_not_stop_the_search(tmp_path):
    log = ALog(tmp_path)
    data = bytearray(build([Record(b"k", b"v" * 20, timestamp=NOW)]))
    data[61:] = b"\xff" * (len(data) - 61)
    seal(data)
    log.append(bytes(data))
    assert log.log.offset_for_time(NOW - 5) == (NOW, 0, 0)
