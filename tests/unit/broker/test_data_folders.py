"""A node with two data folders: where partitions lie, and what is left when one folder fails."""

import errno
import shutil

import pytest

from headrace.broker.identity import UnusableFolder
from headrace.metadata.image import NO_LEADER
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    fetch,
    metadata,
)
from tests.unit.broker.bench import PARKED, Bench, Randomness, values_in
from tests.unit.broker.failing_folder import FailingDisk, TwoFolders

CHECKPOINT_MS = 60_000


def told(bench):
    """Of DescribeLogDirs: by path the error and the partitions."""
    answer = bench.ask(describe_log_dirs, describe_log_dirs.DescribeLogDirsRequest(None))
    return {
        each.log_dir.rpartition("/")[2]: (
            each.error_code,
            sorted((t.name, p.partition_index) for t in each.topics for p in t.partitions),
        )
        for each in answer.results
    }


def offline_replicas(bench, topic, index=0):
    wanted = [metadata.MetadataRequestTopic(name=topic)]
    answer = bench.ask(metadata, metadata.MetadataRequest(topics=wanted))
    return answer.topics[0].partitions[index].offline_replicas


@pytest.fixture
def bench(tmp_path):
    """`orders` has partition 0 in `one` and partition 1 in `two`."""
    bench = TwoFolders(tmp_path)
    bench.create("orders", 2)
    bench.advance(1_000)
    for index in (0, 1):
        assert bench.produce("orders", f"kept {index}", partition=index).error_code == 0
    return bench


def test_new_partitions_go_to_the_folder_with_the_fewest(tmp_path):
    bench = TwoFolders(tmp_path)
    bench.create("a", 3)
    bench.create("b")
    assert bench.partitions_in(bench.one) == ["a-0", "a-2"]
    assert bench.partitions_in(bench.two) == ["a-1", "b-0"]


def test_every_folder_has_its_own_files(bench, tmp_path):
    bench.advance(CHECKPOINT_MS)
    bench.stop()
    for folder, index in ((bench.one, 0), (bench.two, 1)):
        there = {path.name for path in folder.iterdir()}
        assert there >= {"meta.properties", ".kafka_cleanshutdown", f"orders-{index}"}
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            lines = (folder / name).read_text().splitlines()
            assert lines[1:] == ["1", f"orders {index} 1"], (folder, name)
    assert (bench.one / "__cluster_metadata-0").exists()
    assert not (bench.two / "__cluster_metadata-0").exists()


def test_the_metadata_name_the_folder_of_each_replica(bench):
    ids = {folder.path: folder.directory_id for folder in bench.folders.online.values()}
    assert bench.directory_in_metadata("orders", 0) == ids[str(bench.one)]
    assert bench.directory_in_metadata("orders", 1) == ids[str(bench.two)]
    [broker] = bench.node.controller.image.brokers.values()
    assert broker.log_dirs == tuple(ids.values())


def test_a_restart_finds_partitions_in_both_folders(bench, tmp_path):
    bench.stop()
    again = TwoFolders(tmp_path)
    assert again.node.partitions.last_broker_epoch >= 0
    for index in (0, 1):
        assert values_in(again.fetch("orders", partition=index).records) == [b"kept %d" % index]


