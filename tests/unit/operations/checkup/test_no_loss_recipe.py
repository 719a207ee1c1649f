"""The doctor holds a topic against the no-loss recipe and says what to do."""

from __future__ import annotations

from headrace.client.admin.topics import PartitionDescription, Setting, TopicDescription
from headrace.operations.checkup.finding import Finding, FindingState
from headrace.operations.checkup.topic import check_topic

SAFE = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
}


def look(
    *, copies: int = 3, in_sync: int | None = None, durability: str | None = None, **changes: str
) -> dict[str, Finding]:
    replicas = list(range(1, copies + 1))
    isr = replicas[: copies if in_sync is None else in_sync]
    partitions = [PartitionDescription(n, isr[0] if isr else None, replicas, isr) for n in range(2)]
    values = SAFE | {name.replace("_", "."): value for name, value in changes.items()}
    settings = {name: Setting(value, "default") for name, value in values.items()}
    topic = TopicDescription("orders", "id", False, partitions, settings)
    found = check_topic(topic, brokers=max(copies, 1), durability=durability)
    return {finding.about: finding for finding in found}


def wrongs(findings: dict[str, Finding]) -> set[str]:
    return {about for about, finding in findings.items() if finding.state == FindingState.WRONG}


def test_the_recipe_itself_has_nothing_wrong() -> None:
    assert not wrongs(look())


def test_one_copy_is_not_safe_and_the_advice_names_the_way_out() -> None:
    findings = look(copies=1, min_insync_replicas="1")
    assert wrongs(findings) == {"replication"}
    assert "headrace.durability=disk" in (findings["replication"].advice or "")


def test_one_copy_that_is_on_disk_first_is_only_to_be_watched() -> None:
    findings = look(copies=1, min_insync_replicas="1", durability="disk")
    assert not wrongs(findings)
    assert findings["replication"].state == FindingState.WATCH


def test_a_leader_that_may_acknowledge_alone_is_wrong() -> None:
    findings = look(min_insync_replicas="1")
    assert wrongs(findings) == {"min ISR"}
    assert "--config min.insync.replicas=2" in (findings["min ISR"].advice or "")


def test_a_minimum_above_the_copies_refuses_every_write() -> None:
    findings = look(copies=3, min_insync_replicas="4")
    assert "every acks=all write is refused" in findings["min ISR"].found


def test_a_minimum_of_all_copies_is_safe_but_fragile() -> None:
    assert look(min_insync_replicas="3")["min ISR"].state == FindingState.WATCH


def test_missing_copies_are_wrong() -> None:
    assert "lack copies" in look(in_sync=2)["in sync"].found
    assert "refuse acks=all" in look(in_sync=1)["in sync"].found
    assert "no leader" in look(in_sync=0)["in sync"].found


def test_unclean_elections_are_wrong() -> None:
    assert wrongs(look(unclean_leader_election_enable="true")) == {"elections"}


def test_short_retention_is_to_be_watched() -> None:
    assert look(retention_ms="3600000")["retention"].state == FindingState.WATCH
    assert look(retention_bytes="1000")["retention"].state == FindingState.WATCH
    assert look(cleanup_policy="compact")["retention"].state == FindingState.WATCH
    assert look(retention_ms="-1")["retention"].state == FindingState.GOOD
