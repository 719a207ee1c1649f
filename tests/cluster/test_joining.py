"""From one node to three: nodes join by `--join`, vote, get replicas, and restart under load."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli.cluster.rolling_restart import reasons_to_wait
from headrace.client.admin.cluster_status import read_status
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.node.process.local_cluster.plan import free_ports
from tests.cluster.started import Running, refusal_of, started
from tests.cluster.test_growth import await_true, headrace, quorum_of, read, replicas_of
from tests.cluster.test_rolling_restart import Sending

# As docs/guide/growing.md has it for each node of three.
THREE = """\
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
"""


def is_well(bootstrap: str) -> bool:
    try:
        return not reasons_to_wait(read_status(ClientSettings({"bootstrap.servers": bootstrap})))
    except ClientError:
        return False


def stop(running: Running) -> None:
    running.process.send_signal(signal.SIGINT)
    running.process.communicate()
    assert running.process.returncode == 0


def test_one_node_becomes_three_and_restarts_under_load(tmp_path: Path) -> None:
    ports = free_ports(6)
    clients, controllers = ports[:3], [f"localhost:{port}" for port in ports[3:]]
    addresses = [f"localhost:{port}" for port in clients]
    at, everywhere = addresses[0], ",".join(addresses)
    opening = ("--controller-listen", controllers[0], "--insecure", "--no-console")
    (tmp_path / "three.properties").write_text(THREE)
    later = ("--config", str(tmp_path / "three.properties"), "--no-console")
    with ExitStack() as nodes:

        def start(node: int, *words: str) -> Running:
            here = started(tmp_path / str(node), *words, listen=addresses[node - 1])
            return nodes.enter_context(here).wait_until_ready()

        running = {1: start(1, *opening)}
        admin = AdminClient({"bootstrap.servers": at})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
        with Sending(everywhere, "orders") as sending:
            for node in (2, 3):
                where = controllers[node - 1]
                joining = ("--join", at, "--controller-listen", where, "--no-console")
                running[node] = start(node, *joining)
                assert running[node].ready["node"] == node
                headrace("cluster", "add-voter", str(node), "--at", where, "--execute", "-b", at)
            assert [voter.id for voter in quorum_of(at).voters] == [1, 2, 3]
            taken = refusal_of(tmp_path / "4", "--join", at, "--node-id", "2")
            assert "has a node 2 already" in taken
            headrace("cluster", "raise-replication", "--all", "3", "-b", at)
            assert all(len(each.isr) == 3 for each in replicas_of(at))
            # Without --join: each folder knows its cluster, and its node the number.
            for node in (3, 2, 1):
                await_true(lambda: is_well(everywhere))
                stop(running[node])
                running[node] = start(node, *later, *(opening if node == 1 else ()))
            await_true(lambda: is_well(everywhere))
        sending.require_in_order(read(everywhere, "orders", len(sending.acknowledged)))
        admin.create_topics([NewTopic("later", 1, -1)])["later"].result(60)
        assert all(len(each.replicas) == 3 for each in replicas_of(everywhere))
        for node in (3, 2, 1):
            running[node].process.terminate()
