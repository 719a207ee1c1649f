"""A node with two data folders: where partitions lie, and what is left when one folder fails."""

import errno
import shutil

import pytest

from headrace.node.broker.folders.identity import UnusableFolder
from headrace.node.broker.handlers import describe_log_dirs as handler
from headrace.node.metadata.image import NO_LEADER
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    fetch,
    metadata,
)
from tests.unit.node.broker.folders.failing_folder import FailingDisk, TwoFolders
from tests.unit.node.broker.rig import WAITS, Randomness, Rig, values_in

CHECKPOINT_MS = 60_000


def told(rig):
    """Of DescribeLogDirs: by path the error and the partitions."""
    answer = rig.ask(describe_log_dirs, describe_log_dirs.DescribeLogDirsRequest(None))
    return {
        each.log_dir.rpartition("/")[2]: (
            each.error_code,
            sorted((t.name, p.partition_index) for t in each.topics for p in t.partitions),
        )
        for each in answer.results
    }


def offline_replicas(rig, topic, index=0):
    wanted = [metadata.MetadataRequestTopic(name=topic)]
    answer = rig.ask(metadata, metadata.MetadataRequest(topics=wanted))
    return answer.topics[0].partitions[index].offline_replicas


@pytest.fixture
def rig(tmp_path):
    """`orders` has partition 0 in `one` and partition 1 in `two`."""
    rig = TwoFolders(tmp_path)
    rig.create("orders", 2)
    rig.advance(1_000)
    for index in (0, 1):
        assert rig.produce("orders", f"kept {index}", partition=index).error_code == 0
    return rig


def test_new_partitions_go_to_the_folder_with_the_fewest(tmp_path):
    rig = TwoFolders(tmp_path)
    rig.create("a", 3)
    rig.create("b")
    assert rig.partitions_in(rig.one) == ["a-0", "a-2"]
    assert rig.partitions_in(rig.two) == ["a-1", "b-0"]


def test_a_cordoned_folder_gets_no_new_partitions(tmp_path):
    rig = TwoFolders(tmp_path)
    rig.folders.cordon((f"{rig.one}/", "/elsewhere"))
    rig.create("a", 3)
    assert rig.partitions_in(rig.one) == []
    rig.folders.cordon(("*",))
    assert set(rig.folders.cordoned_directories) == set(rig.folders.directories)
    rig.folders.cordon(())
    rig.create("b", 2)
    assert rig.partitions_in(rig.one) == ["b-0", "b-1"]


def test_every_folder_has_its_own_files(rig, tmp_path):
    rig.advance(CHECKPOINT_MS)
    rig.stop()
    for folder, index in ((rig.one, 0), (rig.two, 1)):
        there = {path.name for path in folder.iterdir()}
        assert there >= {"meta.properties", ".kafka_cleanshutdown", f"orders-{index}"}
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            lines = (folder / name).read_text().splitlines()
            assert lines[1:] == ["1", f"orders {index} 1"], (folder, name)
    assert (rig.one / "__cluster_metadata-0").exists()
    assert not (rig.two / "__cluster_metadata-0").exists()


def test_the_metadata_name_the_folder_of_each_replica(rig):
    ids = {folder.path: folder.directory_id for folder in rig.folders.online.values()}
    assert rig.directory_in_metadata("orders", 0) == ids[str(rig.one)]
    assert rig.directory_in_metadata("orders", 1) == ids[str(rig.two)]
    [broker] = rig.node.controller.image.brokers.values()
    assert broker.log_dirs == tuple(ids.values())


def test_a_restart_finds_partitions_in_both_folders(rig, tmp_path):
    rig.stop()
    again = TwoFolders(tmp_path)
    assert again.node.partitions.last_broker_epoch >= 0
    for index in (0, 1):
        assert values_in(again.fetch("orders", partition=index).records) == [b"kept %d" % index]


