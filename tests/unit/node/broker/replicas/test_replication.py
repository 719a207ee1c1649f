"""Brokers that follow one another: what reaches whom, and what becomes of it when one is away."""

import pytest

from headrace.node.broker.replicas import in_sync_upkeep, replica_fetching
from headrace.node.metadata.config_definitions.cluster import RACK_AWARE
from headrace.node.process.metrics.replica_metrics import replica_families
from headrace.prometheus_text import render
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import delete_records, delete_topics, fetch, produce
from tests.unit.node.broker.replicas.replicating import ReplicatingCluster
from tests.unit.node.broker.rig import WAITS, fetch_request, only_partition, values_in


@pytest.fixture
def cluster(tmp_path):
    return ReplicatingCluster(tmp_path)


def everywhere(cluster, topic="orders", index=0):
    replicas = cluster.partition(topic, index).replicas
    return [cluster.members[each].values(topic, index) for each in replicas]


def test_records_reach_all_replicas_and_are_acknowledged_then(cluster):
    cluster.create()
    leader = cluster.leader()
    producer = leader.connect()
    assert leader.produce("orders", "a", "b", session=producer) == WAITS
    assert leader.fetch("orders").records == b"", "nobody reads what is not committed"
    cluster.run(50)
    answer = leader.answer_on(producer, produce, 12).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert everywhere(cluster) == [["a", "b"]] * 3
    assert values_in(leader.fetch("orders").records) == [b"a", b"b"]
    cluster.run(1_000)
    assert [member.replica().high_watermark for member in cluster.members.values()] == [2] * 3


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(cluster):
    cluster.create(min_insync_replicas=2)
    assert cluster.produce("a").error_code == ErrorCode.NONE
    cluster.cut(3)
    assert cluster.leader().produce("orders", "b") == WAITS, "broker 3 is still in sync"
    cluster.run_until(lambda: 3 not in cluster.partition().isr)
    assert cluster.produce("c").error_code == ErrorCode.NONE
    assert cluster.members[3].values() == ["a"]
    cluster.heal()
    cluster.run_until(lambda: 3 in cluster.partition().isr)
    assert everywhere(cluster) == [["a", "b", "c"]] * 3


def test_a_deposed_leader_truncates_what_it_alone_had(cluster):
    cluster.create()
    assert cluster.produce("a").error_code == ErrorCode.NONE
    old = cluster.leader()
    cluster.cut(old.id)
    waiting = old.connect()
    assert old.produce("orders", "lost", session=waiting) == WAITS
    cluster.run_until(lambda: cluster.partition().leader != old.id)
    cluster.run(100)
    assert cluster.produce("b").error_code == ErrorCode.NONE
    assert old.values() == ["a", "lost"]
    cluster.heal()
    cluster.run_until(lambda: old.id in cluster.partition().isr)
    assert everywhere(cluster) == [["a", "b"]] * 3
    answer = old.answer_on(waiting, produce, 12).responses[0].partition_responses[0]
    assert answer.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)


def test_below_the_minimum_acks_all_is_refused_and_later_taken_again(cluster):
    cluster.create(min_insync_replicas=2)
    assert cluster.produce("a").error_code == ErrorCode.NONE
    leader = cluster.leader()
    for follower in cluster.followers():
        cluster.cut(follower.id)
    waiting = leader.connect()
    assert leader.produce("orders", "b", session=waiting) == WAITS
    cluster.run_until(lambda: cluster.partition().isr == (leader.id,))
    answer = leader.answer_on(waiting, produce, 12).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    cluster.run(100)
    assert cluster.produce("c").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.produce("c", acks=1).error_code == ErrorCode.NONE
    assert values_in(leader.fetch("orders").records) == [b"a"], "what one has alone is not shown"
    cluster.heal()
    cluster.run_until(lambda: len(cluster.partition().isr) == 3)
    cluster.run(100)
    assert cluster.produce("d").error_code == ErrorCode.NONE
    assert everywhere(cluster) == [["a", "b", "c", "d"]] * 3


