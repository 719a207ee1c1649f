"""Three brokers as threads of the test's own process: killed, cut off, and brought back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from headrace.testing import Cluster
from tests.cluster.test_a_leader_dies import create, leader_of, read_all

LONGEST_S = 120


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, processes=False) as running:
        yield running


def write(cluster: Cluster, topic: str, numbers: range) -> None:
    """All of them are acknowledged by all replicas in sync."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "socket.timeout.ms": 5_000,  # a node that stands still does not end its connections
        }
    )
    refused = []
    for number in numbers:
        producer.produce(
            topic,
            b"%d" % number,
            on_delivery=lambda error, _: refused.append(error) if error else 0,
        )
    assert producer.flush(LONGEST_S) == 0
    assert refused == []


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_leaders_are_killed_and_cut_off(cluster: Cluster) -> None:
    create(cluster, "orders")
    write(cluster, "orders", range(100))
    dead = leader_of(cluster, "orders")
    cluster.kill(dead)
    with pytest.raises(RuntimeError, match=f"Broker {dead} is not running"):
        cluster.kill(dead)
    write(cluster, "orders", range(100, 200))
    cluster.restore(dead)
    away = leader_of(cluster, "orders")
    cluster.cut(away)
    write(cluster, "orders", range(200, 300))
    cluster.restore(away)
    write(cluster, "orders", range(300, 400))
    assert sorted(read_all(cluster, "orders", 400)) == list(range(400))
    with pytest.raises(RuntimeError, match="threads of the test's own process"):
        cluster.pid(1)


@pytest.mark.timeout(600)
def test_the_files_of_threads_are_those_of_processes(tmp_path: Path) -> None:
    with Cluster(brokers=3, data=tmp_path / "node", processes=False) as threads:
        create(threads, "orders")
        write(threads, "orders", range(50))
        threads.cut(2)  # whoever stops goes on first
    with Cluster(data=tmp_path / "node") as processes:
        found = AdminClient({"bootstrap.servers": processes.bootstrap}).list_topics(timeout=60)
        assert len(found.brokers) == 3
        assert sorted(read_all(processes, "orders", 50)) == list(range(50))
