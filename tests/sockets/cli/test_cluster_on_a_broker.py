"""`headrace cluster` on a cluster of one: what it tells, and what it cannot do there."""

from __future__ import annotations

from tests.sockets.cli.conftest import CommandLine


def test_status_tells_nodes_quorum_and_partitions(headrace: CommandLine) -> None:
    headrace("topics", "create", "orders", "--partitions", "3")
    told = headrace.json("cluster", "status")
    [node] = told["nodes"]
    assert node["roles"] == ["broker", "controller"] and not node["fenced"]
    assert node["address"] == headrace.bootstrap and node["leads"] >= 3
    assert told["quorum"]["leader"] == 1 and told["quorum"]["voters"] == [1]
    assert "orders-2" in told["single_replica"]
    assert told["well"] and not told["offline"] and told["leader_skew_percent"] == 0
    shown = headrace("cluster", "status")
    assert "quorum: node 1 leads" in shown
    assert "every partition has a leader" in shown


def test_balance_moves_nothing_where_the_preferred_ones_lead(headrace: CommandLine) -> None:
    headrace("topics", "create", "--if-missing", "orders")
    told = headrace.json("cluster", "balance")
    assert told == {"moved": [], "not_preferred": []}
    assert headrace("cluster", "balance") == "0 partitions got another leader.\n"


def test_more_replicas_than_brokers_are_refused(headrace: CommandLine) -> None:
    headrace("topics", "create", "--if-missing", "orders")
    said = headrace.failure("cluster", "raise-replication", "--all", "3")
    assert said == "Only 1 broker is alive: 3 replicas have no room."
    assert "--to N" in headrace.failure("cluster", "raise-replication", "orders")
    assert "--to N" in headrace.failure("cluster", "raise-replication", "--to", "3")
    assert headrace("cluster", "raise-replication", "orders", "--to", "1") == (
        "Every partition has 1 replicas or more.\n"
    )
    assert headrace.json("cluster", "raise-replication", "--all", "1", "--dry-run") == {}