def test_a_fetch_that_is_never_answered_is_sent_again_in_a_new_session(cluster):
    cluster.create()
    leader, follower = cluster.leader(), cluster.followers()[0]
    cluster.network.cut(leader.id, follower.id)  # it is heard, and hears nothing
    assert leader.produce("orders", "a", acks=1).error_code == ErrorCode.NONE
    cluster.run(5_000)
    assert follower.values() == []
    sessions = len(leader.node.broker.fetch_sessions)
    cluster.heal()
    cluster.run_until(lambda: follower.values() == ["a"], within_ms=40_000)
    assert len(leader.node.broker.fetch_sessions) <= sessions + 1


def test_many_partitions_are_taken_in_slices(cluster, monkeypatch):
    monkeypatch.setattr(replica_fetching, "MOST_PARTITIONS_AT_ONCE", 3)
    cluster.create(replicas=[(1, 2)] * 10)
    leader, follower = cluster.members[1], cluster.members[2]
    for index in range(10):
        leader.produce("orders", f"to {index}", partition=index, acks=1)
    follower.slowly = True
    taken = set()
    for _ in range(15):
        cluster.run(2)
        follower.until_idle()
        taken.add(sum(len(follower.values("orders", index)) for index in range(10)))
    assert {3, 7} <= taken, "a step in each turn of the loop"
    follower.slowly = False
    cluster.run(1_000)
    assert everywhere(cluster, index=9) == [["to 9"]] * 2
    assert [follower.replica("orders", index).high_watermark for index in range(10)] == [1] * 10


def test_where_only_the_disk_counts_a_follower_says_what_it_has_flushed(tmp_path):
    cluster = ReplicatingCluster(tmp_path, headrace_durability="disk")
    cluster.create(min_insync_replicas=3)
    assert cluster.produce("a").error_code == ErrorCode.NONE
    slow = cluster.followers()[0]
    slow.flushes_wait = True
    leader, waiting = cluster.leader(), cluster.leader().connect()
    assert leader.produce("orders", "b", session=waiting) == WAITS
    cluster.run(400)
    assert slow.values() == ["a", "b"] and not waiting.outbox
    slow.flushes_wait = False
    slow.until_idle()
    cluster.run(20)
    assert waiting.outbox


def test_a_topic_that_is_deleted_is_fetched_no_more(cluster):
    cluster.create()
    cluster.create("others")
    state = delete_topics.DeleteTopicState("orders")
    request = delete_topics.DeleteTopicsRequest([state], timeout_ms=1_000)
    [result] = cluster.controller.ask(delete_topics, request).responses
    assert result.error_code == ErrorCode.NONE
    cluster.run(1_000)
    fetching = [member.node.broker.replica_fetching for member in cluster.members.values()]
    assert sorted(each.following for each in fetching) == [0, 1, 1]
    assert cluster.produce("a", topic="others").error_code == ErrorCode.NONE


def test_followers_note_how_much_is_committed(cluster):
    cluster.create()
    cluster.produce("a", "b")
    cluster.run(6_000)
    for member in cluster.members.values():
        noted = (member.folder / "replication-offset-checkpoint").read_text()
        assert "orders 0 2" in noted.splitlines()


def test_deleted_records_are_gone_on_every_replica_when_it_is_answered(cluster):
    cluster.create()
    cluster.produce("a", "b", "c")
    leader, waiting = cluster.leader(), cluster.leader().connect()
    part = delete_records.DeleteRecordsPartition(0, 2)
    request = delete_records.DeleteRecordsRequest(
        [delete_records.DeleteRecordsTopic("orders", [part])], 5_000
    )
    assert leader.ask(delete_records, request, session=waiting) == WAITS
    cluster.run_until(lambda: waiting.outbox, within_ms=2_000)
    [result] = leader.answer_on(waiting, delete_records).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 2)
    starts = [member.replica().log.start_offset for member in cluster.members.values()]
    assert starts == [2, 2, 2]
    cluster.cut(cluster.followers()[0].id)
    part.offset = 3
    assert leader.ask(delete_records, request, session=waiting) == WAITS
    cluster.run(5_100)
    [late] = leader.answer_on(waiting, delete_records).topics[0].partitions
    assert (late.error_code, late.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)


