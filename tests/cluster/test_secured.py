"""`--brokers 3 --secure`: nodes log in to each other, and nobody else can pass for one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.client.connection import ClientSettings, read_config_file
from headrace.client.errors import ClientError
from headrace.client.wire import Wire
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import broker_heartbeat, describe_quorum, fetch
from headrace.wire.protocol.primitives import ZERO_ID
from tests.cluster.started import Running, started

RECORDS = 300
HEADRACE = [sys.executable, "-m", "headrace"]


@dataclass(slots=True)
class Secured:
    running: Running
    data: Path
    security: Path

    def client(self, **more: str) -> dict[str, str]:
        """Settings of the first user's clients."""
        found = read_config_file(self.security / "admin.conf")
        return found | {"bootstrap.servers": self.running.bootstrap} | more

    def controller(self) -> tuple[str, int]:
        plan = json.loads((self.data / "headrace-cluster.json").read_bytes())
        return "localhost", plan["nodes"][0]["controller_port"]

    def broker(self) -> tuple[str, int]:
        host, port = self.running.bootstrap.split(",")[0].rsplit(":", 1)
        return host, int(port)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    security = folder / "security"
    made = [*HEADRACE, "security", "init", "--folder", str(security)]
    subprocess.run(made, check=True, capture_output=True)
    words = ("--brokers", "3", "--secure", "--security", str(security))
    with started(folder / "data", *words, listen="localhost:0") as running:
        yield Secured(running.wait_until_ready(), folder / "data", security)
        running.stop()


def test_what_is_acknowledged_survives_a_kill(secured: Secured) -> None:
    producer = Producer(secured.client(acks="all"))
    for value in range(RECORDS):
        producer.produce("orders", b"%d" % value)
        if value == RECORDS // 2:
            assert producer.flush(60) == 0
            os.kill(secured.running.pids[2], signal.SIGKILL)
    assert producer.flush(60) == 0
    group = {"group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(secured.client(**group))
    consumer.subscribe(["orders"])
    found: list[int] = []
    while len(found) < RECORDS:
        found += [int(message.value() or b"") for message in consumer.consume(RECORDS, 1.0)]
    consumer.close()
    assert sorted(found) == list(range(RECORDS))


@pytest.mark.parametrize(
    "login",
    [
        {"security.protocol": "plaintext"},
        {"security.protocol": "ssl"},
        {},  # the first user, by SCRAM
        {"sasl.mechanism": "PLAIN"},  # and with its password by PLAIN
        {"sasl.mechanism": "PLAIN", "sasl.username": "headrace-nodes", "sasl.password": "guess"},
    ],
)
def test_nobody_gets_in_to_the_controllers(secured: Secured, login: dict[str, str]) -> None:
    request = describe_quorum.DescribeQuorumRequest(topics=[])
    with (
        pytest.raises(ClientError),
        Wire(ClientSettings(secured.client(**login)), secured.controller()) as wire,
    ):
        wire.ask(describe_quorum, request, version=2)


def test_a_client_cannot_pose_as_a_broker(secured: Secured) -> None:
    users = [*HEADRACE, "users", "add", "mallory", "--json"]
    at = ["-b", secured.running.bootstrap, "--client-config", str(secured.security / "admin.conf")]
    added = subprocess.run([*users, *at], input="of-mallory\n", capture_output=True, text=True)
    assert added.returncode == 0, added.stderr
    login = {"sasl.username": "mallory", "sasl.password": "of-mallory"}
    with Wire(ClientSettings(secured.client(**login)), secured.broker()) as wire:
        follower = fetch.FetchRequest(
            replica_state=fetch.ReplicaState(replica_id=2, replica_epoch=1),
            topics=[
                fetch.FetchTopic(topic_id=ZERO_ID, partitions=[fetch.FetchPartition(partition=0)])
            ],
        )
        answer = wire.ask(fetch, follower, version=17)
        codes = {answer.error_code} | {
            partition.error_code for topic in answer.responses for partition in topic.partitions
        }
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes, "as Apache Kafka answers it"
    heartbeat = broker_heartbeat.BrokerHeartbeatRequest(broker_id=2, want_fence=True)
    with (
        pytest.raises(ClientError),
        Wire(ClientSettings(secured.client()), secured.broker()) as wire,
    ):
        wire.ask(broker_heartbeat, heartbeat, version=1)
