"""Replicas that move from one data folder of a node to the other."""

import shutil

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import alter_replica_log_dirs, delete_records, describe_log_dirs
from headrace.storage.log_folder import FUTURE
from tests.unit.broker.bench import values_in
from tests.unit.broker.failing_folder import FailingDisk, TwoFolders
from tests.unit.broker.test_log_cleaner import BACKOFF, SMALL, InThisProcess, closed_segment
from tests.unit.broker.transaction_bench import TransactionBench

LOOK_MS = 50


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
def bench(tmp_path):
    """`orders-0` with ten records lies in `one`."""
    bench = Moving(tmp_path)
    bench.create("orders")
    for number in range(10):
        bench.produce("orders", f"record {number}")
    assert bench.partitions_in(bench.one) == ["orders-0"]
    return bench


RECORDS = [f"record {number}" for number in range(10)]


def test_a_replica_moves_with_its_records_and_is_written_on(bench, tmp_path):
    assert bench.move("orders", 0, bench.two) == ErrorCode.NONE
    assert bench.futures() == {("orders", 0): (str(bench.two), 10)}
    assert [path.name[-7:] for path in bench.two.glob("orders-0.*")] == [FUTURE]
    bench.finish()
    assert bench.partitions_in(bench.one) == [] and bench.partitions_in(bench.two) == ["orders-0"]
    assert bench.produce("orders", "behind").base_offset == 10
    assert bench.values() == [*RECORDS, "behind"]
    bench.advance(61_000)
    assert not list(bench.one.glob("orders*"))
    assert bench.directory_in_metadata("orders") == bench.folders.directories[1]
    bench.stop()
    again = Moving(tmp_path)
    assert again.partitions_in(again.two) == ["orders-0"]
    assert again.values() == [*RECORDS, "behind"]


def test_records_that_come_while_it_moves_come_along(bench):
    bench.move("orders", 0, bench.two)
    for number in range(5):
        bench.produce("orders", f"meanwhile {number}")
        bench.advance(LOOK_MS)
    bench.finish()
    assert bench.values() == [*RECORDS, *(f"meanwhile {number}" for number in range(5))]


def test_a_move_within_a_rate_takes_its_time(bench):
    bench.alter(4, "", replica_alter_log_dirs_io_max_bytes_per_second=800)
    bench.move("orders", 0, bench.two)
    lags = []
    for _ in range(60):
        bench.advance(LOOK_MS)
        lags += [lag for _, lag in bench.futures().values()]
    bench.finish()
    assert len(set(lags)) > 5 and bench.values() == RECORDS


