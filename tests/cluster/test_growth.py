"""A cluster of one grows in place, and a lost folder is filled again: with real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from headrace.client.admin.cluster import Cluster, Quorum
from headrace.client.admin.placement.replicas import PartitionReplicas, Replicas
from headrace.client.connection import ClientSettings
from headrace.node.consensus.batches import batches_in, whole_batches
from headrace.wire.protocol.messages.voters_record import VotersRecord
from tests.cluster.started import refusal_of, started

RECORDS = 500
READ = 200
GROUP = "readers"
FIRST_SEGMENT = "__cluster_metadata-0/00000000000000000000.log"


def write(bootstrap: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, b"%d" % value)
    assert producer.flush(60) == 0


def read(bootstrap: str, topic: str, count: int, group: str = GROUP) -> list[int]:
    """From where the group is, and its offsets committed."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def begin_transaction(bootstrap: str, topic: str, value: int) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": "payments",
        "transaction.timeout.ms": 600_000,
    }
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"%d" % value)
    producer.flush(60)
    return producer


def quorum_of(bootstrap: str) -> Quorum:
    return Cluster(ClientSettings({"bootstrap.servers": bootstrap})).quorum()


def await_true(what: Callable[[], bool]) -> None:
    """Looks again and again; the test's own time limit is the bound."""
    while not what():
        time.sleep(0.05)


def a_cluster_of_one(data: Path) -> None:
    """With records, a group that has read some of them, and what two transactions wrote."""
    few = [f"{name}.num.partitions=2" for name in ("offsets.topic", "transaction.state.log")]
    with started(data, "--no-console", "--set", few[0], "--set", few[1]) as running:
        bootstrap = running.wait_until_ready().bootstrap
        write(bootstrap, "orders", range(RECORDS))
        assert read(bootstrap, "orders", READ) == list(range(READ))
        done = begin_transaction(bootstrap, "payments", 1)
        done.commit_transaction(60)
        begin_transaction(bootstrap, "payments", 2)  # and never ended
        running.kill_all()


def require_everything(bootstrap: str) -> None:
    assert read(bootstrap, "orders", RECORDS - READ) == list(range(READ, RECORDS)), "goes on there"
    # The next producer of the id ends what the former one left open.
    require_transactions(bootstrap, [1, 3])


def require_transactions(bootstrap: str, values: list[int]) -> None:
    """One more, the last of these; the others were committed before."""
    producer = begin_transaction(bootstrap, "payments", values[-1])
    producer.commit_transaction(60)
    group = f"up to {values[-1]}"
    assert read(bootstrap, "payments", len(values), group) == values


def test_a_folder_of_one_grows_whenever_it_is_killed(tmp_path: Path) -> None:
    """After each moment everything is killed, and the same command goes on."""
    data = tmp_path / "data"
    a_cluster_of_one(data)
    for moment in (
        lambda: (data / "headrace-cluster.json").exists(),
        lambda: (tmp_path / "data-2" / "meta.properties").exists(),
        lambda: (tmp_path / "data-3" / "meta.properties").exists(),
        lambda: len(voters_in(data)) >= 2,
        lambda: len(voters_in(data)) == 3,
        lambda: is_grown(data),
    ):
        with started(data, "--brokers", "3") as growing:
            await_true(moment)
            growing.kill_all()
    with started(data) as running:
        bootstrap = running.wait_until_ready().bootstrap
        assert len(running.pids) == 3, "`headrace start` alone starts all of them"
        assert [voter.id for voter in quorum_of(bootstrap).voters] == [1, 2, 3]
        require_everything(bootstrap)
        await_true(lambda: minimum_in_sync(bootstrap) == "2")
        raised = headrace("cluster", "raise-replication", "--all", "3", "-b", bootstrap)
        assert raised["min_in_sync_raised"] == ["__transaction_state"]
        assert all(len(each.replicas) == len(each.isr) == 3 for each in replicas_of(bootstrap))
        assert {each.replicas[0] for each in replicas_of(bootstrap)} == {1, 2, 3}, "not all of 1"
        require_transactions(bootstrap, [1, 3, 4])
        running.stop()


def voters_in(data: Path) -> set[int]:
    """Whom the metadata log of node 1 names last, committed or not."""
    voters: set[int] = set()
    log = (data / FIRST_SEGMENT).read_bytes()
    for batch in batches_in(memoryview(whole_batches(log))):
        for record in batch.records if batch.is_control else ():
            if isinstance(record, VotersRecord):
                voters = {voter.voter_id for voter in record.voters}
    return voters


def is_grown(data: Path) -> bool:
    path = data / "headrace-cluster.json"
    return path.exists() and json.loads(path.read_bytes())["min_in_sync"] == 2


