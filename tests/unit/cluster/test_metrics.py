"""What three nodes tell Prometheus of their replicas and their quorum, while one of them dies."""

from __future__ import annotations

from headrace.node.process.metrics.node_families import quorum_families
from headrace.node.process.metrics.replica_metrics import replica_families
from tests.unit.cluster.harness import Member
from tests.unit.cluster.test_replicas import Replicated


def told(member: Member) -> dict[str, float]:
    families = [*replica_families(member.node.broker), *quorum_families(member.node)]
    samples = {family.name.removeprefix("headrace_"): list(family.samples) for family in families}
    return {name: each[0][1] for name, each in samples.items() if len(each) == 1 and not each[0][0]}


def test_a_leader_dies_and_comes_back() -> None:
    cluster = Replicated()
    cluster.produce("a")
    cluster.world.run(2_000)
    leader = cluster.leader()
    assert leader is not None
    before = {member.id: told(member) for member in cluster.members.values()}
    assert sum(each["active_controller"] for each in before.values()) == 1
    assert sum(each["leaders"] for each in before.values()) == 1
    for each in before.values():
        assert each["replicas"] == 1 and each["quorum_voters"] == 3 and each["quorum_is_voter"] == 1
        assert each["under_replicated_partitions"] == each["offline_partitions"] == 0
        assert each["quorum_lag_records"] == each["fenced_brokers"] == 0
        assert each["broker_unfenced"] == 1 and each["leader_elections_total"] == 0
    leader.kill()
    cluster.produce("b")
    cluster.wait(lambda: len(cluster.isr()) == 2)
    cluster.world.run(2_000)
    alive = [told(member) for member in cluster.members.values() if member.is_up]
    [active] = [each for each in alive if each["active_controller"]]
    assert active["leader_elections_total"] == 1 and active["unclean_leader_elections_total"] == 0
    assert active["quorum_epoch"] >= max(each["quorum_epoch"] for each in before.values())
    assert [each["fenced_brokers"] for each in alive] == [1, 1]
    [leads] = [each for each in alive if each["leaders"]]
    assert leads["under_replicated_partitions"] == 1 and leads["under_min_isr_partitions"] == 0
    leader.start()
    cluster.wait(lambda: len(cluster.isr()) == 3)
    after = [told(member) for member in cluster.members.values()]
    assert sum(each["isr_expands_total"] for each in after) >= 1
    assert sum(each["under_replicated_partitions"] for each in after) == 0
    assert sum(each["replica_fetches_total"] for each in after) > 0
