"""What clients are told of a cluster with several brokers, one of them dead, one half reachable."""

from dataclasses import replace

import pytest

from headrace.node.metadata.image import (
    MIGRATING_DIRECTORY,
    BrokerImage,
    ControllerImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    describe_cluster,
    describe_topic_partitions,
    find_coordinator,
    metadata,
)
from tests.unit.node.broker.rig import Rig

HERE, THERE, DEAD, ELSEWHERE = 1, 2, 3, 4
DISK, FAILED_DISK = b"d" * 16, b"f" * 16


def other(node_id, listener="PLAINTEXT", *, fenced=False):
    endpoint = Endpoint(listener, f"host-{node_id}", 9092)
    rack = f"rack-{node_id}"
    return BrokerImage(node_id, 1, bytes(16), (endpoint,), {}, rack, fenced, False, (DISK,))


def partition(leader, *replicas, directories=(), elr=()):
    places = directories or (MIGRATING_DIRECTORY,) * len(replicas)
    return PartitionImage(
        replicas, replicas[:1], leader, 5, 9, places, eligible_leader_replicas=elr
    )


PARTITIONS = (
    partition(THERE, THERE, HERE),
    partition(-1, DEAD, elr=(DEAD,)),
    partition(ELSEWHERE, ELSEWHERE, HERE),
    partition(HERE, HERE, THERE, directories=(MIGRATING_DIRECTORY, FAILED_DISK)),
)


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path / "node")
    broker = rig.node.broker
    orders = TopicImage("orders", b"o" * 16, PARTITIONS)
    groups = TopicImage("__consumer_offsets", b"g" * 16, PARTITIONS[:1])
    broker.image = replace(
        broker.image,
        brokers={
            **broker.image.brokers,
            THERE: other(THERE),
            DEAD: other(DEAD, fenced=True),
            ELSEWHERE: other(ELSEWHERE, "INTERNAL"),
        },
        topics={"orders": orders, "__consumer_offsets": groups},
        topics_by_id={orders.id: orders, groups.id: groups},
    )
    broker.at_hand.clear()
    return rig


@pytest.mark.parametrize("version", [0, 5, 6, 13])
def test_metadata_tell_whom_the_client_can_reach(rig, version):
    wanted = [metadata.MetadataRequestTopic(name="orders")]
    answer = rig.ask(metadata, metadata.MetadataRequest(topics=wanted), version=version)
    assert {each.node_id: each.host for each in answer.brokers} == {
        HERE: "127.0.0.1",
        THERE: "host-2",
    }
    told = [
        (each.error_code, each.leader_id, each.offline_replicas)
        for each in answer.topics[0].partitions
    ]
    nowhere = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    offline = [[], [DEAD], [ELSEWHERE], [THERE]] if version >= 5 else [[], [], [], []]
    assert told == [
        (ErrorCode.NONE, THERE, offline[0]),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1, offline[1]),
        (nowhere, -1, offline[2]),
        (ErrorCode.NONE, HERE, offline[3]),
    ]


def test_topics_in_pages_tell_the_same_and_who_may_lead_next(rig):
    topics = [describe_topic_partitions.TopicRequest("orders")]
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(topics)
    found = rig.ask(describe_topic_partitions, request).topics[0].partitions
    assert [(each.leader_id, each.offline_replicas) for each in found] == [
        (THERE, []),
        (-1, [DEAD]),
        (-1, [ELSEWHERE]),
        (HERE, [THERE]),
    ]
    assert found[1].eligible_leader_replicas == [DEAD]


def test_the_cluster_is_described_with_each_brokers_own_address(rig):
    request = describe_cluster.DescribeClusterRequest(include_fenced_brokers=True)
    answer = rig.ask(describe_cluster, request)
    told = {each.broker_id: (each.host, each.is_fenced) for each in answer.brokers}
    assert told == {HERE: ("127.0.0.1", False), THERE: ("host-2", False), DEAD: ("host-3", True)}
    answer = rig.ask(describe_cluster, describe_cluster.DescribeClusterRequest())
    assert [each.broker_id for each in answer.brokers] == [HERE, THERE]


def test_a_group_is_sent_to_the_broker_that_leads_its_partition(rig):
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["billing"])
    (found,) = rig.ask(find_coordinator, request).coordinators
    assert (found.node_id, found.host, found.error_code) == (THERE, "host-2", ErrorCode.NONE)


def controllers_told(rig):
    everything = rig.ask(metadata, metadata.MetadataRequest(topics=[]))
    return {
        everything.controller_id,
        rig.ask(describe_cluster, describe_cluster.DescribeClusterRequest()).controller_id,
    }


def test_the_controller_that_clients_are_told_is_a_broker_that_they_find(rig):
    broker = rig.node.broker
    assert controllers_told(rig) == {HERE}
    others = {THERE: other(THERE), DEAD: other(DEAD, fenced=True)}
    broker.image = replace(broker.image, brokers=others)
    broker.at_hand.clear()
    assert controllers_told(rig) == {THERE}, "this one is not registered yet"
    broker.image = replace(broker.image, brokers={DEAD: others[DEAD]})
    broker.at_hand.clear()
    assert controllers_told(rig) == {-1}


def test_a_controllers_listener_tells_of_all_controllers_and_which_one_is_active(rig):
    broker = rig.node.broker
    endpoints = (Endpoint("CONTROLLER", "host-2", 9093), Endpoint("OTHER", "host-2", 9094))
    two = ControllerImage(THERE, bytes(16), endpoints, {})
    broker.image = replace(broker.image, controllers={THERE: two})
    broker.controllers = {"CONTROLLER": broker.endpoints["PLAINTEXT"]}
    broker.active_controller_id = lambda: THERE
    session = rig.connect()
    session.listener = "CONTROLLER"
    request = describe_cluster.DescribeClusterRequest(endpoint_type=2)
    answer = rig.ask(describe_cluster, request, session=session)
    assert answer.controller_id == THERE
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [
        (HERE, "127.0.0.1", 9092),
        (THERE, "host-2", 9093),
    ]