def minimum_in_sync(bootstrap: str) -> str:
    """Of a new topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = "made-after-growth"
    try:
        admin.create_topics([NewTopic(name, 1, -1)])[name].result(60)
    except KafkaException as refusal:
        assert refusal.args[0].name() == "TOPIC_ALREADY_EXISTS"
    resource = ConfigResource(ResourceType.TOPIC, name)
    try:
        found = admin.describe_configs([resource])[resource].result(60)
    except KafkaException as refusal:  # the broker that was asked has not heard of it yet
        assert refusal.args[0].name() == "UNKNOWN_TOPIC_OR_PART"
        return "not told"
    return str(found["min.insync.replicas"].value)


def test_one_two_three_and_five_brokers(tmp_path: Path) -> None:
    """Two have one controller; the third brings two more, the fourth and fifth none."""
    data = tmp_path / "data"
    a_cluster_of_one(data)
    for brokers, voters in ((2, [1]), (3, [1, 2, 3]), (5, [1, 2, 3])):
        with started(data, "--brokers", str(brokers)) as running:
            bootstrap = running.wait_until_ready().bootstrap
            assert len(running.pids) == brokers
            assert [voter.id for voter in quorum_of(bootstrap).voters] == voters
            if brokers == 5:
                spread(bootstrap)
            running.stop()
    assert "which stay" in refusal_of(data, "--brokers", "2")
    sentence = refusal_of(data, "--brokers", "4")
    assert "still holds" in sentence and "headrace cluster remove-broker 5" in sentence
    with started(data) as running:
        bootstrap = running.wait_until_ready().bootstrap
        assert headrace("cluster", "remove-broker", "5", "-b", bootstrap)["removed"] is False
        assert all(5 not in each.replicas for each in replicas_of(bootstrap))
        running.stop()
    with started(data, "--brokers", "4") as running:
        bootstrap = running.wait_until_ready().bootstrap
        assert headrace("cluster", "remove-broker", "5", "-b", bootstrap)["removed"] is True
        status = headrace("cluster", "status", "-b", bootstrap)
        assert [node["id"] for node in status["nodes"]] == [1, 2, 3, 4]
        listed = headrace("brokers", "list", "-b", bootstrap)["brokers"]
        active = [broker["id"] for broker in listed if broker["controller"]]
        assert active == [status["quorum"]["leader"]]
        require_everything(bootstrap)
        running.stop()


def spread(bootstrap: str) -> None:
    """A topic with replicas on every broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("spread", 10, 3)])["spread"].result(60)
    write(bootstrap, "spread", range(RECORDS))
    assert any(5 in each.replicas for each in replicas_of(bootstrap))


def replicas_of(bootstrap: str) -> list[PartitionReplicas]:
    return Replicas(ClientSettings({"bootstrap.servers": bootstrap})).all()


def headrace(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "headrace", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("node", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_lost_folder_is_filled_again_under_another_id(tmp_path: Path, node: int) -> None:
    data = tmp_path / "data"
    lost = data if node == 1 else data.with_name(f"data-{node}")
    with started(data, "--brokers", "3") as running:
        bootstrap = running.wait_until_ready().bootstrap
        write(bootstrap, "orders", range(RECORDS))
        before = directories(bootstrap)
        # While the cluster runs: the parent starts the node again, on an empty folder.
        running.until("this broker is unfenced")
        os.kill(running.pids[node], signal.SIGSTOP)
        shutil.rmtree(lost)
        os.kill(running.pids[node], signal.SIGKILL)
        await_true(lambda: is_filled(bootstrap, node, before))
        assert read(bootstrap, "orders", RECORDS) == list(range(RECORDS))
        running.stop()
    shutil.rmtree(lost)  # and once more while nothing runs
    between = json.loads((tmp_path / "data-3" / "headrace-cluster.json").read_bytes())
    with started(data) as running:
        bootstrap = running.wait_until_ready().bootstrap
        assert len(running.pids) == 3 and len(between["nodes"]) == 3
        await_true(lambda: is_filled(bootstrap, node, before))
        assert read(bootstrap, "orders", RECORDS, "others") == list(range(RECORDS))
        running.stop()


def directories(bootstrap: str) -> dict[int, str]:
    return {voter.id: voter.directory_id for voter in quorum_of(bootstrap).voters}


def is_filled(bootstrap: str, node: int, before: dict[int, str]) -> bool:
    """It votes under another id, and all replicas are in sync."""
    try:
        voters = directories(bootstrap)
        missing = [
            each
            for each in Replicas(ClientSettings({"bootstrap.servers": bootstrap})).all()
            if each.missing
        ]
    except Exception as away:  # noqa: BLE001  (any node may be away for a moment)
        assert away
        return False
    return not missing and len(voters) == 3 and voters.get(node, before[node]) != before[node]


def test_what_cannot_grow_is_told_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, "--no-console") as running:
        running.wait_until_ready()
        assert "Another process uses" in refusal_of(data, "--brokers", "3")
        running.process.terminate()
        running.process.communicate()
    assert not (data / "headrace-cluster.json").exists(), "nothing was begun"
    with started(tmp_path / "five", "--no-console", "--set", "node.id=5") as running:
        running.wait_until_ready()
        running.process.terminate()
        running.process.communicate()
    assert "folder of node 5" in refusal_of(tmp_path / "five", "--brokers", "3")


def test_two_brokers_without_the_only_controller_are_no_cluster(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, "--brokers", "2") as running:
        running.wait_until_ready()
        # While the cluster runs: broker 1 would begin another cluster in an empty folder.
        os.kill(running.pids[1], signal.SIGSTOP)
        shutil.rmtree(data)
        os.kill(running.pids[1], signal.SIGKILL)
        for _ in range(3):
            running.until("broker 1 | 1 of 1 controllers have lost their data folders")
        assert not (data / "meta.properties").exists(), "nothing is formatted"
        running.stop()
    assert "1 of 1 controllers have lost their data folders" in refusal_of(data)
    assert not (data / "meta.properties").exists(), "nothing is formatted"
