"""The data folder over starts, deletions and shutdowns."""

import pytest

from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_folder import LogFolder, partition_of
from headrace.node.storage.log_settings import LogSettings
from headrace.wire.protocol.errors import KafkaError
from tests.unit.node.storage.a_log import NOW, WatchedDisk, batch

TOPIC_ID = bytes(range(16))
UNIQUE = "0123456789abcdef" * 2


class Folder:
    """A data folder and the node that would hold it."""

    def __init__(self, path, disk=None, *, loads=True):
        self.path = str(path)
        self.disk = disk or RealDisk()
        self.unwritten, self.wants_flush = Unwritten(), []
        self.folder = LogFolder(
            OpenFiles(self.disk),
            self.path,
            unwritten=self.unwritten,
            wants_flush=self.wants_flush,
        )
        if loads:
            for _ in self.folder.load(lambda topic: LogSettings(segment_bytes=2000), wall_ms=NOW):
                pass

    def create(self, topic, index=0):
        settings = LogSettings(segment_bytes=2000)
        return self.folder.create(topic, index, TOPIC_ID, settings, wall_ms=NOW)

    def append(self, topic, count, index=0):
        for _ in range(count):
            data = memoryview(bytearray(batch(b"x" * 300)))
            self.folder.logs[topic, index].writer.append(data, leader_epoch=0, wall_ms=NOW)
        self.end_turn()

    def end_turn(self):
        for log in self.unwritten:
            log.write_pending()
        self.unwritten.clear()

    def flush(self):
        """What the flusher's thread does for those on the list."""
        for log in self.wants_flush:
            flush = log.flush_target()
            if flush is not None:
                flush.run(self.disk)
                log.flushed(flush)
        self.wants_flush.clear()

    def checkpoint(self):
        for path, data in self.folder.checkpoints():
            self.disk.write_file(path, [data])


def test_a_partition_has_its_folder_and_its_topic_id(tmp_path):
    folder = Folder(tmp_path)
    folder.create("orders", 3)
    path = tmp_path / "orders-3" / "partition.metadata"
    assert path.read_bytes() == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    again = Folder(tmp_path)
    assert list(again.folder.logs) == [("orders", 3)]
    assert again.folder.topic_ids == {("orders", 3): TOPIC_ID}


def test_a_new_folder_asks_for_a_flush_that_includes_its_names(tmp_path):
    folder = Folder(tmp_path)
    log = folder.create("orders")
    assert folder.wants_flush == [log]
    flush = log.flush_target()
    assert flush.folders == [f"{tmp_path}/orders-0", str(tmp_path)]
    assert {file.path.rpartition("/")[2] for file in flush.files} == {
        "partition.metadata",
        "leader-epoch-checkpoint",
    }
    assert log.flush_target() is None


def test_a_clean_shutdown_and_start(tmp_path):
    folder = Folder(tmp_path)
    folder.create("orders")
    folder.append("orders", 20)
    folder.folder.close(broker_epoch=7, high_watermarks={("orders", 0): 20})
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":7}'
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert (tmp_path / name).read_bytes() == b"0\n1\norders 0 20\n"
    again = Folder(tmp_path, disk := WatchedDisk())
    assert disk.flushed_folders == [str(tmp_path)]
    assert again.folder.was_clean and again.folder.last_broker_epoch == 7
    assert again.folder.logs["orders", 0].end_offset == 20
    last = f"{again.folder.logs['orders', 0].active.base_offset:020d}"
    assert disk.read_whole() == {last}
    # The file is gone: a kill from now on is not taken for a clean shutdown.
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert not Folder(tmp_path).folder.was_clean


def files_about_all_logs(tmp_path):
    return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


@pytest.mark.parametrize("ends_cleanly", [True, False])
def test_a_start_that_ends_before_it_has_found_its_logs_says_nothing_of_them(
    tmp_path, ends_cleanly
):
    """It waits for its quorum, an hour perhaps, and is stopped in an orderly way."""
    folder = Folder(tmp_path)
    folder.create("orders")
    folder.append("orders", 20)
    folder.flush()
    folder.folder.logs["orders", 0].delete_records_before(3)
    folder.checkpoint()
    if ends_cleanly:
        folder.folder.close(broker_epoch=7, high_watermarks={("orders", 0): 20})
    before = files_about_all_logs(tmp_path)
    assert (".kafka_cleanshutdown" in before) == ends_cleanly
    waits = Folder(tmp_path, loads=False)
    waits.checkpoint()
    waits.folder.close(broker_epoch=8)
    assert files_about_all_logs(tmp_path) == before
    again = Folder(tmp_path)
    assert again.folder.was_clean == ends_cleanly
    assert again.folder.last_broker_epoch == (7 if ends_cleanly else -1)
    assert again.folder.logs["orders", 0].start_offset == 3


