"""The console on three brokers while one is killed: pages go on, and say what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.admin.admin import Admin
from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from headrace.client.producer.producer import Producer
from headrace.testing import Cluster
from tests.console.full_cluster import fill
from tests.console.served import Served

PAGES = (
    "/", "/topics", "/topics/orders", "/topics/orders/messages", "/topics/lonely",
    "/topics/lonely/messages", "/groups", "/groups/one?name=billing", "/dead-letters",
    "/dead-letters/orders.billing.dead", "/life?topic=orders&partition=0&offset=1", "/cluster",
    "/transactions", "/security",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        fill(running.bootstrap, hostile=False)
        at = connection(bootstrap=running.bootstrap)
        # One replica on each broker: a third of it is away with any of them.
        Admin(at).topics.create("lonely", partitions=3, replication=1)
        with Producer(at) as producer:
            for partition in range(3):
                producer.send("lonely", f"in {partition}", partition=partition).result(60)
        yield running


def test_pages_go_on_and_say_what_is_missing(cluster: Cluster) -> None:
    at = connection(bootstrap=cluster.bootstrap)
    with Served(cluster.bootstrap) as served:
        visitor = served.visitor()
        before = visitor.get("/cluster").said()
        assert "Brokers 3" in before and "All replicas are in sync" in before
        assert "Role" in before and "voter" in before
        [lonely] = Topics(at).describe(["lonely"])
        gone = lonely.partitions[0].leader
        assert gone is not None
        cluster.kill(gone)
        answers = {path: visitor.get(path) for path in PAGES}  # at once: nobody knows yet
        assert {path: each.status for path, each in answers.items() if each.status != 200} == {}
        while "Brokers 2" not in visitor.get("/cluster").said():
            pass
        for path in PAGES:
            answer = visitor.get(path)
            assert answer.status == 200, (path, answer.said())
        told = visitor.get("/cluster").said()
        assert "Unhealthy partitions" in told and "lonely 0 none" in told
        assert "under-replicated" in visitor.get("/").said()
        partly = visitor.get("/topics/lonely/messages").said()
        assert "Not everything could be read: partition 0" in partly and "in 1" in partly
        cluster.restore(gone)
        while "All replicas are in sync" not in visitor.get("/cluster").said():
            pass
        assert "in 0" in visitor.get("/topics/lonely/messages").said()