def test_deleted_records_stay_deleted(bench):
    wanted = delete_records.DeleteRecordsPartition(0, 4)
    topics = [delete_records.DeleteRecordsTopic("orders", [wanted])]
    bench.ask(delete_records, delete_records.DeleteRecordsRequest(topics, 1_000))
    bench.move("orders", 0, bench.two)
    bench.finish()
    assert bench.fetch("orders", 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert bench.values(offset=4) == RECORDS[4:]


def test_a_log_that_begins_within_a_batch_moves(tmp_path):
    bench = Moving(tmp_path)
    bench.create("orders")
    bench.produce("orders", "a", "b", "c")
    wanted = delete_records.DeleteRecordsPartition(0, 1)
    topics = [delete_records.DeleteRecordsTopic("orders", [wanted])]
    bench.ask(delete_records, delete_records.DeleteRecordsRequest(topics, 1_000))
    bench.move("orders", 0, bench.two)
    bench.finish()
    assert bench.partitions_in(bench.two) == ["orders-0"]
    assert bench.fetch("orders", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert bench.values(offset=1) == ["a", "b", "c"]  # of the batch, which a client cuts


def test_a_move_that_is_called_back_leaves_the_replica(bench):
    bench.move("orders", 0, bench.two)
    assert bench.move("orders", 0, bench.one) == ErrorCode.NONE
    bench.finish()
    assert bench.partitions_in(bench.one) == ["orders-0"] and bench.values() == RECORDS
    bench.advance(61_000)
    assert not list(bench.two.glob("orders*"))


def test_a_stop_interrupts_a_move_and_the_next_start_makes_it(bench, tmp_path):
    bench.move("orders", 0, bench.two)
    bench.stop()
    again = Moving(tmp_path)
    assert ("orders", 0) in again.futures()
    again.finish()
    assert again.partitions_in(again.two) == ["orders-0"] and again.values() == RECORDS


def test_a_kill_between_the_two_renames_loses_nothing(bench, tmp_path, caplog):
    """The copy has its name, the log has its name still: the metadata know of the log."""
    bench.advance(1_000)
    bench.stop()
    shutil.copytree(bench.one / "orders-0", bench.two / "orders-0")
    again = Moving(tmp_path)
    assert again.values() == RECORDS and again.partitions_in(again.one) == ["orders-0"]
    assert "orders-0 lies in" in caplog.text


def test_the_folder_fails_to_which_a_replica_moves(bench):
    bench.move("orders", 0, bench.two)
    bench.disk.fail(bench.two)
    for _ in range(5):
        bench.advance(LOOK_MS)
    assert list(bench.folders.offline) == [str(bench.two)]
    assert bench.values() == RECORDS and bench.produce("orders", "more").error_code == 0
    assert not bench.futures()


def test_the_folder_fails_from_which_a_replica_moves(tmp_path):
    bench = Moving(tmp_path)
    bench.create("orders", 2)
    bench.advance(1_000)
    bench.produce("orders", "a", partition=1)
    bench.move("orders", 1, bench.one)
    bench.disk.fail(bench.two)
    for _ in range(5):
        bench.advance(LOOK_MS)
    assert bench.fetch("orders", partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not bench.futures()
    bench.advance(61_000)
    bench.stop()
    bench.disk = FailingDisk()
    again = Moving(tmp_path)
    assert values_in(again.fetch("orders", partition=1).records) == [b"a"]


def test_a_topic_that_is_deleted_while_it_moves_is_gone(bench):
    bench.move("orders", 0, bench.two)
    bench.delete("orders")
    bench.advance(LOOK_MS)
    bench.advance(61_000)
    assert not list(bench.one.glob("orders*")) and not list(bench.two.glob("orders*"))


class MovingTransactions(TransactionBench):
    move, futures, finish = Moving.move, Moving.futures, Moving.finish


def test_transactions_go_on_across_a_move(tmp_path):
    """One is committed, one is aborted, and one is open while the partition moves."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    bench = MovingTransactions(tmp_path, log_dirs=f"{one},{two}")
    bench.create("orders")
    producer = bench.producer()
    for value, commit in (("kept", True), ("aborted", False)):
        assert producer.send("orders", value) == 0
        assert producer.end(commit=commit) == 0
    producer.send("orders", "open")
    holder = bench.node.partitions.folders.holder("orders", 0)
    other = two if holder.path == str(one) else one
    assert bench.move("orders", 0, other) == ErrorCode.NONE
    bench.finish()
    assert bench.node.partitions.folders.holder("orders", 0).path == str(other)
    assert bench.committed("orders") == ["kept"]
    producer.send("orders", "open too")
    assert producer.end(commit=True) == 0
    assert bench.committed("orders") == ["kept", "open", "open too"]


def compacted_in_both_folders(tmp_path):
    """`a` lies in `one` and `b` in `two`, both with something to clean."""
    runner = InThisProcess()
    bench = Moving(tmp_path, compaction=runner)
    for topic in ("a", "b"):
        bench.create(topic, **SMALL)
        closed_segment(bench, topic, (b"k", b"1"), (b"k", b"2"))
    return bench, runner


def test_both_folders_note_how_far_their_logs_are_clean(tmp_path):
    bench, runner = compacted_in_both_folders(tmp_path)
    bench.advance(BACKOFF)
    while runner.job is not None:
        runner.run()
        bench.settle()
    for folder, topic in ((bench.one, "a"), (bench.two, "b")):
        lines = (folder / "cleaner-offset-checkpoint").read_text().splitlines()
        assert lines[1:] == ["1", f"{topic} 0 2"], folder


def test_a_log_that_moves_is_not_compacted(tmp_path):
    """A copy of a record whose tombstone was removed meanwhile would bring it back."""
    bench, runner = compacted_in_both_folders(tmp_path)
    bench.alter(4, "", replica_alter_log_dirs_io_max_bytes_per_second=1)
    bench.move("a", 0, bench.two)
    bench.advance(BACKOFF)
    assert runner.job is not None and runner.job.folder.endswith("/b-0")
    runner.run()
    bench.settle()
    assert runner.job is None and ("a", 0) in bench.futures()
