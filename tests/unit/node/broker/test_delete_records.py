"""DeleteRecords, and what a power cut may make of it."""

from headrace.node.process.folders.real_disk import RealDisk
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import delete_records, fetch
from tests.unit.node.broker.rig import WAITS, Rig, fetch_request, only_partition


def request_for(offset, timeout_ms=1_000):
    part = delete_records.DeleteRecordsPartition(0, offset)
    return delete_records.DeleteRecordsRequest(
        [delete_records.DeleteRecordsTopic("orders", [part])], timeout_ms
    )


def delete(rig, offset, **how):
    answer = rig.ask(delete_records, request_for(offset, **how))
    return answer if answer == WAITS else answer.topics[0].partitions[0]


def filled(tmp_path, **settings):
    rig = Rig(tmp_path / "data", headrace_durability="disk", **settings)
    rig.create("orders")
    rig.produce("orders", "a", "b", "c")
    return rig


def checkpoint(tmp_path):
    return (tmp_path / "data/log-start-offset-checkpoint").read_bytes()


def test_with_durability_disk_the_answer_waits_for_the_checkpoint(tmp_path):
    rig = filled(tmp_path)
    rig.flushes_wait = True
    session = rig.connect()
    assert rig.ask(delete_records, request_for(2), session=session) == WAITS
    assert not (tmp_path / "data/log-start-offset-checkpoint").exists()
    rig.run_background()
    rig.until_idle()
    [result] = rig.answer_on(session, delete_records).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, 2)
    assert checkpoint(tmp_path) == b"0\n1\norders 0 2\n"
    again = Rig(tmp_path / "data", headrace_durability="disk")
    assert again.fetch("orders", 2).log_start_offset == 2


def test_requests_that_come_while_one_is_written_share_the_next_write(tmp_path):
    rig = filled(tmp_path)
    rig.flushes_wait = True
    sessions = [rig.connect() for _ in range(3)]
    for offset, session in enumerate(sessions, 1):
        assert rig.ask(delete_records, request_for(offset), session=session) == WAITS
    rig.flushes_wait = False
    rig.until_idle()
    lows = [
        rig.answer_on(session, delete_records).topics[0].partitions[0].low_watermark
        for session in sessions
    ]
    assert lows == [1, 2, 3] and checkpoint(tmp_path) == b"0\n1\norders 0 3\n"


def test_who_waits_too_long_is_told_so(tmp_path):
    rig = filled(tmp_path)
    rig.flushes_wait = True
    session = rig.connect()
    assert rig.ask(delete_records, request_for(2), session=session) == WAITS
    rig.advance(1_000)
    [result] = rig.answer_on(session, delete_records).topics[0].partitions
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_disk_that_refuses_the_checkpoint_ends_no_node(tmp_path):
    rig = filled(tmp_path)
    disk = rig.node.disk

    class Full(RealDisk):
        def write_file(self, path, pieces, *, flush=True):
            raise OSError(28, "No space left on device")

    rig.node.durability._disk = Full()
    assert delete(rig, 2).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.node.failure is None
    rig.node.durability._disk = disk
    assert delete(rig, 2).error_code == 0


def test_with_the_page_cache_it_is_answered_at_once(tmp_path):
    rig = Rig(tmp_path / "data", flushes_wait=True)
    rig.flushes_wait = False
    rig.create("orders")
    rig.produce("orders", "a", "b", "c")
    rig.flushes_wait = True
    assert delete(rig, 2).low_watermark == 2


def test_a_reader_of_deleted_records_is_out_of_range_whatever_epoch_it_names(tmp_path):
    """Not told that its log diverges: there is nothing left to compare (as in Apache Kafka)."""
    rig = filled(tmp_path)
    for _ in range(2):  # nothing is written in the second leader epoch, the third has begun
        rig.stop()
        rig = Rig(tmp_path / "data")
    assert delete(rig, 2).low_watermark == 2
    for offset, code in ((3, ErrorCode.NONE), (1, ErrorCode.OFFSET_OUT_OF_RANGE)):
        request = fetch_request("orders", offset)
        request.topics[0].partitions[0].last_fetched_epoch = 1
        part = only_partition(rig.ask(fetch, request, version=12))
        assert part.error_code == code
        assert (part.diverging_epoch is not None) == (code == ErrorCode.NONE)
