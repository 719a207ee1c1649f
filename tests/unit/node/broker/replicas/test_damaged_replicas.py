"""A replica whose closed segment is damaged gets it again from the leader, and is in sync then."""

import logging

from headrace.wire.protocol.errors import ErrorCode
from tests.unit.node.broker.replicas.replicating import ReplicatingCluster
from tests.unit.node.broker.rig import values_in

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
    assert leader.fetch("orders", first).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.produce("meanwhile").error_code == ErrorCode.NONE, "its end is sound"
    cluster.cut(leader.id)
    cluster.run_until(lambda: cluster.partition().leader != leader.id)
    cluster.heal()
    cluster.run_until(lambda: not leader.replica().log.segments.damage(), within_ms=120_000)
    cluster.run_until(lambda: leader.id in cluster.partition().isr)
    assert leader.values() == [*VALUES, "meanwhile"]


def test_a_damaged_leader_gives_up_its_leadership_and_is_repaired(tmp_path, caplog):
    cluster = a_cluster_with_segments(tmp_path, min_insync_replicas=2)
    leader = cluster.leader()
    with caplog.at_level(logging.WARNING):
        first = damage(leader)
        cluster.run_until(lambda: cluster.partition().leader != leader.id, within_ms=2_000)
        assert cluster.produce("meanwhile").error_code == ErrorCode.NONE
        found = cluster.leader().fetch("orders", first)
        assert values_in(found.records)[0] == VALUES[first].encode()
        cluster.run_until(lambda: leader.id in cluster.partition().isr)
    assert leader.values() == [*VALUES, "meanwhile"]
    assert not leader.replica().log.segments.damage()
    assert f"orders-0: the log is damaged from offset {first} on: this broker gives" in caplog.text


def test_a_read_that_finds_damage_counts_as_a_finding_of_the_scrub(tmp_path):
    """A flipped bit in a base offset: a reader is led there by the index, and the headers around
    it contradict it."""
    cluster = a_cluster_with_segments(tmp_path, min_insync_replicas=2)
    leader = cluster.leader()
    segment = leader.replica().log.segments.items[1]
    path = leader.folder / "orders-0" / f"{segment.base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[7] ^= 4
    path.write_bytes(data)
    segment.unread_to = segment.size  # as after a start
    segment.recent.clear()
    segment.less_recent.clear()
    cluster.run(1_000)
    assert cluster.partition().leader == leader.id, "nothing is known yet"
    found = leader.fetch("orders", segment.base_offset)
    assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.run_until(lambda: cluster.partition().leader != leader.id, within_ms=2_000)


def test_readers_look_for_another_leader_only_where_there_will_be_one(tmp_path):
    """CORRUPT_MESSAGE ends most consumers, KAFKA_STORAGE_ERROR has them look for the leader."""
    cluster = a_cluster_with_segments(tmp_path, min_insync_replicas=3)
    first_leader = cluster.leader()
    first = damage(first_leader)
    assert first_leader.fetch("orders", first).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for member in cluster.followers():
        damage(member)
    cluster.run(120_000)
    answer = cluster.leader().fetch("orders", first)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE, "all are damaged there"


def test_a_damaged_leader_without_another_in_sync_replica_continues(tmp_path):
    cluster = a_cluster_with_segments(tmp_path, min_insync_replicas=1)
    leader, others = cluster.leader(), cluster.followers()
    for other in others:
        cluster.cut(other.id)
    cluster.run_until(lambda: cluster.partition().isr == (leader.id,), within_ms=120_000)
    first = damage(leader)
    cluster.run(60_000)
    assert cluster.partition().leader == leader.id
    assert leader.fetch("orders", first).error_code == ErrorCode.CORRUPT_MESSAGE
    assert values_in(leader.fetch("orders", 8).records) == [b"value 8"]
    cluster.heal()
    cluster.run_until(lambda: cluster.partition().leader != leader.id, within_ms=120_000)


def test_a_damaged_replica_that_is_elected_hands_its_leadership_on(tmp_path):
    """It is in the ISR, since too few would be left without it."""
    cluster = a_cluster_with_segments(tmp_path, min_insync_replicas=3)
    leader, (second, third) = cluster.leader(), cluster.followers()
    damage(second)
    cluster.run(5_000)
    assert set(cluster.partition().isr) == {leader.id, second.id, third.id}
    cluster.cut(leader.id)
    cluster.run_until(lambda: cluster.partition().leader == second.id, within_ms=120_000)
    cluster.run_until(lambda: cluster.partition().leader == third.id, within_ms=2_000)
