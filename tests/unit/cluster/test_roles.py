"""Nodes that are only controller or only broker, and quorums whose voters are configured."""

from __future__ import annotations

import json

from headrace.wire.protocol.errors import ErrorCode
from tests.unit.cluster.harness import FOLDER, Cluster


def create(cluster: Cluster, at: int, name: str, replicas: int) -> None:
    answers = cluster.create(cluster.members[at], name, replicas)
    cluster.wait(lambda: answers)
    [topic] = answers[0].topics
    assert topic.error_code == ErrorCode.NONE, topic.error_message


def test_controllers_alone_decide_for_brokers_that_do_not_vote() -> None:
    cluster = Cluster(0, controllers=3, brokers=2)
    cluster.start()
    cluster.wait_until_ready()
    create(cluster, 4, "orders", 2)
    cluster.wait(
        lambda: all("orders" in m.node.broker.image.topics for m in cluster.members.values())
    )
    image = cluster.members[4].node.broker.image
    assert set(image.brokers) == {4, 5} and set(image.controllers) == {1, 2, 3}
    quorum = cluster.wait_for_controller().node.controller.log.host.quorum
    assert [v.id for v in quorum.voters.latest] == [1, 2, 3]


def test_brokers_outlive_the_death_of_a_controller() -> None:
    cluster = Cluster(0, controllers=3, brokers=2)
    cluster.start()
    cluster.wait_until_ready()
    first = cluster.wait_for_controller()
    first.kill()
    create(cluster, 5, "orders", 2)
    assert cluster.active() != [first]
    cluster.world.run(20_000)
    brokers = cluster.members[4].node.broker.image.brokers
    assert not any(broker.fenced for broker in brokers.values()), "their sessions began anew"


def test_voters_can_be_configured() -> None:
    cluster = Cluster(3, static=True)
    cluster.start()
    cluster.wait_until_ready()
    create(cluster, 1, "orders", 3)
    state = cluster.members[1].disk.read_file(f"{FOLDER}/__cluster_metadata-0/quorum-state")
    written = json.loads(state)
    assert written["data_version"] == 0
    assert [each["voterId"] for each in written["currentVoters"]] == [1, 2, 3]
    first = cluster.wait_for_controller()
    first.kill()
    second = cluster.wait_for_controller()
    assert second.node.broker.image.kraft_version == 0
    first.start()
    cluster.wait(lambda: first.node.ready)


def test_one_voter_serves_brokers_beside_it() -> None:
    cluster = Cluster(1, brokers=1)
    cluster.start()
    assert cluster.members[1].node.controller.is_active, "at once: it asks nobody"
    cluster.wait_until_ready()
    create(cluster, 2, "orders", 2)
