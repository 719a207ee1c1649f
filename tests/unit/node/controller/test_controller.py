"""The controller's life on real files: start, decide, commit, stop, come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.node.controller import snapshot_schedule
from headrace.node.controller.controller_settings import ControllerSettings
from headrace.node.metadata.image import NO_LEADER, MetadataImage
from headrace.node.serving.api import WaitingRequest
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.begin_transaction_record import BeginTransactionRecord
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.no_op_record import NoOpRecord
from headrace.wire.protocol.messages.register_broker_record import RegisterBrokerRecord
from headrace.wire.protocol.messages.topic_record import TopicRecord
from tests.unit.node.consensus.quorum_of_one import QuorumOfOne


def test_a_new_cluster_has_its_levels_and_its_broker_alive(tmp_path: Path) -> None:
    image = QuorumOfOne(tmp_path).controller.committed_image
    assert image.metadata_version == 30 and image.features["transaction.version"] == 2
    assert image.finalized_features == {**image.features, "kraft.version": 1}
    assert image.config(4, "") == {"min.insync.replicas": "1"}
    broker = image.brokers[1]
    assert broker.alive and broker.endpoints[0].port == 9092
    assert broker.epoch == 13, "the offset of its registration"
    assert QuorumOfOne(tmp_path).controller.broker_epoch > broker.epoch
    assert image.controllers[1].endpoints[0].name == "CONTROLLER"


def test_a_decision_counts_at_once_for_the_next_and_for_others_when_it_is_flushed(
    tmp_path: Path,
) -> None:
    quorum = QuorumOfOne(tmp_path)
    controller = quorum.controller
    seen: list[MetadataImage] = []
    controller.on_committed.append(seen.append)
    quorum.create("orders")
    assert "orders" in controller.image.topics
    assert "orders" not in controller.committed_image.topics and not seen
    assert quorum.create("orders").topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    quorum.flush()
    assert "orders" in controller.committed_image.topics
    assert seen == [controller.committed_image]


def test_an_answer_waits_for_the_flush_and_comes_after_the_listeners(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    controller = quorum.controller
    order: list[str] = []
    controller.on_committed.append(lambda image: order.append("listener"))
    waiting = controller.commit([NoOpRecord()], "done", quorum.now)
    assert isinstance(waiting, WaitingRequest)
    waiting.complete = order.append
    quorum.purgatory.add(waiting)
    quorum.purgatory.try_woken()
    assert order == []
    quorum.flush()
    assert order == ["listener", "done"]
    assert controller.commit((), "at once", quorum.now) == "at once", "nothing is on its way"


def test_one_flush_serves_many_and_what_comes_meanwhile_asks_again(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    controller = quorum.controller
    answers: list[str] = []

    def wait_for(name: str) -> None:
        waiting = controller.commit([NoOpRecord()], name, quorum.now)
        assert isinstance(waiting, WaitingRequest)
        waiting.complete = answers.append
        quorum.purgatory.add(waiting)

    wait_for("first")
    wait_for("second")
    assert quorum.wants_flush == [quorum.log.host]
    flush = quorum.wants_flush.pop().flush_target()
    wait_for("third")
    assert quorum.wants_flush == [quorum.log.host]
    flush.run(quorum.disk)
    quorum.log.host.flushed(flush)
    quorum.purgatory.try_woken()
    assert answers == ["first", "second"]
    quorum.flush()
    assert answers == ["first", "second", "third"]


def test_a_request_whose_time_is_up_gets_its_late_answer(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    waiting = quorum.controller.commit(
        [NoOpRecord()], "done", quorum.now, timeout_ms=500, late=lambda answer: f"{answer} late"
    )
    assert (
        isinstance(waiting, WaitingRequest) and waiting.deadline_ms == quorum.now.monotonic_ms + 500
    )
    assert waiting.attempt(False) is None
    assert waiting.attempt(True) == "done late"


def test_what_the_disk_refuses_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = QuorumOfOne(tmp_path)
    before = quorum.controller.image

    def full(data: Any) -> None:
        raise OSError(28, "No space left on device")

    file = quorum.storage.active.open_file()
    monkeypatch.setattr(type(file), "append", lambda self, data: full(data))
    with pytest.raises(KafkaError) as refusal:
        quorum.create("orders")
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert quorum.controller.image is before
    monkeypatch.undo()
    quorum.create("visits")
    quorum.flush()
    assert set(QuorumOfOne(tmp_path).controller.image.topics) == {"visits"}


def test_an_orderly_stop_hands_over_and_the_next_start_takes_back(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.create("orders", 2)
    quorum.stop()
    left = quorum.controller.committed_image
    assert left.brokers[1].fenced and left.brokers[1].in_controlled_shutdown
    for partition in left.topics["orders"].partitions:
        assert partition.leader == NO_LEADER and partition.isr == ()
        assert partition.eligible_leader_replicas == partition.last_known_elr == (1,)

    back = QuorumOfOne(tmp_path).controller.committed_image
    for partition in back.topics["orders"].partitions:
        assert (partition.leader, partition.isr) == (1, (1,))
        assert (partition.leader_epoch, partition.partition_epoch) == (2, 2), "as Apache counts"
        assert not partition.eligible_leader_replicas and not partition.last_known_elr


def test_after_a_kill_the_same_leader_begins_a_new_epoch(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.create("orders")
    quorum.flush()
    (partition,) = QuorumOfOne(tmp_path).controller.image.topics["orders"].partitions
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 1, (1,))


def test_other_brokers_of_a_taken_over_folder_are_fenced(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    other = RegisterBrokerRecord(broker_id=2, broker_epoch=1, fenced=False)
    quorum.controller.append([other], quorum.now)
    quorum.flush()
    assert QuorumOfOne(tmp_path).controller.image.brokers[2].fenced


def test_a_transaction_that_a_dead_controller_left_open_is_aborted(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    begun = [BeginTransactionRecord(name="x"), TopicRecord("never", bytes(15) + b"7")]
    quorum.controller.append(begun, quorum.now)
    quorum.flush()
    image = QuorumOfOne(tmp_path).controller.image
    assert image.transaction is None and not image.topics


def test_a_cluster_of_a_later_release_is_refused(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.controller.append([FeatureLevelRecord("metadata.version", 31)], quorum.now)
    quorum.flush()
    with pytest.raises(KafkaError, match=r"metadata\.version at level 31"):
        QuorumOfOne(tmp_path)


def test_producer_ids_come_in_blocks_that_no_restart_gives_again(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    controller = quorum.controller
    blocks = [
        controller.allocate_producer_ids(1, controller.broker_epoch, quorum.now) for _ in range(2)
    ]
    assert [block.first for block in blocks] == [0, 1000] and blocks[0].size == 1000
    quorum.flush()
    again = QuorumOfOne(tmp_path).controller
    assert again.allocate_producer_ids(1, again.broker_epoch, quorum.now).first == 2000
    for broker_id, epoch, code in (
        (1, again.broker_epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
        (7, 0, ErrorCode.STALE_BROKER_EPOCH),
    ):
        with pytest.raises(KafkaError) as refusal:
            again.allocate_producer_ids(broker_id, epoch, quorum.now)
        assert refusal.value.code == code


def test_snapshots_are_due_by_bytes_or_by_time_and_one_at_a_time(tmp_path: Path) -> None:
    settings = ControllerSettings(snapshot_after_bytes=4_000, snapshot_after_ms=60_000)
    quorum = QuorumOfOne(tmp_path, settings)
    controller = quorum.controller
    controller.tick(quorum.now)
    assert not controller.background
    quorum.create("orders", 50)
    controller.tick(quorum.now)
    quorum.do_background_work()
    first = quorum.log.latest_snapshot_end
    assert 0 < first <= controller.committed_image.offset + 1, "only what is committed"

    quorum.flush()
    controller.tick(quorum.now)
    assert not controller.background, "too few bytes since, too soon"
    quorum.now.monotonic_ms += 60_000
    controller.tick(quorum.now)
    controller.tick(quorum.now)
    quorum.create("visits", 100)
    quorum.flush()
    controller.tick(quorum.now)
    assert len(controller.background) == 1, "the first is still being written"
    quorum.do_background_work()
    controller.tick(quorum.now)
    quorum.do_background_work()
    assert quorum.log.latest_snapshot_end == controller.committed_image.offset + 1

    quorum.now.monotonic_ms += 60_000
    controller.tick(quorum.now)
    assert not controller.background, "nothing new"


def test_the_log_behind_a_snapshot_stays_in_proportion_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_schedule, "SMALLEST_WORTH_A_SNAPSHOT", 500)
    quorum = QuorumOfOne(tmp_path)
    for number in range(100):
        quorum.create(f"topic-{number}")
        quorum.flush()
        quorum.controller.tick(quorum.now)
        quorum.do_background_work()
    ends = [snapshot.end_offset for snapshot in quorum.log.snapshots]
    assert 4 <= len(ends) <= 8, "each about three times as far as the one before"
    assert QuorumOfOne(tmp_path).log.snapshot_bytes == quorum.log.snapshot_bytes


def test_a_snapshot_that_fails_is_tried_again(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path, ControllerSettings(snapshot_after_ms=60_000))
    controller = quorum.controller
    quorum.now.monotonic_ms += 60_000
    controller.tick(quorum.now)
    controller.background.pop().finish(OSError(28, "No space left on device"))
    assert len(quorum.log.snapshots) == 1
    quorum.now.monotonic_ms += 60_000
    controller.tick(quorum.now)
    quorum.do_background_work()
    assert len(quorum.log.snapshots) == 2


def test_an_idle_controller_writes_nothing_unless_it_is_told_to(tmp_path: Path) -> None:
    quiet = QuorumOfOne(tmp_path / "quiet")
    end = quiet.storage.end_offset
    quiet.now.monotonic_ms += 10_000
    quiet.controller.tick(quiet.now)
    assert quiet.storage.end_offset == end

    lively = QuorumOfOne(tmp_path / "lively", ControllerSettings(idle_interval_ms=500))
    end = lively.storage.end_offset
    for _ in range(4):
        lively.now.monotonic_ms += 250
        lively.controller.tick(lively.now)
    assert lively.storage.end_offset == end + 2
