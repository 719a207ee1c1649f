"""Three brokers as threads of the test's own process: killed, cut off, and brought back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.testing import Cluster
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import vote
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
            on_delivery=lambda error, _: refused.append(error) if error else None,
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


def test_an_outsider_cannot_speak_to_the_controllers(tmp_path: Path) -> None:
    with Cluster(brokers=3, data=tmp_path / "node", processes=False) as cluster:
        plan = json.loads((tmp_path / "node" / "headrace-cluster.json").read_bytes())
        plain = ClientSettings({"bootstrap.servers": cluster.bootstrap})
        for node in plan["nodes"]:
            # The request that used up all epochs of a quorum.
            request = vote_of(cluster_id=plan["cluster_id"], epoch=(1 << 31) - 1)
            with (
                pytest.raises(ClientError),
                Wire(plain, ("localhost", node["controller_port"])) as wire,
            ):
                wire.ask(vote, request, version=0)
        create(cluster, "orders")
        write(cluster, "orders", range(10))


def test_a_vote_for_the_last_epoch_changes_nothing_where_everybody_may_ask(tmp_path: Path) -> None:
    opened = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    folder = tmp_path / "node"
    with Cluster(brokers=3, data=folder, settings=opened, processes=False) as cluster:
        plan = json.loads((folder / "headrace-cluster.json").read_bytes())
        plain = ClientSettings({"bootstrap.servers": cluster.bootstrap})
        for node in plan["nodes"]:
            request = vote_of(cluster_id=plan["cluster_id"], epoch=(1 << 31) - 1)
            with Wire(plain, ("localhost", node["controller_port"])) as wire:
                answer = wire.ask(vote, request, version=0)
            (topic,) = answer.topics
            assert topic.partitions[0].error_code == ErrorCode.INVALID_REQUEST
        create(cluster, "orders")
        write(cluster, "orders", range(10))


def vote_of(*, cluster_id: str, epoch: int) -> vote.VoteRequest:
    asked = vote.RequestPartitionData(
        replica_epoch=epoch, replica_id=9, last_offset_epoch=0, last_offset=1_000_000
    )
    topic = vote.RequestTopicData(topic_name="__cluster_metadata", partitions=[asked])
    return vote.VoteRequest(cluster_id=cluster_id, topics=[topic])
