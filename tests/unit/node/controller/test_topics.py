"""Decisions about topics: what is written, what is refused, with which code."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.controller.topics import (
    EffectiveConfig,
    TopicRules,
    create_partitions,
    create_topics,
    delete_topics,
)
from headrace.node.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.protocol.messages.partition_record import PartitionRecord
from headrace.wire.protocol.messages.register_broker_record import RegisterBrokerRecord
from headrace.wire.protocol.messages.remove_topic_record import RemoveTopicRecord
from headrace.wire.protocol.messages.topic_record import TopicRecord
from headrace.wire.protocol.primitives import ZERO_ID
from tests.unit.node.consensus.quorum_of_one import id_source

new_id = id_source()
DISK = b"disk".ljust(16)


def after(image: MetadataImage, records: list[Any]) -> MetadataImage:
    return image.apply(records, offset=image.offset + len(records), epoch=1, wall_ms=0)


def cluster(*broker_ids: int, fenced: tuple[int, ...] = ()) -> MetadataImage:
    records: list[Any] = [
        RegisterBrokerRecord(broker_id=b, broker_epoch=1, fenced=b in fenced, log_dirs=[DISK])
        for b in broker_ids
    ]
    return after(MetadataImage(cluster_id="test"), records)


def topic(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, **fields
    )


def assigned(name: str, *replicas: list[int], start: int = 0) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in enumerate(replicas, start)
    ]
    return topic(name, -1, -1, assignments=assignments)


def codes_of(
    image: MetadataImage, *topics: CreatableTopic, rules: TopicRules | None = None
) -> list[ErrorCode]:
    request = CreateTopicsRequest(topics=list(topics))
    decision = create_topics(image, request, rules or TopicRules(), new_id)
    return [ErrorCode(result.error_code) for result in decision.response.topics]


def with_topics(image: MetadataImage, *topics: CreatableTopic) -> MetadataImage:
    request = CreateTopicsRequest(topics=list(topics))
    return after(image, create_topics(image, request, TopicRules(), new_id).records)


def test_a_new_topic_is_its_record_its_settings_and_its_partitions() -> None:
    wanted = topic("orders", 2, configs=[CreatableTopicConfig("retention.ms", "1000")])
    request = CreateTopicsRequest(topics=[wanted])
    decision = create_topics(cluster(1), request, TopicRules(), lambda: b"a new topic's id")
    assert decision.records == [
        TopicRecord("orders", b"a new topic's id"),
        ConfigRecord(2, "orders", "retention.ms", "1000"),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=b"a new topic's id",
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[DISK],
            )
            for index in (0, 1)
        ),
    ]
    (result,) = decision.response.topics
    assert result.topic_id == b"a new topic's id"
    assert (result.num_partitions, result.replication_factor) == (2, 1)


def test_the_answer_describes_the_settings_of_the_new_topic() -> None:
    def describe(image: MetadataImage, own: dict[str, str]) -> list[EffectiveConfig]:
        return [EffectiveConfig("retention.ms", own["retention.ms"], source=1)]

    wanted = topic("orders", configs=[CreatableTopicConfig("retention.ms", "1000")])
    decision = create_topics(
        cluster(1),
        CreateTopicsRequest(topics=[wanted]),
        TopicRules(describe_configs=describe),
        new_id,
    )
    (config,) = decision.response.topics[0].configs or []
    assert (config.name, config.value, config.config_source) == ("retention.ms", "1000", 1)


def test_minus_one_means_as_the_broker_is_configured() -> None:
    rules = TopicRules(num_partitions=4, default_replication_factor=2)
    request = CreateTopicsRequest(topics=[topic("orders", -1, -1)])
    (result,) = create_topics(cluster(1, 2, 3), request, rules, new_id).response.topics
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_validation_alone_writes_nothing_and_answers_the_same() -> None:
    request = CreateTopicsRequest(topics=[topic("orders"), topic("..")], validate_only=True)
    decision = create_topics(cluster(1), request, TopicRules(), new_id)
    assert not decision.records
    assert [t.error_code for t in decision.response.topics] == [0, 17]


def test_one_bad_topic_does_not_keep_the_others_out() -> None:
    request = CreateTopicsRequest(topics=[topic("good"), topic("bad", 0), topic("better")])
    decision = create_topics(cluster(1), request, TopicRules(), new_id)
    assert [r.name for r in decision.records if isinstance(r, TopicRecord)] == ["good", "better"]


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "ä", "a b"])
def test_bad_names(name: str) -> None:
    assert codes_of(cluster(1), topic(name)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_names_that_are_taken_or_collide_or_come_twice() -> None:
    image = with_topics(cluster(1), topic("a.b"))
    assert codes_of(image, topic("a.b"), topic("a_b"), topic("a-b")) == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]
    assert codes_of(image, topic("x"), topic("x")) == [ErrorCode.INVALID_REQUEST]
    assert codes_of(image, topic("__cluster_metadata")) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -1, assignments=assigned("t", [1]).assignments), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, 1, assignments=assigned("t", [1]).assignments), ErrorCode.INVALID_REQUEST),
        (assigned("t", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", [1, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", [1, 2], [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", [1], start=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", [3]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", configs=[CreatableTopicConfig("a.b", None)]), ErrorCode.INVALID_CONFIG),
        (assigned("t", [1, 2], [2, 1]), ErrorCode.NONE),
        (assigned("t", [3, 2]), ErrorCode.NONE),
    ],
)  # fmt: skip
def test_partitions_replicas_and_assignments(wanted: CreatableTopic, code: ErrorCode) -> None:
    assert codes_of(cluster(1, 2, 3, fenced=(3,)), wanted) == [code]


def test_a_setting_that_is_refused_refuses_its_topic() -> None:
    def validate(image: MetadataImage, own: dict[str, str]) -> None:
        if own:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{own} cannot be")

    wanted = topic("t", configs=[CreatableTopicConfig("retention.ms", "never")])
    rules = TopicRules(validate_configs=validate)
    assert codes_of(cluster(1), wanted, topic("u"), rules=rules) == [ErrorCode.INVALID_CONFIG, 0]


def test_a_request_for_too_many_partitions_is_refused_as_a_whole() -> None:
    request = CreateTopicsRequest(topics=[topic("t", 6_000), topic("u", 4_001)])
    with pytest.raises(KafkaError) as refusal:
        create_topics(cluster(1), request, TopicRules(), new_id)
    assert refusal.value.code == ErrorCode.POLICY_VIOLATION


def test_leaders_take_turns_and_a_fenced_broker_neither_leads_nor_is_in_sync() -> None:
    image = with_topics(cluster(1, 2, 3, fenced=(3,)), topic("t", 4, 3))
    partitions = image.topics["t"].partitions
    assert sorted(p.leader for p in partitions) == [1, 1, 2, 2]
    assert all(p.replicas[2] == 3 and sorted(p.isr) == [1, 2] for p in partitions)


def test_with_several_directories_the_broker_chooses_later() -> None:
    broker = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=[DISK, ZERO_ID])
    image = with_topics(after(cluster(1), [broker]), topic("t"))
    assert image.topics["t"].partitions[0].directories == (UNASSIGNED_DIRECTORY,)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    image = with_topics(cluster(1), topic("a"), topic("b"))
    by_name = delete_topics(image, DeleteTopicsRequest(topic_names=["a", "x"]), 5, TopicRules())
    assert by_name.records == [RemoveTopicRecord(image.topics["a"].id)]
    assert [r.error_code for r in by_name.response.responses] == [0, 3]

    wanted = [DeleteTopicState(None, image.topics["b"].id), DeleteTopicState(None, DISK)]
    by_id = delete_topics(image, DeleteTopicsRequest(topics=wanted), 6, TopicRules())
    assert [(r.name, r.error_code) for r in by_id.response.responses] == [
        ("b", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert set(after(image, by_id.records).topics) == {"a"}


def test_a_topic_named_twice_or_in_two_ways_or_not_at_all_stays() -> None:
    image = with_topics(cluster(1), topic("a"), topic("b"))
    a, b = image.topics["a"].id, image.topics["b"].id
    for wanted in (
        [DeleteTopicState("a", ZERO_ID), DeleteTopicState("a", ZERO_ID)],
        [DeleteTopicState(None, b), DeleteTopicState("b", ZERO_ID)],
        [DeleteTopicState("a", a)],
        [DeleteTopicState(None, ZERO_ID)],
    ):
        decision = delete_topics(image, DeleteTopicsRequest(topics=wanted), 6, TopicRules())
        assert not decision.records
        assert {r.error_code for r in decision.response.responses} == {ErrorCode.INVALID_REQUEST}


def test_deletion_can_be_switched_off() -> None:
    image = with_topics(cluster(1), topic("a"))
    rules = TopicRules(delete_topic_enable=False)
    for version, code in ((1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)):
        decision = delete_topics(image, DeleteTopicsRequest(topic_names=["a"]), version, rules)
        assert [r.error_code for r in decision.response.responses] == [code]


def more(count: int, *replicas: list[int], name: str = "t") -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in replicas]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments or None)


def test_partitions_are_added_behind_the_ones_that_are_there() -> None:
    image = with_topics(cluster(1, 2), topic("t", 2, 2))
    decision = create_partitions(image, CreatePartitionsRequest(topics=[more(5)]))
    assert [record.partition_id for record in decision.records] == [2, 3, 4]
    assert all(len(record.replicas) == 2 for record in decision.records)
    assert len(after(image, decision.records).topics["t"].partitions) == 5

    by_hand = create_partitions(image, CreatePartitionsRequest(topics=[more(3, [2, 1])]))
    assert by_hand.records[0].replicas == [2, 1]

    dry = create_partitions(image, CreatePartitionsRequest(topics=[more(5)], validate_only=True))
    assert not dry.records and dry.response.results[0].error_code == 0


def test_partitions_that_are_too_many_together_are_refused_where_it_becomes_too_much() -> None:
    image = with_topics(cluster(1), topic("t"), topic("u"))
    wanted = [more(6_000), more(6_000, name="u")]
    decision = create_partitions(image, CreatePartitionsRequest(topics=wanted))
    assert [r.error_code for r in decision.response.results] == [0, ErrorCode.POLICY_VIOLATION]
    assert len(decision.records) == 5_999


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ([more(2)], ErrorCode.INVALID_PARTITIONS),
        ([more(1)], ErrorCode.INVALID_PARTITIONS),
        ([more(3, name="x")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([more(3), more(4)], ErrorCode.INVALID_REQUEST),
        ([more(4, [1, 2])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([more(3, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([more(3, [1, 9])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([more(20_000)], ErrorCode.POLICY_VIOLATION),
    ],
)
def test_partitions_that_cannot_be_added(
    wanted: list[CreatePartitionsTopic], code: ErrorCode
) -> None:
    image = with_topics(cluster(1, 2), topic("t", 2, 2))
    decision = create_partitions(image, CreatePartitionsRequest(topics=wanted))
    assert not decision.records
    assert [result.error_code for result in decision.response.results] == [code]