@pytest.mark.parametrize("way", ["write", "flush", "read"])
def test_a_folder_that_fails_takes_its_partitions_and_not_the_node(tmp_path, way, caplog):
    settings = {"flush_messages": 1} if way == "flush" else {}
    rig = TwoFolders(tmp_path)
    rig.create("orders", 2, **settings)
    rig.advance(1_000)
    rig.produce("orders", "kept", partition=1)
    rig.disk.fail(rig.two, way)
    if way == "read":
        for segment in rig.node.broker.topics.by_name["orders"].replicas[1].log.segments.items:
            segment.recent.clear()
            segment.less_recent.clear()
        answer = rig.fetch("orders", partition=1)
    else:
        answer = rig.produce("orders", "lost", partition=1)
    if way != "flush":  # the flush comes behind the answer
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.node.failure is None
    assert f"the data folder {rig.two}" in caplog.text and "has failed" in caplog.text
    after = rig.produce("orders", "lost", partition=1)
    assert after.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.fetch("orders", partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.produce("orders", "kept", partition=0).error_code == 0
    assert rig.leader_of("orders", 1) == NO_LEADER and rig.leader_of("orders", 0) == 1
    assert offline_replicas(rig, "orders", 1) == [1] and not offline_replicas(rig, "orders", 0)
    assert told(rig) == {
        "one": (0, [("orders", 0)]),
        "two": (ErrorCode.KAFKA_STORAGE_ERROR, []),
    }


def test_a_full_folder_is_not_a_failed_one(rig):
    rig.disk.fail(rig.two, "write", error=errno.ENOSPC)
    refused = rig.produce("orders", "no room", partition=1)
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    rig.disk.mend()
    assert rig.produce("orders", "room", partition=1).error_code == 0
    assert not rig.folders.offline


def test_the_metadata_folder_ends_the_node_as_an_only_folder_does(rig):
    rig.alter(2, "orders", flush_messages=1)
    rig.disk.fail(rig.one, "flush")
    rig.produce("orders", "a", partition=0)
    assert rig.node.failure is not None and not rig.folders.offline


def test_a_checkpoint_finds_a_failed_folder_that_nobody_uses(rig):
    rig.disk.fail(rig.two)
    rig.advance(CHECKPOINT_MS)
    assert list(rig.folders.offline) == [str(rig.two)]


def test_whoever_waits_for_a_lost_partition_is_refused(rig):
    session = rig.connect()
    assert rig.fetch("orders", 1, partition=1, max_wait_ms=5_000, session=session) == WAITS
    rig.disk.fail(rig.two)
    rig.produce("orders", "lost", partition=1)
    [topic] = rig.answer_on(session, fetch, 12).responses
    assert topic.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_new_partitions_go_to_what_is_left(rig):
    rig.disk.fail(rig.two)
    rig.advance(CHECKPOINT_MS)
    rig.create("later", 3)
    assert rig.partitions_in(rig.one) == ["later-0", "later-1", "later-2", "orders-0"]
    assert rig.produce("later", "a", partition=2).error_code == 0


def test_a_failed_folder_comes_back_with_its_records_by_a_restart(rig, tmp_path):
    rig.disk.fail(rig.two)
    rig.advance(CHECKPOINT_MS)
    rig.stop()
    assert not (rig.two / ".kafka_cleanshutdown").exists()
    again = TwoFolders(tmp_path)
    assert again.leader_of("orders", 1) == 1
    assert values_in(again.fetch("orders", partition=1).records) == [b"kept 1"]


def test_a_node_starts_without_a_folder_that_cannot_be_read(rig, tmp_path, caplog):
    rig.stop()
    disk = FailingDisk()
    disk.fail(rig.two)
    again = TwoFolders(tmp_path, disk)
    assert f"the data folder {rig.two} is offline" in caplog.text
    assert again.leader_of("orders", 1) == NO_LEADER
    assert again.fetch("orders", partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert again.produce("orders", "b", partition=0).error_code == 0
    again.create("later", 2)
    assert again.partitions_in(rig.one) == ["later-0", "later-1", "orders-0"]
    again.stop()
    whole = TwoFolders(tmp_path)
    assert values_in(whole.fetch("orders", partition=1).records) == [b"kept 1"]


@pytest.mark.parametrize("ways", [(), ("write",)], ids=["unreadable", "read-only"])
def test_a_node_does_not_start_without_any_data_folder(tmp_path, ways):
    apart = tmp_path / "apart"
    apart.mkdir()
    rig = TwoFolders(tmp_path, metadata_log_dir=apart)
    rig.stop()
    disk = FailingDisk()
    disk.fail(rig.one, *ways)
    disk.fail(rig.two, *ways)
    with pytest.raises(UnusableFolder, match=f"None of .*{rig.one}: .*{rig.two}: "):
        TwoFolders(tmp_path, disk=disk, metadata_log_dir=apart)


def test_an_empty_mount_point_of_the_only_data_folder_ends_the_start(tmp_path):
    apart = tmp_path / "apart"
    apart.mkdir()
    names = {"metadata_log_dir": apart, "log_dirs": tmp_path / "one"}
    rig = TwoFolders(tmp_path, **names)
    rig.create("orders")
    rig.advance(1_000)
    rig.stop()
    shutil.rmtree(rig.one)
    with pytest.raises(UnusableFolder, match="bring that disk back"):
        TwoFolders(tmp_path, **names)
    assert not list(rig.one.iterdir())


def test_a_partition_that_is_asked_about_twice_is_told_once(rig):
    topics = [describe_log_dirs.DescribableLogDirTopic("orders", [0, 1, 0]) for _ in range(2)]
    answer = rig.ask(describe_log_dirs, describe_log_dirs.DescribeLogDirsRequest(topics))
    told = [
        [p.partition_index for t in each.topics for p in t.partitions] for each in answer.results
    ]
    assert told == [[0], [1]]


def test_an_answer_in_slices_is_the_same(rig, monkeypatch):
    rig.create("many", 7)
    rig.advance(1_000)
    at_once = rig.ask(describe_log_dirs, describe_log_dirs.DescribeLogDirsRequest(None))
    monkeypatch.setattr(handler, "MANY_PARTITIONS", 3)
    monkeypatch.setattr(handler, "PARTITIONS_PER_STEP", 2)
    in_slices = rig.ask(describe_log_dirs, describe_log_dirs.DescribeLogDirsRequest(None))
    assert [each.topics for each in in_slices.results] == [each.topics for each in at_once.results]
    assert sum(len(t.partitions) for each in in_slices.results for t in each.topics) == 9


def test_an_empty_mount_point_is_not_taken_for_a_new_folder(rig, tmp_path, caplog):
    """Not at the first start without the disk, and not at the second."""
    rig.stop()
    rig.two.rename(tmp_path / "unmounted")
    for _ in range(2):
        caplog.clear()
        again = TwoFolders(tmp_path, randomness=Randomness())
        assert "it is empty, and replicas of this node lie in a folder" in caplog.text
        assert again.leader_of("orders", 1) == NO_LEADER
        assert not list(rig.two.iterdir())
        again.stop()
    shutil.rmtree(rig.two)
    (tmp_path / "unmounted").rename(rig.two)
    whole = TwoFolders(tmp_path)
    assert values_in(whole.fetch("orders", partition=1).records) == [b"kept 1"]


def test_a_folder_that_is_added_is_formatted_and_used(tmp_path, caplog):
    caplog.set_level("INFO")
    with_one = Rig(tmp_path / "one")
    with_one.create("orders")
    with_one.produce("orders", "a")
    with_one.stop()
    two = TwoFolders(tmp_path)
    assert f"{two.two} is a new data folder of this node" in caplog.text
    two.create("later")
    assert two.partitions_in(two.two) == ["later-0"]
    assert values_in(two.fetch("orders").records) == [b"a"]


def test_a_node_may_go_back_to_one_folder_but_loses_nothing_silently(rig, tmp_path):
    """What lay in the other folder has no leader until an operator allows an unclean election."""
    rig.stop()
    alone = Rig(rig.one)
    alone.advance(1_000)
    partitions = alone.node.controller.image.topics["orders"].partitions
    assert [partition.leader for partition in partitions] == [1, NO_LEADER]
    alone.stop()
    again = Rig(rig.one)
    partitions = again.node.controller.image.topics["orders"].partitions
    assert [partition.leader for partition in partitions] == [1, NO_LEADER]


def test_a_folder_of_another_node_or_cluster_is_refused(rig, tmp_path):
    rig.stop()
    text = (rig.two / "meta.properties").read_text()
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    (rig.two / "meta.properties").write_text(plain.replace("node.id=1", "node.id=7"))
    with pytest.raises(UnusableFolder, match="belongs to node 7"):
        TwoFolders(tmp_path)


def test_folders_in_the_wrong_order_are_refused(rig, tmp_path):
    rig.stop()
    with pytest.raises(UnusableFolder, match="name that folder first in log.dirs"):
        TwoFolders(tmp_path, log_dirs=f"{rig.two},{rig.one}")


def test_a_copied_folder_is_refused(rig, tmp_path):
    rig.stop()
    shutil.copy(rig.one / "meta.properties", rig.two / "meta.properties")
    with pytest.raises(UnusableFolder, match="the same directory.id"):
        TwoFolders(tmp_path)


def test_the_metadata_log_may_lie_apart(tmp_path):
    apart = tmp_path / "apart"
    apart.mkdir()
    rig = TwoFolders(tmp_path, metadata_log_dir=apart)
    rig.create("orders", 2)
    rig.produce("orders", "a", partition=1)
    rig.stop()
    assert (apart / "__cluster_metadata-0").exists()
    assert not (rig.one / "__cluster_metadata-0").exists()
    again = TwoFolders(tmp_path, metadata_log_dir=apart)
    assert values_in(again.fetch("orders", partition=1).records) == [b"a"]
    assert again.node.directory_id not in again.folders.directories


def test_a_replica_that_is_found_twice_counts_where_the_metadata_say(rig, tmp_path, caplog):
    rig.stop()
    shutil.copytree(rig.two / "orders-1", rig.one / "orders-1")
    (rig.one / "orders-1" / "00000000000000000000.log").write_bytes(b"")
    again = TwoFolders(tmp_path)
    assert values_in(again.fetch("orders", partition=1).records) == [b"kept 1"]
    assert "orders-1 is in" in caplog.text
    assert [path.name[:8] for path in rig.one.glob("*-stray")] == ["orders-1"]


def test_a_node_starts_without_a_folder_where_a_double_cannot_be_put_aside(rig, tmp_path):
    rig.advance(CHECKPOINT_MS)
    rig.stop()
    (rig.two / ".kafka_cleanshutdown").unlink()  # else the start would write there before
    shutil.copytree(rig.one / "orders-0", rig.two / "orders-0")
    disk = FailingDisk()
    disk.fail(rig.two, "rename", error=errno.EROFS)
    again = TwoFolders(tmp_path, disk)
    assert list(again.folders.offline) == [str(rig.two)]
    assert values_in(again.fetch("orders", partition=0).records) == [b"kept 0"]
    assert again.fetch("orders", partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_topic_is_deleted_in_all_folders(rig):
    rig.delete("orders")
    assert rig.partitions_in(rig.one) == rig.partitions_in(rig.two) == []
    rig.advance(CHECKPOINT_MS)
    assert not list(rig.one.glob("orders*")) and not list(rig.two.glob("orders*"))


def test_a_topic_whose_folder_cannot_be_renamed_is_deleted_elsewhere(rig):
    rig.disk.fail(rig.one, "rename", error=errno.ENOSPC)
    rig.delete("orders")
    assert rig.partitions_in(rig.one) == rig.partitions_in(rig.two) == []
    rig.disk.mend()
    rig.advance(CHECKPOINT_MS)
    assert not list(rig.two.glob("orders*"))


def test_a_new_topic_does_not_get_the_records_of_one_that_could_not_be_removed(rig, tmp_path):
    rig.disk.fail(rig.one, "rename", error=errno.ENOSPC)
    rig.delete("orders")
    rig.disk.mend()
    rig.create("orders", 2)
    assert values_in(rig.fetch("orders", partition=0).records) == []
    rig.produce("orders", "new", partition=0)
    rig.stop()
    assert [path.name[:8] for path in rig.one.glob("*-stray")] == ["orders-0"]
    again = TwoFolders(tmp_path)
    assert values_in(again.fetch("orders", partition=0).records) == [b"new"]


def test_a_folder_that_refuses_a_deletion_has_failed(rig):
    rig.disk.fail(rig.two, "rename")
    rig.delete("orders")
    assert list(rig.folders.offline) == [str(rig.two)]
    rig.create("later")
    assert rig.produce("later", "a").error_code == 0


def test_records_are_not_deleted_where_the_folder_fails(tmp_path):
    rig = TwoFolders(tmp_path, headrace_durability="disk")
    rig.create("orders", 2)
    rig.advance(1_000)
    for index in (0, 1):
        rig.produce("orders", "a", "b", partition=index)
    rig.disk.fail(rig.two, "write", "flush")
    topics = [
        delete_records.DeleteRecordsTopic(
            "orders", [delete_records.DeleteRecordsPartition(index, 1) for index in (0, 1)]
        )
    ]
    rig.ask(delete_records, delete_records.DeleteRecordsRequest(topics, 1_000))
    assert rig.node.failure is None and list(rig.folders.offline) == [str(rig.two)]
    assert rig.produce("orders", "c", partition=0).error_code == 0


def test_a_failure_is_told_when_the_metadata_can_be_written_again(rig):
    rig.disk.fail(rig.one, "write", error=errno.ENOSPC)
    rig.disk.fail(rig.two)
    rig.produce("orders", "lost", partition=1)
    assert list(rig.folders.offline) == [str(rig.two)]
    assert rig.leader_of("orders", 1) == 1, "nobody could write it down"
    del rig.disk.failures[str(rig.one)]
    rig.advance(1_000)
    assert rig.leader_of("orders", 1) == NO_LEADER


def move(rig, path, topic, index):
    asked = alter_replica_log_dirs.AlterReplicaLogDir(
        str(path), [alter_replica_log_dirs.AlterReplicaLogDirTopic(topic, [index])]
    )
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest([asked])
    [result] = rig.ask(alter_replica_log_dirs, request).results
    return result.partitions[0].error_code


def test_a_replica_that_is_not_there_yet_is_made_where_the_operator_wants(rig):
    assert move(rig, rig.two, "later", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(rig, "/elsewhere", "orders", 0) == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(rig, rig.one, "orders", 0) == ErrorCode.NONE
    rig.disk.fail(rig.two)
    rig.advance(CHECKPOINT_MS)
    assert move(rig, rig.two, "orders", 0) == ErrorCode.KAFKA_STORAGE_ERROR
