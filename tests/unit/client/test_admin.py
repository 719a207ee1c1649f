"""Administering a real broker through the one door."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client import Admin, ClientError, Consumer, NoSuchTopic, Producer, TopicPartition
from headrace.testing import Broker

PLACE = TopicPartition("kept", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with Admin(running.bootstrap) as admin:
            admin.topics.create("kept", partitions=1, settings={"retention.ms": "1000000"})
        with Producer(running.bootstrap) as producer:
            for number in range(5):
                producer.send("kept", str(number))
        yield running


@pytest.fixture
def admin(broker: Broker) -> Admin:
    return Admin(broker.bootstrap)


def test_topics_and_their_settings(admin: Admin) -> None:
    (found,) = admin.topics.describe(["kept"])
    assert found.own_settings() == {"retention.ms": "1000000"}
    assert found.partitions[0].end_offset == 5
    admin.topics.change_settings("kept", to={"retention.ms": "2000000"})
    admin.topics.grow("kept", partitions=2)
    (found,) = admin.topics.describe(["kept"])
    assert found.own_settings() == {"retention.ms": "2000000"}
    assert len(found.partitions) == 2


def test_the_cluster_and_its_brokers(admin: Admin, broker: Broker) -> None:
    found = admin.cluster.describe()
    (node,) = found.brokers
    assert len(found.id) == 22
    assert f"{node.host}:{node.port}" == broker.bootstrap
    settings = admin.cluster.settings(node.id)
    assert settings["num.partitions"].value == "1"
    admin.cluster.change_settings(node.id, to={"log.retention.ms": "7654321"})
    assert admin.cluster.settings(node.id)["log.retention.ms"].value == "7654321"
    admin.cluster.change_settings(node.id, to={}, remove=["log.retention.ms"])


def test_data_folders(admin: Admin, broker: Broker) -> None:
    (folder,) = admin.cluster.log_folders()
    assert folder.path == str(broker.data)
    assert folder.sizes[PLACE] > 60
    assert folder.usable_bytes is None or folder.usable_bytes > 0


def test_producers_that_a_partition_remembers(admin: Admin, broker: Broker) -> None:
    (producer,) = admin.producers(PLACE)
    assert producer.last_sequence == 4
    assert producer.transaction_start_offset is None
    with pytest.raises(NoSuchTopic, match="no partition 9 of topic kept"):
        admin.producers(TopicPartition("kept", 9))


def test_groups_and_where_they_are(admin: Admin, broker: Broker) -> None:
    with Consumer(broker.bootstrap, topics=["kept"], group="seen") as consumer:
        next(consumer)
        consumer.commit()
    (found,) = admin.groups.describe(["seen"])
    assert found.progress[0].committed == 1


def test_records_are_deleted_up_to_an_offset(admin: Admin) -> None:
    assert admin.delete_records({PLACE: 3}) == {PLACE: 3}
    assert admin.topics.describe(["kept"])[0].partitions[0].start_offset == 3
    with pytest.raises(ClientError) as caught:
        admin.delete_records({PLACE: 500})
    assert caught.value.code == "OFFSET_OUT_OF_RANGE"
    with pytest.raises(ClientError, match="No leaders found"):
        admin.delete_records({TopicPartition("missing", 0): 1})