def test_a_consumer_is_sent_to_the_replica_in_its_rack(tmp_path):
    cluster = ReplicatingCluster(tmp_path, racks=True, replica_selector_class=RACK_AWARE)
    cluster.create(replicas=[(1, 2, 3)])
    cluster.produce("a")

    def ask(member, rack, offset=0, wait_ms=0, session=None):
        request = fetch_request("orders", offset, max_wait_ms=wait_ms)
        request.rack_id = rack
        answer = member.ask(fetch, request, version=12, session=session)
        return answer if answer == WAITS else only_partition(answer)

    leader, near = cluster.members[1], cluster.members[3]
    assert ask(leader, "r3").preferred_read_replica == 3
    assert not ask(leader, "r3").records
    for rack in ("", "r1", "elsewhere"):
        assert ask(leader, rack).preferred_read_replica == -1
        assert values_in(ask(leader, rack).records) == [b"a"]
    cluster.run(20)
    assert values_in(ask(near, "r3").records) == [b"a"]
    waiting = near.connect()
    assert ask(near, "r3", 1, 500, waiting) == WAITS
    assert leader.produce("orders", "b", acks=1).error_code == ErrorCode.NONE
    cluster.run(30)
    answer = only_partition(near.answer_on(waiting, fetch, 12))
    assert values_in(answer.records) == [b"b"] and answer.high_watermark == 2


def test_a_follower_finds_room_in_a_cache_that_clients_have_filled(tmp_path):
    cluster = ReplicatingCluster(tmp_path, max_incremental_fetch_session_cache_slots=3)
    cluster.create("others", replicas=[(1,)])
    leader = cluster.members[1]
    for _ in range(3):
        request = fetch_request("others", 0)
        request.session_epoch = 0
        assert leader.ask(fetch, request, version=12).session_id
    cluster.create(replicas=[(1, 2, 3)])
    cluster.produce("a")
    kept = leader.node.broker.fetch_sessions
    assert (len(kept), kept.evicted) == (3, 2)
    assert not leader.ask(fetch, request, version=12).session_id, "clients wait for an idle one"


def metrics_of(member):
    lines = render(replica_families(member.node.broker)).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_metrics_tell_who_lags_and_what_is_under_replicated(cluster):
    cluster.create(min_insync_replicas=3)
    cluster.produce("a")
    leader, away = cluster.leader(), cluster.followers()[0]
    cluster.run(1_000)
    shown = metrics_of(leader)
    assert shown["headrace_under_replicated_partitions"] == "0"
    assert shown["headrace_under_min_isr_partitions"] == "0"
    assert int(metrics_of(away)["headrace_replica_fetched_bytes_total"]) > 60
    cluster.cut(away.id)
    cluster.run_until(lambda: away.id not in cluster.partition().isr)
    cluster.produce("b", "c", acks=1)
    cluster.run(100)
    shown = metrics_of(leader)
    assert shown["headrace_under_replicated_partitions"] == "1"
    assert shown["headrace_under_min_isr_partitions"] == "1"
    assert shown["headrace_replica_max_lag_records"] == "2"
    lag = f'headrace_replica_lag_records{{topic="orders",partition="0",replica="{away.id}"}}'
    assert shown[lag] == "2"
    cluster.heal()
    cluster.run_until(lambda: away.id in cluster.partition().isr)
    cluster.run(100)
    shown = metrics_of(leader)
    changes = shown["headrace_isr_shrinks_total"], shown["headrace_isr_expands_total"]
    assert changes == ("1", "1") and lag not in shown


def test_many_partitions_are_looked_after_in_several_ticks(cluster, monkeypatch):
    monkeypatch.setattr(in_sync_upkeep, "MOST_AT_ONCE", 3)
    cluster.create(replicas=[(1, 2)] * 8)
    cluster.network.cut(2, 1)  # it is heard by the controller, and does not fetch
    for index in range(8):
        cluster.members[1].produce("orders", "a", partition=index, acks=1)
    cluster.run_until(lambda: cluster.partition(index=7).isr == (1,), within_ms=60_000)
    cluster.run(1_000)
    assert [cluster.partition(index=index).isr for index in range(8)] == [(1,)] * 8
