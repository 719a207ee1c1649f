"""Transactions in a log: markers, the last stable offset, and the index of aborted ones."""

from struct import iter_unpack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.node.replication.replica import PartitionLeader
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from tests.effort import examples
from tests.unit.node.storage.a_log import NOW, ALog, FullDisk, Writer


@pytest.fixture
def log(tmp_path):
    return ALog(tmp_path)


def stable(log, high_watermark=None):
    end = log.log.end_offset if high_watermark is None else high_watermark
    return log.log.producers.last_stable_offset(end)


def index_of(log, base_offset=0):
    """What stands in the file, field by field."""
    return list(iter_unpack(">hqqqq", log.file(base_offset, "txnindex")))


def aborted_for(log, offset, max_bytes=1 << 20):
    found = log.log.read(offset, max_bytes, up_to=stable(log), at_least_one=True)
    return log.log.aborted_transactions(offset, found, stable(log))


def test_the_first_open_transaction_holds_back_the_last_stable_offset(log):
    log.append_values(b"plain")
    first, second = Writer(log, 1), Writer(log, 2)
    first.send()
    second.send()
    log.append_values(b"plain")
    assert stable(log) == 1
    first.end(commit=True)
    assert stable(log) == 2
    second.end(commit=False)
    assert stable(log) == log.log.end_offset == 6


def test_a_marker_counts_when_readers_may_see_it(log):
    writer = Writer(log, 1)
    writer.send(count=3)
    writer.end(commit=True)
    assert stable(log, high_watermark=3) == 0
    assert stable(log, high_watermark=4) == 4
    assert not log.log.producers.ended_transactions


def test_an_aborted_transaction_is_entered_as_apache_writes_it(log):
    first, second = Writer(log, 1), Writer(log, 2)
    first.send(count=2)  # 0, 1
    second.send()  # 2
    first.end(commit=False)  # 3
    assert index_of(log) == [(0, 1, 0, 3, 2)]
    second.end(commit=False)  # 4
    assert index_of(log) == [(0, 1, 0, 3, 2), (0, 2, 2, 4, 5)]


def test_there_is_no_index_file_before_something_is_aborted(log, tmp_path):
    writer = Writer(log, 1)
    writer.send()
    writer.end(commit=True)
    writer.end(commit=False)  # nothing was open
    assert not list(tmp_path.rglob("*.txnindex"))


def test_a_reader_is_told_what_to_leave_out(log):
    for number in range(6):
        writer = Writer(log, number)
        writer.send()
        writer.end(commit=number % 2 == 0)
    assert aborted_for(log, 0) == [(1, 2), (3, 6), (5, 10)]
    assert aborted_for(log, 4) == [(3, 6), (5, 10)]
    assert aborted_for(log, 7) == [(3, 6), (5, 10)]
    assert aborted_for(log, 8) == [(5, 10)]


def test_the_answer_ends_with_the_bytes_that_were_read(tmp_path):
    log = ALog(tmp_path, index_interval_bytes=1)
    for number in range(50):
        writer = Writer(log, number)
        writer.send(size=100)
        writer.end(commit=False)
    everything = aborted_for(log, 0)
    assert len(everything) == 50
    assert everything[:3] == aborted_for(log, 0, max_bytes=500)[:3]
    assert len(aborted_for(log, 0, max_bytes=500)) < 6


def test_an_abort_in_a_later_segment_is_found_from_an_earlier_one(tmp_path):
    log = ALog(tmp_path, segment_bytes=400)
    writer = Writer(log, 7)
    writer.send(size=200)
    for _ in range(4):
        log.append_values(b"p" * 200)
    writer.end(commit=False)
    assert len(log.log.segments) > 2
    assert aborted_for(log, 0) == [(7, 0)]


@pytest.mark.parametrize("how", ["kill", "restart"])
def test_a_start_finds_everything_again(tmp_path, how):
    log = ALog(tmp_path, segment_bytes=500)
    for number in range(10):
        writer = Writer(log, number)
        writer.send(size=100)
        writer.end(commit=number % 3 == 0, coordinator_epoch=5)
    hung = Writer(log, 99)
    first = hung.send()
    before = aborted_for(log, 0), stable(log), log.log.end_offset
    getattr(log, how)()
    assert (aborted_for(log, 0), stable(log), log.log.end_offset) == before
    assert stable(log) == first
    assert log.log.producers.producers[9].coordinator_epoch == 5
    hung.end(commit=False)
    assert aborted_for(log, first) == [(99, first)]


