"""The disk of one of three brokers is full: others lead, acks=all does not wait for it, and it
comes back when there is room."""

import logging

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_log_dirs
from tests.unit.node.broker.folders.filling_disk import make_room_for_rigs
from tests.unit.node.broker.replicas.replicating import ReplicatingCluster

NONE, NO_ROOM = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def room(monkeypatch):
    return make_room_for_rigs(monkeypatch)


@pytest.fixture
def cluster(tmp_path, room):
    cluster = ReplicatingCluster(tmp_path)
    cluster.create(min_insync_replicas=2)
    assert cluster.produce("before").error_code == NONE
    cluster.run(1_000)
    return cluster


def fill(room, member, *, is_full=True):
    def refuses(path):
        return is_full and path.startswith(f"{member.folder}/")

    room.refuses = room.refuses_file = refuses


def test_a_leader_that_cannot_append_gives_up_and_comes_back(cluster, room, caplog):
    leader = cluster.leader()
    fill(room, leader)
    with caplog.at_level(logging.WARNING):
        assert cluster.produce("refused").error_code == NO_ROOM
        cluster.run_until(lambda: cluster.partition().leader != leader.id, within_ms=2_000)
        for number in range(3):
            assert cluster.produce(f"meanwhile {number}").error_code == NONE
        cluster.run(60_000)
        assert leader.id not in cluster.partition().isr
        assert cluster.produce("later").error_code == NONE
        fill(room, leader, is_full=False)
        cluster.run_until(lambda: leader.id in cluster.partition().isr)
    assert leader.values() == cluster.leader().values()
    assert caplog.text.count("refuses appends (No space left on device): partitions") == 1
    assert caplog.text.count("takes appends again") == 1
    assert caplog.text.count("this broker gives its leadership") == 1


def test_a_follower_that_cannot_append_leaves_the_isr_at_once(cluster, room):
    """Else acks=all would wait for `replica.lag.time.max.ms`, 30 s."""
    follower = cluster.followers()[0]
    fill(room, follower)
    assert cluster.produce("meanwhile").error_code == NONE
    assert follower.id not in cluster.partition().isr, "it does not have what was acknowledged"
    fill(room, follower, is_full=False)
    cluster.run_until(lambda: follower.id in cluster.partition().isr)
    assert follower.values() == ["before", "meanwhile"]


def test_a_leader_without_another_in_sync_replica_stays(cluster, room, caplog):
    leader, others = cluster.leader(), cluster.followers()
    for other in others:
        cluster.cut(other.id)
    cluster.run_until(lambda: cluster.partition().isr == (leader.id,), within_ms=120_000)
    fill(room, leader)
    assert cluster.produce("refused", acks=1).error_code == NO_ROOM
    cluster.run(20_000)
    assert cluster.partition().leader == leader.id
    assert "gives its leadership" not in caplog.text
    assert leader.fetch("orders", 0).error_code == NONE


def test_a_replica_that_is_elected_on_a_full_disk_declines(cluster, room):
    """A new leader writes its epoch first. The disk is full before anything is appended."""
    leader, (second, third) = cluster.leader(), cluster.followers()
    fill(room, second)
    cluster.cut(leader.id)
    cluster.run_until(lambda: cluster.partition().leader == third.id, within_ms=60_000)
    assert second.id not in cluster.partition().isr


def test_a_full_disk_has_no_usable_bytes(cluster, room):
    leader = cluster.leader()
    request = describe_log_dirs.DescribeLogDirsRequest(None)
    [before] = leader.ask(describe_log_dirs, request).results
    assert before.usable_bytes > 0
    fill(room, leader)
    cluster.produce("refused")
    [full] = leader.ask(describe_log_dirs, request).results
    assert (full.usable_bytes, full.error_code) == (0, NONE)
