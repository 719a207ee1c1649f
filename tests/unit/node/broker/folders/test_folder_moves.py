"""Replicas that move from one data folder of a node to the other."""

import errno
import shutil
from typing import Any

import pytest

from headrace.node.storage.log_folder import FUTURE
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    produce,
)
from tests.unit.node.broker.folders.failing_folder import FailingDisk, TwoFolders
from tests.unit.node.broker.replicas.test_log_cleaner import (
    BACKOFF,
    SMALL,
    InThisProcess,
    closed_segment,
)
from tests.unit.node.broker.rig import WAITS, values_in
from tests.unit.node.broker.transactions.transaction_rig import TransactionRig

LOOK_MS = 50
CHECKPOINT_MS = 60_000


class Moving(TwoFolders):
    def move(self, topic, index, path):
        asked = alter_replica_log_dirs.AlterReplicaLogDir(
            str(path), [alter_replica_log_dirs.AlterReplicaLogDirTopic(topic, [index])]
        )
        request = alter_replica_log_dirs.AlterReplicaLogDirsRequest([asked])
        [result] = self.ask(alter_replica_log_dirs, request).results
        return result.partitions[0].error_code

    def futures(self):
        """Of DescribeLogDirs: folder and lag by partition."""
        answer = self.ask(describe_log_dirs, describe_log_dirs.DescribeLogDirsRequest(None))
        return {
            (topic.name, each.partition_index): (folder.log_dir, each.offset_lag)
            for folder in answer.results
            for topic in folder.topics
            for each in topic.partitions
            if each.is_future_key
        }

    def finish(self, looks=20):
        for _ in range(looks):
            self.advance(LOOK_MS)
        assert not self.futures()

    def values(self, topic="orders", offset=0):
        return [value.decode() for value in values_in(self.fetch(topic, offset).records)]


@pytest.fixture
def rig(tmp_path):
    """`orders-0` with ten records lies in `one`."""
    rig = Moving(tmp_path)
    rig.create("orders")
    for number in range(10):
        rig.produce("orders", f"record {number}")
    assert rig.partitions_in(rig.one) == ["orders-0"]
    return rig


RECORDS = [f"record {number}" for number in range(10)]


def test_a_replica_moves_with_its_records_and_is_written_on(rig, tmp_path):
    assert rig.move("orders", 0, rig.two) == ErrorCode.NONE
    assert rig.futures() == {("orders", 0): (str(rig.two), 10)}
    assert [path.name[-7:] for path in rig.two.glob("orders-0.*")] == [FUTURE]
    rig.finish()
    assert rig.partitions_in(rig.one) == [] and rig.partitions_in(rig.two) == ["orders-0"]
    assert rig.produce("orders", "behind").base_offset == 10
    assert rig.values() == [*RECORDS, "behind"]
    rig.advance(61_000)
    assert not list(rig.one.glob("orders*"))
    assert rig.directory_in_metadata("orders") == rig.folders.directories[1]
    rig.stop()
    again = Moving(tmp_path)
    assert again.partitions_in(again.two) == ["orders-0"]
    assert again.values() == [*RECORDS, "behind"]


def test_records_that_come_while_it_moves_come_along(rig):
    rig.move("orders", 0, rig.two)
    for number in range(5):
        rig.produce("orders", f"meanwhile {number}")
        rig.advance(LOOK_MS)
    rig.finish()
    assert rig.values() == [*RECORDS, *(f"meanwhile {number}" for number in range(5))]


def test_a_move_within_a_rate_takes_its_time(rig):
    rig.alter(4, "", replica_alter_log_dirs_io_max_bytes_per_second=800)
    rig.move("orders", 0, rig.two)
    lags = []
    for _ in range(60):
        rig.advance(LOOK_MS)
        lags += [lag for _, lag in rig.futures().values()]
    rig.finish()
    assert len(set(lags)) > 5 and rig.values() == RECORDS


