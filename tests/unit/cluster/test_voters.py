"""Voters come and go, lose their disks, and stay away for long."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headrace.node.consensus.first_files import METADATA_FOLDER
from headrace.node.consensus.voters import Voter
from headrace.node.storage.log_folder import STRAY
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import add_raft_voter, remove_raft_voter
from headrace.wire.protocol.messages.no_op_record import NoOpRecord
from tests.unit.cluster.harness import CLIENTS, CLUSTER_ID, FOLDER, Cluster, Member, voter


def ask(cluster: Cluster, at: Member, messages: Any, request: Any) -> Any:
    answers: list[Any] = []
    at.ask(CLIENTS, messages, request, answers.append)
    cluster.wait(lambda: answers)
    return answers[0]


def add(cluster: Cluster, at: Member, new: Voter) -> Any:
    points = [add_raft_voter.Listener(p.listener, p.host, p.port) for p in new.endpoints]
    request = add_raft_voter.AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=10_000,
        voter_id=new.id,
        voter_directory_id=new.directory_id,
        listeners=points,
    )
    return ask(cluster, at, add_raft_voter, request)


def remove(cluster: Cluster, at: Member, old: Voter) -> Any:
    request = remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=old.id, voter_directory_id=old.directory_id
    )
    return ask(cluster, at, remove_raft_voter, request)


def voters_at(member: Member) -> list[int]:
    return [each.id for each in member.node.controller.log.voters.latest]


def test_a_node_that_has_caught_up_becomes_a_voter_by_any_broker() -> None:
    cluster = Cluster(4, voters=3)
    cluster.start()
    cluster.wait_until_ready()
    coming = cluster.members[4]
    assert voters_at(coming) == [1, 2, 3] and not coming.node.controller.is_active
    answer = add(cluster, cluster.members[2], voter(4))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    cluster.wait(lambda: all(voters_at(m) == [1, 2, 3, 4] for m in cluster.members.values()))
    active = cluster.wait_for_controller()
    answer = remove(cluster, cluster.members[4], voter(active.id))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    rest = sorted({1, 2, 3, 4} - {active.id})
    other = cluster.wait_for_controller()
    assert other is not active, "the one that was removed has given up"
    cluster.wait(lambda: voters_at(other) == rest)


def test_a_node_that_was_away_for_long_begins_with_the_leaders_snapshot() -> None:
    small: dict[str, Any] = {
        "metadata_log_max_record_bytes_between_snapshots": 1,
        "metadata_max_retention_bytes": 1,
    }
    cluster = Cluster(3, **small)
    cluster.start()
    cluster.wait_until_ready()
    away = next(m for m in cluster.members.values() if not m.node.controller.is_active)
    away.kill()
    active = cluster.wait_for_controller()
    for number in range(5):
        answers = cluster.create(active, f"topic-{number}", replicas=2)
        cluster.wait(partial(bool, answers))
        assert answers[0].topics[0].error_code == ErrorCode.NONE, answers[0].topics[0].error_message
        cluster.world.run(3_000)
    start = cluster.wait_for_controller().node.controller.log.log.start_offset
    assert start > 0, "the log before the snapshot is gone"
    away.start()
    cluster.wait(lambda: away.node.ready)
    assert len(away.node.broker.image.topics) == 5
    assert away.node.controller.log.log.start_offset > 0


def test_a_node_that_lost_its_disk_is_no_voter_until_it_is_added_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(3)
    cluster.start()
    cluster.wait_until_ready()
    lost = next(m for m in cluster.members.values() if not m.node.controller.is_active)
    lost.kill()
    lost.lose_disk(directory_id=b"another-folder".ljust(16))
    lost.start()
    cluster.wait(lambda: lost.node.ready)
    assert f"node {lost.id} is a voter of the quorum with another data folder" in caplog.text
    quorum = lost.node.controller.log.host.quorum
    assert not quorum.is_voter and voters_at(lost) == [1, 2, 3], "it never votes as the one before"
    active = cluster.wait_for_controller()
    answer = remove(cluster, active, voter(lost.id))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    answer = add(cluster, active, lost.voter)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    cluster.wait(lambda: quorum.is_voter)


def test_a_broker_without_its_metadata_keeps_what_was_made_after_the_leaders_snapshot() -> None:
    """The snapshot does not know the newest topic; the records behind it do."""
    cluster = Cluster(3, brokers=1, metadata_log_max_snapshot_interval_ms=10_000)
    cluster.start()
    cluster.wait_until_ready()
    broker, active = cluster.members[4], cluster.wait_for_controller()
    log = active.node.controller.log
    ended_at = cluster.wait(lambda: log.latest_snapshot_end)
    answers = cluster.create(active, "late", replicas=4)
    cluster.wait(lambda: answers and "late" in broker.node.broker.image.topics)
    cluster.world.run(500)
    broker.kill()
    metadata = f"{FOLDER}/{METADATA_FOLDER}"
    for name in broker.disk.list(metadata):
        broker.disk.remove(f"{metadata}/{name}")
    assert "late-0" in broker.disk.list(FOLDER)
    broker.start()
    cluster.wait(lambda: broker.node.controller.log.latest_snapshot_end)
    assert broker.node.controller.log.latest_snapshot_end == ended_at, "it knows no late topic"
    cluster.wait(lambda: broker.node.ready)
    assert not [name for name in broker.disk.list(FOLDER) if name.endswith(STRAY)]


def test_a_node_that_lost_its_disk_leads_again_when_it_has_caught_up() -> None:
    """The metadata name the lost folder for its replicas until it tells where they lie now; whoever
    is in sync in a folder that its broker does not have would never be elected."""
    cluster = Cluster(3, min_insync_replicas=1)
    cluster.start()
    cluster.wait_until_ready()
    active = cluster.wait_for_controller()
    answers = cluster.create(active, "orders", replicas=2, partitions=3)
    cluster.wait(lambda: answers and "orders" in active.node.broker.image.topics)
    lost = next(m for m in cluster.members.values() if m is not active)
    lost.kill()
    lost.lose_disk(directory_id=b"another-folder".ljust(16))
    lost.start()
    cluster.wait(lambda: lost.node.ready)

    def partitions() -> list[Any]:
        return list(active.node.controller.committed_image.topics["orders"].partitions)

    cluster.wait(lambda: all(len(partition.isr) == 2 for partition in partitions()))
    for partition in partitions():
        if lost.id in partition.replicas:
            place = partition.directories[partition.replicas.index(lost.id)]
            assert place == lost.voter.directory_id
    shared = next(
        index
        for index, partition in enumerate(partitions())
        if lost.id in partition.replicas and active.id not in partition.replicas
    )
    other = next(m for m in cluster.members.values() if m not in (active, lost))
    other.stop()
    cluster.wait(lambda: partitions()[shared].leader == lost.id)


def test_a_removed_controller_decides_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    """It is deposed with the commit of its own removal; who listens to that commit may still ask it
    for a change, such as an in-sync replica that has caught up."""
    cluster = Cluster(3, seed=4)  # whose delays let both commits come together
    cluster.start()
    cluster.wait_until_ready()
    active = cluster.wait_for_controller()
    controller, refusals = active.node.controller, []

    def ask_for_a_change(image: Any) -> None:
        if not controller.log.host.leads:
            with pytest.raises(KafkaError) as refused:
                controller.append([NoOpRecord()], active.clock)
            refusals.append(refused.value.code)

    controller.on_committed.append(ask_for_a_change)
    request = remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=active.id, voter_directory_id=active.voter.directory_id
    )
    answers: list[Any] = []
    active.ask(CLIENTS, remove_raft_voter, request, answers.append)
    controller.append([NoOpRecord()], active.clock)  # committed together with the removal
    cluster.wait(lambda: cluster.wait_for_controller() is not active)
    assert not controller.is_active
    assert set(refusals) == {ErrorCode.NOT_CONTROLLER}
    assert "failed" not in caplog.text


def test_an_old_snapshot_that_a_power_cut_brings_back_costs_no_record() -> None:
    """Its removal was not flushed. The log then seems to begin earlier than the epochs that are
    noted of it, which once counted as another log than the newest snapshot's: all of it was cut,
    records that the quorum had committed too."""
    small: dict[str, Any] = {
        "metadata_log_max_record_bytes_between_snapshots": 1_000,
        "metadata_max_retention_bytes": 1_000,
    }
    cluster = Cluster(3, **small)
    cluster.start()
    cluster.wait_until_ready()
    active = cluster.wait_for_controller()
    member = next(m for m in cluster.members.values() if m is not active)
    folder = f"{FOLDER}/{METADATA_FOLDER}"
    oldest = next(n for n in member.disk.list(folder) if n.endswith(".checkpoint"))
    content = member.disk.read_file(f"{folder}/{oldest}")
    for number in range(6):
        answers = cluster.create(active, f"topic-{number}", replicas=2)
        cluster.wait(partial(bool, answers))
        cluster.world.run(1_500)
    before = member.node.controller.log
    latest = before.latest_snapshot_end
    cluster.wait(lambda: not member.disk.exists(f"{folder}/{oldest}"))
    end_offset = before.log.end_offset
    assert latest is not None and latest < end_offset, "some records are in no snapshot"
    member.kill(loses=False)
    member.disk.write_file(f"{folder}/{oldest}", [content])
    member.start()
    assert member.node.controller.log.log.end_offset == end_offset