def test_a_torn_index_is_made_anew_after_a_kill(log):
    for number in range(3):
        writer = Writer(log, number)
        writer.send()
        writer.end(commit=False)
    log.end_turn()
    path = f"{log.folder}/{0:020d}.txnindex"
    with open(path, "r+b") as file:
        file.truncate(50)
    log.kill()
    assert len(index_of(log)) == 3


def test_what_was_aborted_stays_so_on_a_full_disk(tmp_path):
    """The log is read again, and has no room to write its index a second time."""
    disk = FullDisk()
    log = ALog(tmp_path, disk)
    for number in range(3):
        writer = Writer(log, number)
        writer.send()
        writer.end(commit=number == 1)
    log.end_turn()
    before = aborted_for(log, 0)
    disk.is_full = True
    Writer(log, 9).send()  # whose first batch it is: what was before is looked for in the file
    with pytest.raises(KafkaError):
        log.end_turn()
    assert aborted_for(log, 0) == before == [(0, 0), (2, 4)]
    assert log.log.end_offset == 6
    disk.is_full = False
    log.unwritten.clear()
    log.restart()
    assert aborted_for(log, 0) == before


def test_an_index_with_more_than_the_log_is_cut_after_a_kill(log):
    """Entries are written before their markers."""
    writers = [Writer(log, number) for number in range(3)]
    for writer in writers:
        writer.send()
    writers[0].end(commit=False)
    log.end_turn()
    writers[1].end(commit=False)
    writers[2].end(commit=False)
    log.unwritten.clear()  # killed before the end of the turn
    log.kill()
    assert index_of(log) == [(0, 0, 0, 3, 1)]
    assert stable(log) == 1
    writers[1].end(commit=False)
    assert index_of(log) == [(0, 0, 0, 3, 1), (0, 1, 1, 4, 2)]


def test_truncation_takes_markers_back(log):
    first, second = Writer(log, 1), Writer(log, 2)
    first.send()
    first.end(commit=False)
    second.send()
    second.end(commit=False)
    log.log.truncate(3, wall_ms=NOW)
    assert index_of(log) == [(0, 1, 0, 1, 2)]
    assert stable(log) == 2
    second.end(commit=True)
    assert aborted_for(log, 0) == [(1, 0)]
    log.log.truncate(0, wall_ms=NOW)
    assert stable(log) == 0


def test_old_segments_take_their_index_with_them(tmp_path):
    log = ALog(tmp_path, segment_bytes=300)
    for number in range(6):
        writer = Writer(log, number)
        writer.send(size=100)
        writer.end(commit=False)
    second = log.log.segments.bases[1]
    log.log.delete_records_before(second)
    removed = log.log.apply_retention(NOW)
    assert f"{log.folder}/{0:020d}.txnindex.deleted" in removed


def test_markers_of_old_epochs_are_refused(log):
    writer = Writer(log, 1, epoch=3)
    writer.send()
    writer.end(commit=True, coordinator_epoch=4)
    with pytest.raises(KafkaError) as refusal:
        writer.end(commit=True, coordinator_epoch=3)
    assert refusal.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    writer.epoch = 2
    with pytest.raises(KafkaError) as refusal:
        writer.end(commit=True, coordinator_epoch=4)
    assert refusal.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log.end_offset == 2


def test_a_marker_that_must_raise_the_epoch_may_come_twice_but_not_end_its_own_epoch(log):
    writer = Writer(log, 1, epoch=3)
    writer.send()
    with pytest.raises(KafkaError) as refusal:
        log.log.writer.append_marker(
            commit=True,
            producer_id=1,
            producer_epoch=3,
            coordinator_epoch=0,
            leader_epoch=0,
            wall_ms=NOW,
            bumps_epoch=True,
        )
    assert refusal.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    writer.end(commit=True, bumps_epoch=True)
    writer.epoch -= 1
    writer.end(commit=True, bumps_epoch=True)
    # What comes late with the epoch of the old transaction has nowhere to land.
    late = Writer(log, 1, epoch=3)
    late.sequence = 1
    with pytest.raises(KafkaError) as refusal:
        late.send()
    assert refusal.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("then", ["go on", "kill", "restart"])
