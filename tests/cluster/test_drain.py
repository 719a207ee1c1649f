"""A broker is drained, and takes part again, on three brokers."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import Cluster
from tests.cluster.test_growth import headrace, replicas_of


def test_a_drained_broker_leads_nothing_and_gets_nothing_new() -> None:
    with Cluster(brokers=3, processes=False) as cluster:
        at = ("-b", cluster.bootstrap)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 6, 3)])["orders"].result(60)
        planned = headrace("cluster", "drain", "2", *at)
        assert len(planned["moves"]) == 2 and not planned["executed"]
        assert any(each.leader == 2 for each in replicas_of(cluster.bootstrap)), "a plan only"
        drained = headrace("cluster", "drain", "2", "--execute", *at)
        assert drained["cordoned"] and drained["leads"] == 0
        nodes = {node["id"]: node for node in headrace("cluster", "status", *at)["nodes"]}
        assert nodes[2]["cordoned"] and nodes[2]["leads"] == 0 and not nodes[1]["cordoned"]
        admin.create_topics([NewTopic("later", 4, 2)])["later"].result(60)
        there = replicas_of(cluster.bootstrap)
        assert all(2 not in each.replicas for each in there if each.place.topic == "later")
        assert all(2 in each.isr for each in there if each.place.topic == "orders")
        back = headrace("cluster", "undrain", "2", "--execute", *at)
        assert len(back["moves"]) == 3
        nodes = {node["id"]: node for node in headrace("cluster", "status", *at)["nodes"]}
        assert not nodes[2]["cordoned"] and nodes[2]["leads"] == 3
