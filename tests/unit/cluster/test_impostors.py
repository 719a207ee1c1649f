"""Clients that pose as nodes, and nodes that pose as others, are refused and change nothing."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from headrace.environment import Now
from headrace.node.assembly.served import NOT_FOR_CLIENTS
from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.serving.api import Call, ClosesConnection
from headrace.node.serving.envelopes import enclose
from headrace.node.serving.principal import ANONYMOUS, Principal
from headrace.node.serving.session import Session
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_topics,
    envelope,
    fetch,
    unregister_broker,
)
from tests.unit.cluster.harness import CLIENTS, CONTROLLERS, Member
from tests.unit.cluster.test_brokers import Story
from tests.unit.node.broker.rig import read_piece

MALLORY = Principal("User", "mallory")
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ENDED = "the connection was ended"
TOO_OLD = [broker_registration.Feature("metadata.version", 1, 7)]
BETWEEN_NODES = {
    "vote",
    "begin_quorum_epoch",
    "end_quorum_epoch",
    "alter_partition",
    "envelope",
    "fetch_snapshot",
    "broker_registration",
    "broker_heartbeat",
    "allocate_producer_ids",
    "controller_registration",
    "assign_replicas_to_dirs",
    "update_raft_voter",
}


@pytest.fixture(scope="module")
def story() -> Story:
    """Nodes know each other by who they are; nobody else has a right."""
    found = Story(authorizer_class_name=STANDARD, super_users="User:ANONYMOUS")
    found.created(1, 2, 3)
    return found


def asks(
    story: Story,
    at: Member,
    messages: Any,
    request: Any,
    *,
    listener: str = CONTROLLERS,
    principal: Principal = ANONYMOUS,
) -> Any:
    """The answer, or that the connection was ended."""
    session = Session("10.6.6.6", listener)
    session.principal = principal
    version = messages.VERSIONS[-1]
    pieces = encode_request(messages, version, 7, "mallory", request)
    data = bytearray(b"".join(bytes(piece) for piece in pieces))
    try:
        at.node.dispatch.feed(session, memoryview(data), len(data))
    except ClosesConnection:
        return ENDED

    def reply() -> bytes:
        at.turn()
        return b"".join(read_piece(piece) for piece in session.outbox)

    frame = story.cluster.wait(reply, for_ms=5_000)
    return decode_response(messages, version, memoryview(frame)[4:])[1]


def messages_of(name: str) -> Any:
    return importlib.import_module(f"headrace.wire.protocol.messages.{name}")


def empty_request(messages: Any) -> Any:
    return getattr(messages, f"{messages.NAME}Request")()


def known(story: Story) -> Any:
    """All that an impostor could change."""
    image = story.image
    return image.brokers, image.controllers, image.topics, image.next_producer_id


def test_these_are_all_that_nodes_say_to_each_other() -> None:
    assert {messages_of(name).API_KEY for name in BETWEEN_NODES} == NOT_FOR_CLIENTS


@pytest.mark.parametrize("name", sorted(BETWEEN_NODES))
def test_by_the_clients_listener_nobody_talks_as_a_node(story: Story, name: str) -> None:
    messages = messages_of(name)
    for member in story.members:
        answer = asks(story, member, messages, empty_request(messages), listener=CLIENTS)
        assert answer == ENDED


@pytest.mark.parametrize("name", sorted(BETWEEN_NODES))
def test_by_the_controllers_listener_one_needs_the_right_of_a_node(story: Story, name: str) -> None:
    messages, before = messages_of(name), known(story)
    request = empty_request(messages)
    answer = asks(story, story.controller, messages, request, principal=MALLORY)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert known(story) == before


def test_nobody_reads_the_metadata_log_without_that_right(story: Story) -> None:
    answer = asks(story, story.controller, fetch, fetch.FetchRequest(), principal=MALLORY)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and not answer.responses


def test_an_operators_request_about_nodes_needs_the_operators_right(story: Story) -> None:
    request = unregister_broker.UnregisterBrokerRequest(2)
    for member in story.members:
        answer = asks(
            story, member, unregister_broker, request, listener=CLIENTS, principal=MALLORY
        )
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert 2 in story.image.brokers


def test_a_client_creates_with_its_own_rights_by_whichever_broker(story: Story) -> None:
    topic = create_topics.CreatableTopic("mallorys", 1, 1)
    request = create_topics.CreateTopicsRequest([topic], 5_000)
    for member in story.members:
        answer = asks(story, member, create_topics, request, listener=CLIENTS, principal=MALLORY)
        assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "mallorys" not in story.image.topics


def a_registration(story: Story, broker_id: int, **fields: Any) -> Any:
    given: dict[str, Any] = dict(
        broker_id=broker_id,
        cluster_id=story.image.cluster_id,
        incarnation_id=b"an impostor".ljust(16),
        features=[
            broker_registration.Feature(name, *levels)
            for name, levels in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[b"folder".ljust(16)],
    )
    return broker_registration.BrokerRegistrationRequest(**given | fields)


@pytest.mark.parametrize("as_controller", [True, False])
def test_nobody_takes_the_place_of_a_broker_that_is_alive(
    story: Story, as_controller: bool
) -> None:
    victim = story.controller if as_controller else story.others[0]
    before = known(story)
    request = a_registration(story, victim.id)
    answer = asks(story, story.controller, broker_registration, request)
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert known(story) == before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        ({"features": TOO_OLD}, ErrorCode.UNSUPPORTED_VERSION),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes([1]) * 16]}, ErrorCode.INVALID_REGISTRATION),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_a_node_that_does_not_belong_here_is_not_let_in(
    story: Story, fields: dict[str, Any], code: ErrorCode
) -> None:
    before = known(story)
    request = a_registration(story, 9, **fields)
    answer = asks(story, story.controller, broker_registration, request)
    assert answer.error_code == code
    assert known(story) == before


def test_an_old_start_of_a_broker_has_no_say(story: Story) -> None:
    before = known(story)
    victim = story.others[0]
    epoch = story.image.brokers[victim.id].epoch - 1
    topic_id = story.image.topics["orders"].id
    partition = alter_partition.RequestPartitionData(0, 0, [victim.id])
    named = alter_partition.RequestTopicData(topic_id, [partition])
    for messages, request in (
        (
            broker_heartbeat,
            broker_heartbeat.BrokerHeartbeatRequest(victim.id, epoch, 0, want_fence=True),
        ),
        (
            allocate_producer_ids,
            allocate_producer_ids.AllocateProducerIdsRequest(victim.id, epoch),
        ),
        (
            alter_partition,
            alter_partition.AlterPartitionRequest(victim.id, epoch, [named]),
        ),
        (
            assign_replicas_to_dirs,
            assign_replicas_to_dirs.AssignReplicasToDirsRequest(victim.id, epoch),
        ),
    ):
        answer = asks(story, story.controller, messages, request)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH, messages.NAME
    assert known(story) == before


def test_a_broker_that_does_not_lead_changes_no_in_sync_replicas(story: Story) -> None:
    partition = story.partition()
    before = known(story)
    follower = next(each for each in partition.replicas if each != partition.leader)
    wanted = alter_partition.RequestPartitionData(
        0,
        partition.leader_epoch,
        [],
        [alter_partition.BrokerState(follower, -1)],
        0,
        partition.partition_epoch,
    )
    named = alter_partition.RequestTopicData(story.image.topics["orders"].id, [wanted])
    epoch = story.image.brokers[follower].epoch
    request = alter_partition.AlterPartitionRequest(follower, epoch, [named])
    answer = asks(story, story.controller, alter_partition, request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert known(story) == before


@pytest.mark.parametrize("name", ["envelope", "broker_heartbeat", "vote", "metadata"])
def test_an_envelope_holds_only_what_clients_ask_of_the_controller(story: Story, name: str) -> None:
    messages = messages_of(name)
    pieces = encode_request(messages, messages.VERSIONS[-1], 7, "x", empty_request(messages))
    inside = b"".join(bytes(piece) for piece in pieces)[4:]
    call = Call(Now(0, 0), 0, memoryview(inside), Session("10.6.6.6", CLIENTS), 7)
    answer = asks(story, story.controller, envelope, enclose(call))
    assert answer.error_code == ErrorCode.INVALID_REQUEST and not answer.response_data


def test_after_all_that_the_cluster_is_as_it_was(story: Story) -> None:
    assert not any(broker.fenced for broker in story.image.brokers.values())
    assert set(story.image.brokers) == {1, 2, 3}
