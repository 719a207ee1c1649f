"""The metadata log of one voter: epochs, what a start finds again, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.node.consensus.batches import Batch, batches_in
from headrace.node.consensus.metadata_recovery import UnusableMetadata
from headrace.node.consensus.quorum.believable_epochs import FORGOTTEN_EPOCHS
from headrace.node.consensus.snapshots import SnapshotId
from headrace.node.controller.controller_settings import ControllerSettings
from headrace.wire.protocol.messages.kraft_version_record import KRaftVersionRecord
from headrace.wire.protocol.messages.leader_change_message import LeaderChangeMessage
from headrace.wire.protocol.messages.topic_record import TopicRecord
from headrace.wire.protocol.messages.voters_record import VotersRecord
from tests.unit.node.consensus.quorum_of_one import QuorumOfOne, id_source


def log_file(folder: Path) -> Path:
    return folder / "__cluster_metadata-0" / "00000000000000000000.log"


def batches(folder: Path) -> list[Batch]:
    return list(batches_in(memoryview(log_file(folder).read_bytes())))


def kinds(batch: Batch) -> list[type[Any]]:
    return [type(record) for record in batch.records]


def test_the_first_leader_writes_who_votes_and_later_ones_only_that_they_lead(
    tmp_path: Path,
) -> None:
    QuorumOfOne(tmp_path).stop()
    QuorumOfOne(tmp_path).stop()
    leaders = [batch for batch in batches(tmp_path) if batch.is_control]
    assert [batch.epoch for batch in leaders] == [1, 2]
    assert kinds(leaders[0]) == [LeaderChangeMessage, KRaftVersionRecord, VotersRecord]
    assert kinds(leaders[1]) == [LeaderChangeMessage]


def test_each_start_has_a_new_epoch_that_is_on_disk_before_anything_else(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        quorum = QuorumOfOne(tmp_path)
        assert quorum.log.epoch == quorum.controller.image.epoch == epoch
        state = json.loads((tmp_path / "__cluster_metadata-0" / "quorum-state").read_text())
        assert (state["leaderId"], state["leaderEpoch"]) == (1, epoch)


def test_the_folder_names_its_topic_as_every_partition_does(tmp_path: Path) -> None:
    QuorumOfOne(tmp_path)
    text = (tmp_path / "__cluster_metadata-0" / "partition.metadata").read_bytes()
    assert text == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_a_lost_quorum_state_is_logged_and_cannot_bring_an_epoch_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    QuorumOfOne(tmp_path)
    QuorumOfOne(tmp_path)
    assert not caplog.records, "a new folder has none yet"
    (tmp_path / "__cluster_metadata-0" / "quorum-state").unlink()
    assert QuorumOfOne(tmp_path).log.epoch == 2 + FORGOTTEN_EPOCHS + 1
    (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert "quorum-state is missing" in line
    assert QuorumOfOne(tmp_path).log.epoch == 2 + FORGOTTEN_EPOCHS + 2


def test_a_voter_that_moved_to_another_port_says_so_in_the_log(tmp_path: Path) -> None:
    QuorumOfOne(tmp_path).stop()
    QuorumOfOne(tmp_path, port=9192).stop()
    (moved,) = [b for b in batches(tmp_path) if b.is_control and b.epoch == 2]
    assert moved.records[-1].voters[0].endpoints[0].port == 9193


def test_what_was_decided_is_there_after_a_kill(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.create("orders", 3, retention_ms="1000")
    quorum.flush()
    after = QuorumOfOne(tmp_path, new_id=id_source()).controller.image
    assert len(after.topics["orders"].partitions) == 3
    assert after.topics["orders"].id == quorum.controller.image.topics["orders"].id
    assert after.config(2, "orders") == {"retention.ms": "1000"}


def test_a_batch_that_was_torn_by_a_kill_never_happened(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.create("orders")
    quorum.flush()
    quorum.create("visits", 5)
    file = log_file(tmp_path)
    file.write_bytes(file.read_bytes()[:-7])
    assert set(QuorumOfOne(tmp_path).controller.image.topics) == {"orders"}


def test_wherever_the_log_is_cut_what_is_left_is_what_had_been_decided_until_then(
    tmp_path: Path,
) -> None:
    quorum = QuorumOfOne(tmp_path)
    names = [f"topic-{number}" for number in range(8)]
    for name in names:
        quorum.create(name, 2)
        quorum.flush()
    whole = log_file(tmp_path).read_bytes()
    (tmp_path / "__cluster_metadata-0" / "recovery-point").unlink()  # as in Apache's folders
    for cut in range(len(whole), 0, -41):
        log_file(tmp_path).write_bytes(whole[:cut])
        quorum.open()
        topics = quorum.log.image.topics
        assert list(topics) == names[: len(topics)]
        assert all(len(topic.partitions) == 2 for topic in topics.values())


def test_a_snapshot_stands_for_the_log_before_it(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path, ControllerSettings(snapshot_after_bytes=1))
    quorum.create("orders", 2)
    quorum.flush()
    image = quorum.controller.committed_image
    quorum.controller.tick(quorum.now)
    quorum.do_background_work()
    assert quorum.log.snapshots == [SnapshotId(0, 0), SnapshotId(image.offset + 1, 1)]

    found = QuorumOfOne(tmp_path)
    first_after = next(b for b in batches(tmp_path) if b.base_offset == image.offset + 1)
    assert kinds(first_after) == [LeaderChangeMessage], "the voters are in the snapshot"
    assert found.log.image.topics == image.topics


def test_a_broken_snapshot_is_passed_over_while_the_log_has_everything(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path, ControllerSettings(snapshot_after_bytes=1))
    quorum.create("orders")
    quorum.flush()
    quorum.controller.tick(quorum.now)
    quorum.do_background_work()
    newest = tmp_path / "__cluster_metadata-0" / quorum.log.snapshots[-1].file_name
    newest.write_bytes(newest.read_bytes()[:-1])
    assert set(QuorumOfOne(tmp_path).controller.image.topics) == {"orders"}


def test_old_snapshots_go_with_the_log_before_them_when_they_are_too_many_bytes(
    tmp_path: Path,
) -> None:
    settings = ControllerSettings(snapshot_after_bytes=1, retention_bytes=1)
    quorum = QuorumOfOne(tmp_path, settings, segment_bytes=2_000)
    for number in range(10):
        quorum.create(f"topic-{number}", 5)
        quorum.flush()
        quorum.controller.tick(quorum.now)
        quorum.do_background_work()
    assert len(quorum.log.snapshots) == 1
    assert quorum.storage.start_offset == quorum.log.latest_snapshot_end
    names = sorted(path.name for path in (tmp_path / "__cluster_metadata-0").iterdir())
    assert "00000000000000000000.log" not in names
    assert len([name for name in names if name.endswith(".checkpoint")]) == 1

    again = QuorumOfOne(tmp_path, settings, segment_bytes=2_000)
    assert again.log.image.topics == quorum.controller.image.topics
    assert len(again.controller.image.topics) == 10


def test_old_snapshots_go_when_the_next_one_is_old_enough_to_stand_for_them(
    tmp_path: Path,
) -> None:
    settings = ControllerSettings(snapshot_after_bytes=1, retention_ms=1_000)
    quorum = QuorumOfOne(tmp_path, settings)
    for name in ("orders", "visits", "clicks"):
        quorum.create(name)
        quorum.flush()
        quorum.now.wall_ms += 600
        quorum.controller.tick(quorum.now)
        quorum.do_background_work()
    kept = quorum.log.snapshots
    assert len(kept) == 2 and kept[0] > SnapshotId(0, 0), "the last of them is only 600 ms old"
    assert quorum.storage.start_offset == kept[0].end_offset


def test_a_log_that_lost_its_tail_goes_on_behind_its_snapshot(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path, ControllerSettings(snapshot_after_bytes=1))
    quorum.create("orders")
    quorum.flush()
    quorum.controller.tick(quorum.now)
    quorum.do_background_work()
    end = quorum.log.latest_snapshot_end
    log_file(tmp_path).write_bytes(b"")
    found = QuorumOfOne(tmp_path)
    assert found.storage.start_offset == end and set(found.controller.image.topics) == {"orders"}


def test_a_log_without_the_snapshot_of_what_is_before_it_is_refused(tmp_path: Path) -> None:
    settings = ControllerSettings(snapshot_after_bytes=1, retention_bytes=1)
    quorum = QuorumOfOne(tmp_path, settings, segment_bytes=400)
    for name in ("orders", "visits"):
        quorum.create(name)
        quorum.flush()
        quorum.controller.tick(quorum.now)
        quorum.do_background_work()
    (tmp_path / "__cluster_metadata-0" / quorum.log.snapshots[-1].file_name).unlink()
    with pytest.raises(UnusableMetadata, match="no snapshot"):
        QuorumOfOne(tmp_path)


def test_the_folder_of_another_voter_or_of_another_disk_is_refused(tmp_path: Path) -> None:
    QuorumOfOne(tmp_path).stop()
    with pytest.raises(UnusableMetadata, match="voter"):
        QuorumOfOne(tmp_path, ControllerSettings(node_id=2))
    with pytest.raises(UnusableMetadata, match="another disk"):
        QuorumOfOne(tmp_path, directory_id=b"another".ljust(16))


def test_records_of_a_large_decision_are_one_batch(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.create("orders", 3_000)
    quorum.flush()
    (batch,) = [b for b in batches(tmp_path) if TopicRecord in kinds(b)]
    assert len(batch.records) == 3_001
    assert len(QuorumOfOne(tmp_path).controller.image.topics["orders"].partitions) == 3_000