def test_deleted_records_stay_deleted(rig):
    wanted = delete_records.DeleteRecordsPartition(0, 4)
    topics = [delete_records.DeleteRecordsTopic("orders", [wanted])]
    rig.ask(delete_records, delete_records.DeleteRecordsRequest(topics, 1_000))
    rig.move("orders", 0, rig.two)
    rig.finish()
    assert rig.fetch("orders", 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.values(offset=4) == RECORDS[4:]


def test_a_log_that_begins_within_a_batch_moves(tmp_path):
    rig = Moving(tmp_path)
    rig.create("orders")
    rig.produce("orders", "a", "b", "c")
    wanted = delete_records.DeleteRecordsPartition(0, 1)
    topics = [delete_records.DeleteRecordsTopic("orders", [wanted])]
    rig.ask(delete_records, delete_records.DeleteRecordsRequest(topics, 1_000))
    rig.move("orders", 0, rig.two)
    rig.finish()
    assert rig.partitions_in(rig.two) == ["orders-0"]
    assert rig.fetch("orders", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.values(offset=1) == ["a", "b", "c"]  # of the batch, which a client cuts


def test_a_move_that_is_called_back_leaves_the_replica(rig):
    rig.move("orders", 0, rig.two)
    assert rig.move("orders", 0, rig.one) == ErrorCode.NONE
    rig.finish()
    assert rig.partitions_in(rig.one) == ["orders-0"] and rig.values() == RECORDS
    rig.advance(61_000)
    assert not list(rig.two.glob("orders*"))


def test_a_stop_interrupts_a_move_and_the_next_start_makes_it(rig, tmp_path):
    rig.move("orders", 0, rig.two)
    rig.stop()
    again = Moving(tmp_path)
    assert ("orders", 0) in again.futures()
    again.finish()
    assert again.partitions_in(again.two) == ["orders-0"] and again.values() == RECORDS


def test_a_kill_between_the_two_renames_loses_nothing(rig, tmp_path, caplog):
    """The copy has its name, the log has its name still: the metadata know of the log."""
    rig.advance(1_000)
    rig.stop()
    shutil.copytree(rig.one / "orders-0", rig.two / "orders-0")
    again = Moving(tmp_path)
    assert again.values() == RECORDS and again.partitions_in(again.one) == ["orders-0"]
    assert "orders-0 is in" in caplog.text


def test_the_folder_fails_to_which_a_replica_moves(rig):
    rig.move("orders", 0, rig.two)
    rig.disk.fail(rig.two)
    for _ in range(5):
        rig.advance(LOOK_MS)
    assert list(rig.folders.offline) == [str(rig.two)]
    assert rig.values() == RECORDS and rig.produce("orders", "more").error_code == 0
    assert not rig.futures()


def test_the_folder_fails_from_which_a_replica_moves(tmp_path):
    rig = Moving(tmp_path)
    rig.create("orders", 2)
    rig.advance(1_000)
    rig.produce("orders", "a", partition=1)
    rig.move("orders", 1, rig.one)
    rig.disk.fail(rig.two)
    for _ in range(5):
        rig.advance(LOOK_MS)
    assert rig.fetch("orders", partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not rig.futures()
    rig.advance(61_000)
    rig.stop()
    rig.disk = FailingDisk()
    again = Moving(tmp_path)
    assert values_in(again.fetch("orders", partition=1).records) == [b"a"]


def test_a_topic_that_is_deleted_while_it_moves_is_gone(rig):
    rig.move("orders", 0, rig.two)
    rig.delete("orders")
    rig.advance(LOOK_MS)
    rig.advance(61_000)
    assert not list(rig.one.glob("orders*")) and not list(rig.two.glob("orders*"))


class MovingTransactions(TransactionRig):
    move: Any = Moving.move
    futures: Any = Moving.futures
    finish: Any = Moving.finish


def test_transactions_go_on_across_a_move(tmp_path):
    """One is committed, one is aborted, and one is open while the partition moves."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    rig = MovingTransactions(tmp_path, log_dirs=f"{one},{two}")
    rig.create("orders")
    producer = rig.producer()
    for value, commit in (("kept", True), ("aborted", False)):
        assert producer.send("orders", value) == 0
        assert producer.end(commit=commit) == 0
    producer.send("orders", "open")
    holder = rig.node.partitions.folders.holder("orders", 0)
    other = two if holder.path == str(one) else one
    assert rig.move("orders", 0, other) == ErrorCode.NONE
    rig.finish()
    assert rig.node.partitions.folders.holder("orders", 0).path == str(other)
    assert rig.committed("orders") == ["kept"]
    producer.send("orders", "open too")
    assert producer.end(commit=True) == 0
    assert rig.committed("orders") == ["kept", "open", "open too"]


def compacted_in_both_folders(tmp_path):
    """`a` lies in `one` and `b` in `two`, both with something to clean."""
    runner = InThisProcess()
    rig = Moving(tmp_path, compaction=runner)
    for topic in ("a", "b"):
        rig.create(topic, **SMALL)
        closed_segment(rig, topic, (b"k", b"1"), (b"k", b"2"))
    return rig, runner


def test_both_folders_note_how_far_their_logs_are_clean(tmp_path):
    rig, runner = compacted_in_both_folders(tmp_path)
    rig.advance(BACKOFF)
    while runner.job is not None:
        runner.run()
        rig.until_idle()
    for folder, topic in ((rig.one, "a"), (rig.two, "b")):
        lines = (folder / "cleaner-offset-checkpoint").read_text().splitlines()
        assert lines[1:] == ["1", f"{topic} 0 2"], folder


def test_a_log_that_moves_is_not_compacted(tmp_path):
    """A copy of a record whose tombstone was removed meanwhile would bring it back."""
    rig, runner = compacted_in_both_folders(tmp_path)
    rig.alter(4, "", replica_alter_log_dirs_io_max_bytes_per_second=1)
    rig.move("a", 0, rig.two)
    rig.advance(BACKOFF)
    assert runner.job is not None and runner.job.folder.endswith("/b-0")
    runner.run()
    rig.until_idle()
    assert runner.job is None and ("a", 0) in rig.futures()


def in_the_other_folder(tmp_path, **settings):
    """`orders-0` with ten records lies in `two`, which may fail alone."""
    rig = Moving(tmp_path, **settings)
    rig.create("first")
    rig.create("orders")
    for number in range(10):
        rig.produce("orders", f"record {number}")
    assert rig.partitions_in(rig.two) == ["orders-0"]
    return rig


def test_a_log_that_cannot_be_read_is_not_the_other_folders_failure(rig):
    """The metadata folder may not fail alone; `two`, to which the replica moves, is well."""
    rig.move("orders", 0, rig.two)
    rig.disk.fail(rig.one, "read")
    for _ in range(5):
        rig.advance(LOOK_MS)
    assert not rig.folders.offline and not rig.futures()
    assert rig.node.broker.folder_moves.failed == 1


def test_a_copy_that_cannot_be_dropped_is_its_own_folders_failure(tmp_path):
    """Who calls the move back names the folder where the replica lies, and that one is well."""
    rig = in_the_other_folder(tmp_path)
    rig.move("orders", 0, rig.one)
    rig.disk.fail(rig.one, "rename")
    assert rig.move("orders", 0, rig.two) == ErrorCode.KAFKA_STORAGE_ERROR
    rig.advance(LOOK_MS)
    assert not rig.folders.offline and rig.values() == RECORDS


def test_a_batch_that_is_larger_than_the_rate_is_paid_for(tmp_path):
    rig = Moving(tmp_path)
    rig.alter(4, "", replica_alter_log_dirs_io_max_bytes_per_second=1_000)
    rig.create("orders")
    for _ in range(10):
        rig.produce("orders", "x" * 10_000)
    rig.move("orders", 0, rig.two)
    for _ in range(20):
        rig.advance(LOOK_MS)
    assert rig.futures() == {("orders", 0): (str(rig.two), 9)}
    for _ in range(200):
        rig.advance(LOOK_MS)
    assert rig.futures() == {("orders", 0): (str(rig.two), 8)}


def test_a_flush_that_fails_after_the_move_is_the_old_folders_failure(tmp_path):
    """A produce waits for it, and for the new folder's flush since the replica lies there."""
    rig = in_the_other_folder(tmp_path, headrace_durability="disk")
    rig.move("orders", 0, rig.one)
    rig.flushes_wait = True
    session = rig.connect()
    assert rig.produce("orders", "flushed late", session=session) == WAITS
    late = rig.background.popleft()
    rig.flushes_wait = False
    for _ in range(10):
        rig.advance(LOOK_MS)
    assert not rig.futures() and not session.outbox
    rig.disk.fail(rig.two, "flush")
    rig.background.append(late)
    rig.until_idle()
    assert rig.node.failure is None and list(rig.folders.offline) == [str(rig.two)]
    assert rig.answer_on(session, produce, 12).responses[0].partition_responses[0].error_code == 0
    assert rig.values() == [*RECORDS, "flushed late"]
    assert rig.produce("orders", "more").error_code == 0


def test_a_log_that_is_cut_back_while_its_copy_is_flushed_moves_all_the_same(rig):
    rig.flushes_wait = True
    rig.move("orders", 0, rig.two)
    for _ in range(3):
        rig.advance(LOOK_MS)
    assert rig.futures() == {("orders", 0): (str(rig.two), 0)}, "it waits for its flush"
    replica = rig.node.broker.topics.by_name["orders"].replicas[0]
    replica.log.truncate(4, wall_ms=rig.now.wall_ms)
    replica.high_watermark = 4
    rig.flushes_wait = False
    rig.finish()
    assert rig.partitions_in(rig.two) == ["orders-0"] and rig.values() == RECORDS[:4]


def test_a_copy_that_cannot_take_the_place_for_want_of_room_is_removed(rig):
    rig.move("orders", 0, rig.two)
    rig.flushes_wait = True
    for _ in range(3):
        rig.advance(LOOK_MS)
    rig.disk.fail(rig.two, "write", error=errno.ENOSPC)
    rig.flushes_wait = False
    rig.until_idle()
    rig.advance(LOOK_MS)
    assert rig.node.broker.folder_moves.failed == 1 and not rig.folders.offline
    rig.disk.mend()
    rig.advance(61_000)
    assert not list(rig.two.glob("orders*"))
    assert rig.values() == RECORDS and rig.produce("orders", "more").error_code == 0
    assert rig.move("orders", 0, rig.two) == ErrorCode.NONE
    rig.finish()
    assert rig.values() == [*RECORDS, "more"]


def test_a_replica_stays_where_its_old_folder_cannot_be_renamed(tmp_path):
    """Else a restart would find it twice, and take the older one."""
    rig = in_the_other_folder(tmp_path)
    rig.move("orders", 0, rig.one)
    rig.disk.fail(rig.two, "rename", error=errno.ENOSPC)
    rig.finish()
    assert rig.node.broker.folder_moves.failed == 1 and not rig.node.broker.folder_moves.done
    assert rig.partitions_in(rig.two) == ["orders-0"]
    assert rig.partitions_in(rig.one) == ["first-0"]
    assert rig.produce("orders", "behind").base_offset == 10
    again = Moving(tmp_path)
    assert again.values() == [*RECORDS, "behind"]
    assert not list(rig.two.glob("*-stray")) and not list(rig.one.glob("orders-0*-stray"))


def test_a_replica_that_moved_is_not_made_anew_where_it_was(rig, tmp_path):
    """A kill came before the metadata heard of the move, and the new folder cannot be read."""
    rig.advance(1_000)
    rig.move("orders", 0, rig.two)
    rig.finish()
    assert rig.directory_in_metadata("orders") == rig.folders.directories[0]
    disk = FailingDisk()
    disk.fail(rig.two)
    without = Moving(tmp_path, disk)
    assert without.fetch("orders").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    without.create("later")
    assert without.partitions_in(without.one) == ["later-0"]
    without.advance(1_000)
    without.stop()
    whole = Moving(tmp_path)
    assert whole.values() == RECORDS


def test_deleted_records_stay_deleted_after_a_move_and_a_kill(tmp_path):
    """Only a checkpoint knows that a log begins within a batch."""
    rig = Moving(tmp_path)
    rig.create("orders")
    rig.produce("orders", "a", "b", "c")
    wanted = delete_records.DeleteRecordsPartition(0, 1)
    topics = [delete_records.DeleteRecordsTopic("orders", [wanted])]
    rig.ask(delete_records, delete_records.DeleteRecordsRequest(topics, 1_000))
    rig.advance(CHECKPOINT_MS)  # from now on a kill does not bring them back
    rig.move("orders", 0, rig.two)
    rig.finish()
    again = Moving(tmp_path)
    assert again.partitions_in(again.two) == ["orders-0"]
    assert again.fetch("orders", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
