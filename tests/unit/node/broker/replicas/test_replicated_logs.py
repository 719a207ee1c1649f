"""What a follower's log must have besides records, since it may lead next: producers, transactions,
compaction, retention."""

import pytest

from headrace.wire.protocol import record_batch
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import fetch, write_txn_markers
from tests.unit.node.broker.replicas.replicating import ReplicatingCluster
from tests.unit.node.broker.replicas.test_log_cleaner import InThisProcess
from tests.unit.node.broker.rig import build, fetch_request, only_partition

PRODUCER = {"producer_id": 7, "producer_epoch": 0}


@pytest.fixture
def cluster(tmp_path):
    return ReplicatingCluster(tmp_path)


def fail_over(cluster):
    """The leader is cut off, and another takes its place; answers the old one."""
    old = cluster.leader()
    cluster.cut(old.id)
    cluster.run_until(lambda: cluster.partition().leader not in (old.id, -1))
    cluster.run(200)
    return old


def test_a_batch_that_is_sent_again_to_the_next_leader_is_recognised(cluster):
    cluster.create()
    first = cluster.produce("a", "b", base_sequence=0, **PRODUCER)
    second = cluster.produce("c", base_sequence=2, **PRODUCER)
    assert (first.base_offset, second.base_offset) == (0, 2)
    fail_over(cluster)
    again = cluster.produce("c", base_sequence=2, **PRODUCER)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 2)
    gap = cluster.produce("e", base_sequence=4, **PRODUCER)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert cluster.produce("d", base_sequence=3, **PRODUCER).base_offset == 3
    assert cluster.leader().values() == ["a", "b", "c", "d"]


def write_to_transaction(cluster, *values):
    """As a coordinator has admitted it."""
    leader = cluster.leader()
    batch = build(values, cluster.now.wall_ms, base_sequence=0, is_transactional=True, **PRODUCER)
    replica = leader.replica()
    replica.append(memoryview(bytearray(batch)), cluster.now.wall_ms, acks_all=True)
    leader.node.broker.commit_soon(replica)
    leader.until_idle()
    cluster.run(1_000)


def end_transaction(cluster, *, commit):
    leader = cluster.leader()
    topic = write_txn_markers.WritableTxnMarkerTopic("orders", [0])
    marker = write_txn_markers.WritableTxnMarker(7, 0, commit, [topic], 0)
    leader.send(write_txn_markers, write_txn_markers.WriteTxnMarkersRequest([marker]), version=1)
    leader.until_idle()
    cluster.run(1_000)


def committed(member):
    request = fetch_request("orders", 0)
    request.isolation_level = 1
    answer = only_partition(member.ask(fetch, request, version=12))
    aborted = {each.producer_id for each in answer.aborted_transactions}
    found = []
    for position, header in record_batch.headers_in(answer.records):
        if header.is_control or (header.is_transactional and header.producer_id in aborted):
            continue
        batch = answer.records[position : position + header.size]
        found += [record.value for record in record_batch.walk(batch, 1 << 20)]
    return found, answer.last_stable_offset


def test_the_next_leader_knows_which_transactions_are_open(cluster):
    cluster.create()
    cluster.produce("before")
    write_to_transaction(cluster, "t1", "t2")
    cluster.produce("behind")
    cluster.run(1_000)
    assert [committed(member) for member in cluster.members.values()] == [([b"before"], 1)] * 3
    fail_over(cluster)
    leader = cluster.leader()
    assert committed(leader) == ([b"before"], 1)
    end_transaction(cluster, commit=False)
    assert committed(leader) == ([b"before", b"behind"], 5)
    cluster.heal()
    cluster.run_until(lambda: len(cluster.partition().isr) == 3)
    cluster.run(1_000)
    assert [committed(member) for member in cluster.members.values()] == [
        ([b"before", b"behind"], 5)
    ] * 3


def test_followers_compact_their_own_logs(tmp_path):
    runners = {}

    def runner_of(node_id):
        return runners.setdefault(node_id, InThisProcess())

    cluster = ReplicatingCluster(tmp_path, compaction=runner_of)
    cluster.create(cleanup_policy="compact", segment_ms=1_000, min_cleanable_dirty_ratio=0.1)
    for value in ("1", "2", "3"):
        record = record_batch.Record(key=b"k", value=value.encode(), timestamp=cluster.now.wall_ms)
        cluster.produce(records=record_batch.build([record], base_offset=0, leader_epoch=-1))
        cluster.run(2_000)
    cluster.run(16_000)
    for member in cluster.members.values():
        assert member.values() == ["1", "2", "3"]
        runners[member.id].run()
        assert member.values() == ["2", "3"], "the last segment is never compacted"
        assert member.replica().log.end_offset == 3
    fail_over(cluster)
    assert cluster.produce(records=record_batch.build([record])).base_offset == 3


def test_a_follower_that_was_away_follows_the_leaders_compacted_log(tmp_path):
    runner = InThisProcess()
    cluster = ReplicatingCluster(
        tmp_path, compaction=lambda node_id: runner if node_id == 1 else None
    )
    cluster.create(
        replicas=[(1, 2)],
        cleanup_policy="compact",
        segment_ms=1_000,
        min_cleanable_dirty_ratio=0.1,
    )
    cluster.cut(2)
    cluster.run_until(lambda: cluster.partition().isr == (1,))
    for value in ("1", "2", "3"):
        record = record_batch.Record(key=b"k", value=value.encode(), timestamp=cluster.now.wall_ms)
        cluster.produce(records=record_batch.build([record], base_offset=0, leader_epoch=-1))
        cluster.run(2_000)
    cluster.run(16_000)
    while runner.job is not None:
        runner.run()
    assert cluster.members[1].values() == ["2", "3"]
    cluster.heal()
    cluster.run_until(lambda: cluster.partition().isr == (1, 2), within_ms=60_000)
    assert cluster.members[2].values() == cluster.members[1].values() == ["2", "3"]
    assert cluster.members[2].replica().log.end_offset == 3


def test_a_follower_that_was_away_longer_than_retention_begins_where_the_leader_does(cluster):
    cluster.create(retention_ms=60_000, segment_ms=10_000)
    cluster.produce("old")
    away = cluster.followers()[0]
    cluster.cut(away.id)
    cluster.run_until(lambda: away.id not in cluster.partition().isr)
    for value in ("older", "new"):
        cluster.run(70_000)
        assert cluster.produce(value).error_code == ErrorCode.NONE
    cluster.run(400_000)
    start = cluster.leader().replica().log.start_offset
    assert start > 1, "what is too old is gone"
    cluster.heal()
    cluster.run_until(lambda: away.id in cluster.partition().isr, within_ms=60_000)
    assert away.replica().log.start_offset == start
    assert cluster.produce("newest").error_code == ErrorCode.NONE
    cluster.run(100)
    assert away.values() == cluster.leader().values() == ["newest"]
