"""A replica whose closed segment is damaged gets it again from the leader, and is in sync then."""

import logging

from headrace.protocol.errors import ErrorCode
from tests.unit.broker.replicas.replicating import ReplicatingCluster
from tests.unit.broker.rig import values_in

VALUES = [f"value {number}" for number in range(9)]


def a_cluster_with_segments(folder, **settings):
    cluster = ReplicatingCluster(folder)
    cluster.create(segment_ms=1_000, **settings)
    for value in VALUES:
        assert cluster.produce(value).error_code == ErrorCode.NONE
        cluster.run(400)
    cluster.run(1_000)
    return cluster


def damage(member, segment=1):
    """Flip a bit in the middle of a closed segment, and have somebody find it."""
    found = member.replica().log.segments.items[segment]
    assert found is not member.replica().log.active
    path = member.folder / "orders-0" / f"{found.base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found.look_for_damage()
    assert found.damage
    return found.damage[0].first_offset


def test_a_damaged_follower_leaves_the_isr_fetches_again_and_comes_back(tmp_path, caplog):
    cluster = a_cluster_with_segments(tmp_path, min_insync_replicas=2)
    follower = cluster.followers()[0]
    with caplog.at_level(logging.WARNING):
        first = damage(follower)
        assert follower.fetch("orders", first).error_code == ErrorCode.CORRUPT_MESSAGE
        cluster.run_until(lambda: follower.id not in cluster.partition().isr)
        assert cluster.produce("meanwhile").error_code == ErrorCode.NONE
        cluster.run_until(lambda: follower.id in cluster.partition().isr)
    assert follower.values() == cluster.leader().values() == [*VALUES, "meanwhile"]
    assert not follower.replica().log.segments.damage()
    assert f"orders-0: the log is damaged from offset {first} on" in caplog.text


def test_a_damaged_follower_stays_while_too_few_would_be_left(tmp_path):
    cluster = a_cluster_with_segments(tmp_path, min_insync_replicas=3)
    follower = cluster.followers()[0]
    first = damage(follower)
    cluster.run(60_000)
    assert len(cluster.partition().isr) == 3
    assert cluster.produce("meanwhile").error_code == ErrorCode.NONE
    assert follower.fetch("orders", first).error_code == ErrorCode.CORRUPT_MESSAGE
    assert values_in(follower.fetch("orders", 8).records) == [b"value 8"]


def test_a_damaged_leader_repairs_its_log_when_another_leads(tmp_path):
    cluster = a_cluster_with_segments(tmp_path, min_insync_replicas=2)
    leader = cluster.leader()
    first = damage(leader)
    assert leader.fetch("orders", first).error_code == ErrorCode.CORRUPT_MESSAGE
    assert cluster.produce("meanwhile").error_code == ErrorCode.NONE, "its end is sound"
    cluster.cut(leader.id)
    cluster.run_until(lambda: cluster.partition().leader != leader.id)
    cluster.heal()
    cluster.run_until(lambda: not leader.replica().log.segments.damage(), within_ms=120_000)
    cluster.run_until(lambda: leader.id in cluster.partition().isr)
    assert leader.values() == [*VALUES, "meanwhile"]
