"""The doctor's recipe for clusters: what survives the loss of a broker."""

from __future__ import annotations

from headrace.client.admin.cluster_status import ClusterStatus, NodeStatus
from headrace.client.records import TopicPartition
from headrace.operations.checkup.finding import Finding, FindingState
from headrace.operations.checkup.replication import check_replication

SAFE = {"default.replication.factor": "3", "min.insync.replicas": "2"}


def cluster(*racks: str | None, voters: int = 3) -> ClusterStatus:
    nodes = [
        NodeStatus(number, f"h:{number}", rack, ["broker"], fenced=False)
        for number, rack in enumerate(racks, 1)
    ]
    return ClusterStatus("c", nodes, 1, 1, 1, list(range(1, voters + 1)), [], 10)


def found(status: ClusterStatus, settings: dict[str, str | None]) -> dict[str, Finding]:
    return {finding.about: finding for finding in check_replication(status, settings)}


def test_three_of_everything_is_good() -> None:
    findings = found(cluster(None, None, None), {**SAFE})
    assert {finding.state for finding in findings.values()} == {FindingState.GOOD}
    assert set(findings) == {"nodes", "quorum", "replicas", "new topics", "elections", "racks"}


def test_a_cluster_of_one_is_not_judged() -> None:
    assert check_replication(cluster(None, voters=1), {}) == []


def test_what_is_wrong_comes_with_what_to_type() -> None:
    status = cluster("a", None, "b", voters=1)
    status.nodes[1].fenced = True
    status.single_replica = [TopicPartition("t", 0)]
    settings = {"unclean.leader.election.enable": "true", "default.replication.factor": "1"}
    findings = found(status, {**settings})
    assert findings["nodes"].found == "broker 2 is fenced"
    assert findings["replicas"].advice == "headrace cluster raise-replication --all 3"
    assert (
        findings["quorum"].state is FindingState.WATCH
        and "none may be lost" in findings["quorum"].found
    )
    assert findings["elections"].state is FindingState.WRONG
    assert findings["racks"].advice == "Set broker.rack for every broker."
    assert "default.replication.factor=3" in str(findings["new topics"].advice)


def test_a_cluster_whose_controllers_are_silent_is_not_called_well() -> None:
    status = cluster(None, None, None, voters=0)
    status.no_controller = "No controller has answered in time."
    assert not status.is_well
    finding = found(status, {**SAFE})["quorum"]
    assert finding.state is FindingState.WRONG and "no controller answers" in finding.found


def test_min_isr_is_one_below_the_replicas() -> None:
    status = cluster("a", "b", "c")
    for minimum, said in (("1", "min.insync.replicas=2"), ("3", "one broker down stops acks=all")):
        finding = found(status, {**SAFE, "min.insync.replicas": minimum})["new topics"]
        assert finding.state is FindingState.WATCH
        assert said in f"{finding.found} {finding.advice}"


def test_partitions_that_refuse_writes_come_before_those_that_lack_a_replica() -> None:
    status = cluster(None, None, None)
    status.under_replicated = [TopicPartition("t", 0)]
    assert found(status, {**SAFE})["replicas"].state is FindingState.WATCH
    status.under_min_isr = [TopicPartition("t", 0)]
    assert "refuse acks=all" in found(status, {**SAFE})["replicas"].found