def test_sequences_after_a_marker(log, then):
    """With the epoch of the records they go on; with a higher one they begin with 0."""
    same, higher, unseen = Writer(log, 1), Writer(log, 2), Writer(log, 3, epoch=4)
    for writer in (same, higher):
        writer.send(count=2)
    same.end(commit=True)
    higher.end(commit=True, bumps_epoch=True)
    unseen.end(commit=False)
    if then != "go on":
        getattr(log, then)()
    end = log.log.end_offset
    assert refused(same, 3) == refused(higher, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(unseen, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    same.sequence, higher.sequence, unseen.sequence = 2, 0, 0
    assert [same.send(), higher.send(), unseen.send()] == [end, end + 1, end + 2]
    same.sequence = 2
    assert same.send() == end  # a duplicate
    stale = Writer(log, 2, epoch=0)
    stale.sequence = 2
    assert refused(stale, 2) == ErrorCode.INVALID_PRODUCER_EPOCH


def refused(writer, sequence):
    writer.sequence = sequence
    with pytest.raises(KafkaError) as refusal:
        writer.send()
    return refusal.value.code


def test_the_leader_shows_committed_readers_only_what_is_decided(log):
    leader = PartitionLeader(
        "orders", bytes(16), 0, log.log, 0, commits_at_once=True, on_progress=lambda leader: None
    )
    log.append_values(b"plain")
    writer = Writer(log, 1)
    writer.send()
    leader.high_watermark = log.log.end_offset
    assert leader.last_stable_offset() == 1
    assert leader.read(1, 1000, committed=True, at_least_one=True) is None
    assert leader.read(1, 1000, committed=False, at_least_one=True) is not None
    leader.append_marker(
        NOW, commit=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, bumps_epoch=False
    )
    assert leader.last_stable_offset() == leader.high_watermark == 3
    found = leader.read(0, 1000, committed=True, at_least_one=True)
    assert leader.aborted_transactions(0, found) == [(1, 1)]


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["send", "commit", "abort"])), max_size=40
)


@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS, kill_at=st.integers(0, 40))
def test_any_order_of_transactions_is_told_right(tmp_path_factory, steps, kill_at):
    """What a reader of committed records keeps, by the client's rule, is what was committed."""
    log = ALog(tmp_path_factory.mktemp("log"), segment_bytes=600)
    writers = [Writer(log, number) for number in range(4)]
    open_offsets = {number: [] for number in range(4)}
    decided = {}
    for step, (number, what) in enumerate(steps):
        if step == kill_at:
            log.kill()
        if what == "send":
            offset = writers[number].send(size=50)
            open_offsets[number].append(offset)
        else:
            writers[number].end(commit=what == "commit")
            for offset in open_offsets[number]:
                decided[offset] = what == "commit"
            open_offsets[number] = []
    log.kill()
    undecided = [offset for offsets in open_offsets.values() for offset in offsets]
    assert stable(log) == min(undecided, default=log.log.end_offset)
    assert kept_by_a_client(log) == {
        offset for offset, committed in decided.items() if committed and offset < stable(log)
    }


def kept_by_a_client(log):
    from headrace.wire.protocol.control_records import ControlKind, kind_of
    from headrace.wire.protocol.record_batch import headers_in, walk

    kept, offset, end = set(), log.log.start_offset, stable(log)
    while offset < end:
        found = log.log.read(offset, 10_000, up_to=end, at_least_one=True)
        waiting = sorted(log.log.aborted_transactions(offset, found, end), key=lambda a: a[1])
        aborting = set()
        data = found.file.read(found.length, found.position)
        for position, header in headers_in(data):
            while waiting and waiting[0][1] <= header.last_offset:
                aborting.add(waiting.pop(0)[0])
            records = list(walk(data[position : position + header.size], 1 << 20))
            offset = header.last_offset + 1
            if header.is_control:
                if kind_of(records[0]) == ControlKind.ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                kept.update(record.offset for record in records)
    return kept