@pytest.mark.parametrize("way", ["write", "flush", "read"])
def test_a_folder_that_fails_takes_its_partitions_and_not_the_node(tmp_path, way, caplog):
    settings = {"flush_messages": 1} if way == "flush" else {}
    bench = TwoFolders(tmp_path)
    bench.create("orders", 2, **settings)
    bench.advance(1_000)
    bench.produce("orders", "kept", partition=1)
    bench.disk.fail(bench.two, way)
    if way == "read":
        for segment in bench.node.broker.topics.by_name["orders"].replicas[1].log.segments.items:
            segment.recent.clear()
            segment.less_recent.clear()
        answer = bench.fetch("orders", partition=1)
    else:
        answer = bench.produce("orders", "lost", partition=1)
    if way != "flush":  # the flush comes behind the answer
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.node.failure is None
    assert f"the data folder {bench.two}" in caplog.text and "has failed" in caplog.text
    after = bench.produce("orders", "lost", partition=1)
    assert after.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.fetch("orders", partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.produce("orders", "kept", partition=0).error_code == 0
    assert bench.leader_of("orders", 1) == NO_LEADER and bench.leader_of("orders", 0) == 1
    assert offline_replicas(bench, "orders", 1) == [1] and not offline_replicas(bench, "orders", 0)
    assert told(bench) == {
        "one": (0, [("orders", 0)]),
        "two": (ErrorCode.KAFKA_STORAGE_ERROR, []),
    }


def test_a_full_folder_is_not_a_failed_one(bench):
    bench.disk.fail(bench.two, "write", error=errno.ENOSPC)
    refused = bench.produce("orders", "no room", partition=1)
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    bench.disk.mend()
    assert bench.produce("orders", "room", partition=1).error_code == 0
    assert not bench.folders.offline


def test_the_metadata_folder_ends_the_node_as_an_only_folder_does(bench):
    bench.alter(2, "orders", flush_messages=1)
    bench.disk.fail(bench.one, "flush")
    bench.produce("orders", "a", partition=0)
    assert bench.node.failure is not None and not bench.folders.offline


def test_a_checkpoint_finds_a_failed_folder_that_nobody_uses(bench):
    bench.disk.fail(bench.two)
    bench.advance(CHECKPOINT_MS)
    assert list(bench.folders.offline) == [str(bench.two)]


def test_whoever_waits_for_a_lost_partition_is_refused(bench):
    session = bench.connect()
    assert bench.fetch("orders", 1, partition=1, max_wait_ms=5_000, session=session) == PARKED
    bench.disk.fail(bench.two)
    bench.produce("orders", "lost", partition=1)
    [topic] = bench.answer_on(session, fetch, 12).responses
    assert topic.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_new_partitions_go_to_what_is_left(bench):
    bench.disk.fail(bench.two)
    bench.advance(CHECKPOINT_MS)
    bench.create("later", 3)
    assert bench.partitions_in(bench.one) == ["later-0", "later-1", "later-2", "orders-0"]
    assert bench.produce("later", "a", partition=2).error_code == 0


def test_a_failed_folder_comes_back_with_its_records_by_a_restart(bench, tmp_path):
    bench.disk.fail(bench.two)
    bench.advance(CHECKPOINT_MS)
    bench.stop()
    assert not (bench.two / ".kafka_cleanshutdown").exists()
    again = TwoFolders(tmp_path)
    assert again.leader_of("orders", 1) == 1
    assert values_in(again.fetch("orders", partition=1).records) == [b"kept 1"]


def test_a_node_starts_without_a_folder_that_cannot_be_read(bench, tmp_path, caplog):
    bench.stop()
    disk = FailingDisk()
    disk.fail(bench.two)
    again = TwoFolders(tmp_path, disk)
    assert f"the data folder {bench.two} is offline" in caplog.text
    assert again.leader_of("orders", 1) == NO_LEADER
    assert again.fetch("orders", partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert again.produce("orders", "b", partition=0).error_code == 0
    again.create("later", 2)
    assert again.partitions_in(bench.one) == ["later-0", "later-1", "orders-0"]
    again.stop()
    whole = TwoFolders(tmp_path)
    assert values_in(whole.fetch("orders", partition=1).records) == [b"kept 1"]


def test_an_empty_mount_point_is_not_taken_for_a_new_folder(bench, tmp_path, caplog):
    """Not at the first start without the disk, and not at the second."""
    bench.stop()
    bench.two.rename(tmp_path / "unmounted")
    for _ in range(2):
        caplog.clear()
        again = TwoFolders(tmp_path, randomness=Randomness())
        assert "it is empty, and replicas of this node lie in a folder" in caplog.text
        assert again.leader_of("orders", 1) == NO_LEADER
        assert not list(bench.two.iterdir())
        again.stop()
    shutil.rmtree(bench.two)
    (tmp_path / "unmounted").rename(bench.two)
    whole = TwoFolders(tmp_path)
    assert values_in(whole.fetch("orders", partition=1).records) == [b"kept 1"]


def test_a_folder_that_is_added_is_formatted_and_used(tmp_path, caplog):
    caplog.set_level("INFO")
    with_one = Bench(tmp_path / "one")
    with_one.create("orders")
    with_one.produce("orders", "a")
    with_one.stop()
    two = TwoFolders(tmp_path)
    assert f"{two.two} is a new data folder of this node" in caplog.text
    two.create("later")
    assert two.partitions_in(two.two) == ["later-0"]
    assert values_in(two.fetch("orders").records) == [b"a"]


def test_a_node_may_go_back_to_one_folder_but_loses_nothing_silently(bench, tmp_path):
    """What lay in the other folder has no leader until an operator allows an unclean election."""
    bench.stop()
    alone = Bench(bench.one)
    alone.advance(1_000)
    partitions = alone.node.controller.image.topics["orders"].partitions
    assert [partition.leader for partition in partitions] == [1, NO_LEADER]
    alone.stop()
    again = Bench(bench.one)
    partitions = again.node.controller.image.topics["orders"].partitions
    assert [partition.leader for partition in partitions] == [1, NO_LEADER]


def test_a_folder_of_another_node_or_cluster_is_refused(bench, tmp_path):
    bench.stop()
    text = (bench.two / "meta.properties").read_text()
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    (bench.two / "meta.properties").write_text(plain.replace("node.id=1", "node.id=7"))
    with pytest.raises(UnusableFolder, match="belongs to node 7"):
        TwoFolders(tmp_path)


def test_folders_in_the_wrong_order_are_refused(bench, tmp_path):
    bench.stop()
    with pytest.raises(UnusableFolder, match="name that folder first in log.dirs"):
        TwoFolders(tmp_path, log_dirs=f"{bench.two},{bench.one}")


def test_a_copied_folder_is_refused(bench, tmp_path):
    bench.stop()
    shutil.copy(bench.one / "meta.properties", bench.two / "meta.properties")
    with pytest.raises(UnusableFolder, match="the same directory.id"):
        TwoFolders(tmp_path)


def test_the_metadata_log_may_lie_apart(tmp_path):
    apart = tmp_path / "apart"
    apart.mkdir()
    bench = TwoFolders(tmp_path, metadata_log_dir=apart)
    bench.create("orders", 2)
    bench.produce("orders", "a", partition=1)
    bench.stop()
    assert (apart / "__cluster_metadata-0").exists()
    assert not (bench.one / "__cluster_metadata-0").exists()
    again = TwoFolders(tmp_path, metadata_log_dir=apart)
    assert values_in(again.fetch("orders", partition=1).records) == [b"a"]
    assert again.node.directory_id not in again.folders.directories


def test_a_replica_that_is_found_twice_counts_where_the_metadata_say(bench, tmp_path, caplog):
    bench.stop()
    shutil.copytree(bench.two / "orders-1", bench.one / "orders-1")
    (bench.one / "orders-1" / "00000000000000000000.log").write_bytes(b"")
    again = TwoFolders(tmp_path)
    assert values_in(again.fetch("orders", partition=1).records) == [b"kept 1"]
    assert "orders-1 lies in" in caplog.text
    assert [path.name[:8] for path in bench.one.glob("*-stray")] == ["orders-1"]


def test_a_topic_is_deleted_in_all_folders(bench):
    bench.delete("orders")
    assert bench.partitions_in(bench.one) == bench.partitions_in(bench.two) == []
    bench.advance(CHECKPOINT_MS)
    assert not list(bench.one.glob("orders*")) and not list(bench.two.glob("orders*"))


def test_records_are_not_deleted_where_the_folder_fails(tmp_path):
    bench = TwoFolders(tmp_path, headrace_durability="disk")
    bench.create("orders", 2)
    bench.advance(1_000)
    for index in (0, 1):
        bench.produce("orders", "a", "b", partition=index)
    bench.disk.fail(bench.two, "write", "flush")
    topics = [
        delete_records.DeleteRecordsTopic(
            "orders", [delete_records.DeleteRecordsPartition(index, 1) for index in (0, 1)]
        )
    ]
    bench.ask(delete_records, delete_records.DeleteRecordsRequest(topics, 1_000))
    assert bench.node.failure is None and list(bench.folders.offline) == [str(bench.two)]
    assert bench.produce("orders", "c", partition=0).error_code == 0


def test_a_failure_is_told_when_the_metadata_can_be_written_again(bench):
    bench.disk.fail(bench.one, "write", error=errno.ENOSPC)
    bench.disk.fail(bench.two)
    bench.produce("orders", "lost", partition=1)
    assert list(bench.folders.offline) == [str(bench.two)]
    assert bench.leader_of("orders", 1) == 1, "nobody could write it down"
    del bench.disk.failures[str(bench.one)]
    bench.advance(1_000)
    assert bench.leader_of("orders", 1) == NO_LEADER


def move(bench, path, topic, index):
    asked = alter_replica_log_dirs.AlterReplicaLogDir(
        str(path), [alter_replica_log_dirs.AlterReplicaLogDirTopic(topic, [index])]
    )
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest([asked])
    [result] = bench.ask(alter_replica_log_dirs, request).results
    return result.partitions[0].error_code


def test_a_replica_that_is_not_there_yet_is_made_where_the_operator_wants(bench):
    assert move(bench, bench.two, "later", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(bench, "/elsewhere", "orders", 0) == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(bench, bench.one, "orders", 0) == ErrorCode.NONE
    bench.disk.fail(bench.two)
    bench.advance(CHECKPOINT_MS)
    assert move(bench, bench.two, "orders", 0) == ErrorCode.KAFKA_STORAGE_ERROR
