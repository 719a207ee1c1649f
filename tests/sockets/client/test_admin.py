"""Administering a real broker through the one door."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import Admin, ClientError, Consumer, NoSuchTopic, Producer, TopicPartition
from headrace.client.wire import Wire
from headrace.testing import Broker
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_log_dirs

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


def test_a_group_forgets_where_it_was_in_a_partition(admin: Admin, broker: Broker) -> None:
    places = [TopicPartition("forgotten", number) for number in range(2)]
    admin.topics.create("forgotten", partitions=2)
    with Consumer(broker.bootstrap, topics=["forgotten"], group="forgetful") as consumer:
        while not consumer.assignment():
            consumer.poll(0.05)
        consumer.commit(dict.fromkeys(places, 0))
        with pytest.raises(ClientError) as caught:
            admin.delete_offsets("forgetful", places[:1])
        assert caught.value.code == "GROUP_SUBSCRIBED_TO_TOPIC"
    admin.delete_offsets("forgetful", places[:1])
    assert admin.groups.committed("forgetful") == {("forgotten", 1): 0}
    with pytest.raises(ClientError) as caught:
        admin.delete_offsets("nobody", places)
    assert caught.value.code == "GROUP_ID_NOT_FOUND"


def test_topics_that_come_and_go_are_seen_by_one_who_keeps_the_list(admin: Admin) -> None:
    topics = admin.topics
    assert "newcomer" not in [topic.name for topic in topics.all()]
    topics.create("newcomer", partitions=1)
    assert "newcomer" in [topic.name for topic in topics.all()]
    topics.delete("newcomer")
    assert "newcomer" not in [topic.name for topic in topics.all()]


def test_limits_and_users(admin: Admin) -> None:
    admin.quotas.alter({"client-id": "shop"}, {"consumer_byte_rate": 1e6})
    (quota,) = admin.quotas.all()
    assert (quota.entity, quota.limits) == ({"client-id": "shop"}, {"consumer_byte_rate": 1e6})
    admin.users.set_password("anna", "secret", mechanism="SCRAM-SHA-512")
    (user,) = admin.users.all()
    assert (user.name, user.mechanisms) == ("anna", {"SCRAM-SHA-512": 4096})
    with pytest.raises(ClientError) as caught:
        admin.acls.find()
    assert caught.value.code == "SECURITY_DISABLED"


def test_a_folder_that_failed_hides_no_other(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's answer, with one more disk in it that does not work."""
    ask = Wire.ask

    def with_a_broken_disk(self: Wire, messages: Any, request: Any) -> Any:
        answer = ask(self, messages, request)
        if messages is describe_log_dirs:
            broken = describe_log_dirs.DescribeLogDirsResult(
                int(ErrorCode.KAFKA_STORAGE_ERROR), "/broken", [], -1, -1
            )
            answer.results.append(broken)
        return answer

    monkeypatch.setattr(Wire, "ask", with_a_broken_disk)
    works, broken = admin.cluster.log_folders()
    assert works.failure is None
    assert works.sizes
    assert broken.path == "/broken"
    assert broken.failure == "The disk failed while reading or writing the log."