def test_after_a_kill_each_log_begins_at_its_own_recovery_point(tmp_path):
    folder = Folder(tmp_path)
    folder.create("orders")
    folder.append("orders", 20)
    folder.flush()
    folder.checkpoint()
    recovery_point = folder.folder.logs["orders", 0].recovery_point
    assert recovery_point > 10
    folder.append("orders", 1)
    again = Folder(tmp_path, disk := WatchedDisk())
    assert again.folder.logs["orders", 0].end_offset == 21
    assert min(map(int, disk.read_whole())) == recovery_point


def test_a_damaged_checkpoint_means_a_longer_recovery(tmp_path):
    folder = Folder(tmp_path)
    folder.create("orders")
    folder.append("orders", 20)
    folder.flush()
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n9\n")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"\0\0")
    assert Folder(tmp_path).folder.logs["orders", 0].end_offset == 20


def test_deleted_records_stay_deleted(tmp_path):
    folder = Folder(tmp_path)
    log = folder.create("orders")
    folder.append("orders", 10)
    log.delete_records_before(3)
    folder.checkpoint()
    # Nothing says yet that what is left is on the disk: such a start would not be believed.
    assert (tmp_path / "log-start-offset-checkpoint").read_bytes() == b"0\n0\n"
    folder.flush()
    folder.checkpoint()
    assert (tmp_path / "log-start-offset-checkpoint").read_bytes() == b"0\n1\norders 0 3\n"
    assert Folder(tmp_path).folder.logs["orders", 0].start_offset == 3


def test_a_deleted_partition_is_renamed_and_removed_later_or_at_the_next_start(tmp_path):
    folder = Folder(tmp_path)
    log = folder.create("orders")
    folder.append("orders", 3)
    renamed = folder.folder.delete("orders", 0, UNIQUE)
    assert renamed == f"{tmp_path}/orders-0.{UNIQUE}-delete"
    assert folder.folder.logs == {} and folder.folder.topic_ids == {}
    # It stood on the list of those that want a flush, and may still be asked.
    assert folder.wants_flush == [log]
    folder.flush()
    folder.create("orders")
    again = Folder(tmp_path)
    assert again.folder.logs["orders", 0].end_offset == 0
    assert not RealDisk().exists(renamed)


def test_a_reader_of_a_deleted_partition_finishes(tmp_path):
    folder = Folder(tmp_path)
    log = folder.create("orders")
    folder.append("orders", 1)
    found = log.read(0, 1000, up_to=1, at_least_one=True)
    RealDisk().remove_folder(folder.folder.delete("orders", 0, UNIQUE))
    assert len(found.file.read(found.length, found.position)) == found.length
    with pytest.raises(KafkaError):
        log.read(0, 1000, up_to=1, at_least_one=True)


def test_a_long_name_is_shortened_when_it_is_put_aside(tmp_path):
    folder = Folder(tmp_path)
    folder.create("t" * 249)
    renamed = folder.folder.put_aside_stray("t" * 249, 0, UNIQUE)
    name = renamed.rpartition("/")[2]
    assert len(name) == 255 and name.endswith(f"-0.{UNIQUE}-stray")
    assert Folder(tmp_path).folder.logs == {}  # strays are left alone


def test_other_names_are_no_partitions(tmp_path):
    assert partition_of("orders-0") == ("orders", 0)
    assert partition_of("my-topic-12") == ("my-topic", 12)
    for name in (
        "__cluster_metadata-0",
        "orders",
        "meta.properties",
        ".lock",
        "a b-0",
        "x-0.z-delete",
    ):
        assert partition_of(name) is None


def test_a_topic_id_that_was_not_flushed_is_not_known(tmp_path):
    folder = Folder(tmp_path)
    folder.create("orders")
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(b"")
    again = Folder(tmp_path)
    assert again.folder.topic_ids == {}
    again.folder.assign_topic_id("orders", 0, TOPIC_ID)
    assert Folder(tmp_path).folder.topic_ids == {("orders", 0): TOPIC_ID}


def test_one_partition_is_found_in_each_step(tmp_path):
    """So that a node with thousands of them can answer others meanwhile."""
    folder = Folder(tmp_path)
    for topic in ("orders", "payments"):
        for index in range(3):
            folder.create(topic, index)
    again, asked = Folder(tmp_path, loads=False).folder, []

    def settings_for(topic):
        asked.append(topic)
        return LogSettings()

    found = [len(again.logs) for _ in again.load(settings_for, wall_ms=NOW)]
    assert found == [1, 2, 3, 4, 5, 6] and again.is_loaded
    assert sorted(asked) == ["orders", "payments"], "once for each topic"
